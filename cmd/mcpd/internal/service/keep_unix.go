//go:build unix

package service

import (
	"os"
	"syscall"
)

// endTogether has nothing to do: service managers of Unix systems end all that
// belongs to a service.
func endTogether() error { return nil }

func interrupt(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
