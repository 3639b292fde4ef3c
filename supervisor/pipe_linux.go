package supervisor

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// roomyPipe is what a pipe may hold that carries long messages, in bytes. It
// is what an unprivileged process may ask for; with 64 of them a user has used
// up what the kernel grants, and those that follow stay as they are.
const roomyPipe = 1 << 20

// makeRoom has a pipe hold more. It is no loss where that is refused.
func makeRoom(pipe any) {
	f, ok := pipe.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, roomyPipe) })
}
