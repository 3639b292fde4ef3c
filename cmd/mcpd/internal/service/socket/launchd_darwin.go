package socket

import (
	"syscall"
	"unsafe"
)

// The call is bound as golang.org/x/sys/unix binds those of the system's
// library: by the dynamic linker, through a jump in assembly, without cgo.

//go:cgo_import_dynamic libc_launch_activate_socket launch_activate_socket "/usr/lib/libSystem.B.dylib"

// activateAddress is where the jump is; launchd_darwin.s says it, and nothing
// ever changes it.
var activateAddress uintptr

//go:linkname syscallSyscall syscall.syscall
func syscallSyscall(fn, a1, a2, a3 uintptr) (r1, r2 uintptr, err syscall.Errno)

// maxSockets is far more than an entry of a plist has.
const maxSockets = 64

// activate is launch_activate_socket(3): the descriptors of the sockets that
// launchd opened for an entry of the job's Sockets.
func activate(name string) ([]int, syscall.Errno) {
	cname, err := syscall.BytePtrFromString(name)
	if err != nil {
		return nil, syscall.EINVAL
	}
	// launchd allocates the list, a few bytes once in the life of a process,
	// which are not worth a binding of free(3).
	var list *int32
	var count uintptr
	result, _, _ := syscallSyscall(activateAddress,
		uintptr(unsafe.Pointer(cname)), uintptr(unsafe.Pointer(&list)), uintptr(unsafe.Pointer(&count)))
	if errno := syscall.Errno(uint32(result)); errno != 0 { // an int of C
		return nil, errno
	}
	if list == nil || count > maxSockets {
		return nil, syscall.EINVAL
	}
	var fds []int
	for _, fd := range unsafe.Slice(list, count) {
		syscall.CloseOnExec(int(fd))
		fds = append(fds, int(fd))
	}
	return fds, 0
}
