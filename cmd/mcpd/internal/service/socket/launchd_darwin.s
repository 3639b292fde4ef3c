#include "textflag.h"

TEXT activateTrampoline<>(SB), NOSPLIT, $0-0
	JMP libc_launch_activate_socket(SB)

GLOBL ·activateAddress(SB), RODATA, $8
DATA ·activateAddress(SB)/8, $activateTrampoline<>(SB)
