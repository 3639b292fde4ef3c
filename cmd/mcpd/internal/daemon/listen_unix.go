//go:build unix

package daemon

import (
	"errors"
	"syscall"
)

// exclusive has nothing to do here: two programs cannot listen on one address
// unless both want to.
func exclusive(_, _ string, _ syscall.RawConn) error { return nil }

func addrInUse(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }
