package daemon

import (
	"errors"
	"syscall"

	"golang.org/x/sys/windows"
)

// soExclusiveAddrUse is SO_EXCLUSIVEADDRUSE, the complement of SO_REUSEADDR.
const soExclusiveAddrUse = ^4

// exclusive keeps other programs from taking over mcpd's address, which they
// otherwise can with SO_REUSEADDR.
func exclusive(_, _ string, c syscall.RawConn) error {
	var err error
	if cerr := c.Control(func(fd uintptr) {
		err = windows.SetsockoptInt(windows.Handle(fd), windows.SOL_SOCKET, soExclusiveAddrUse, 1)
	}); cerr != nil {
		return cerr
	}
	return err
}

func addrInUse(err error) bool {
	return errors.Is(err, windows.WSAEADDRINUSE) || errors.Is(err, windows.WSAEACCES)
}
