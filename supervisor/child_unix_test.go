//go:build unix

package supervisor

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

func setsid(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

func ignoreTerm() { signal.Ignore(syscall.SIGTERM) }

func onTerm(f func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	go func() { <-c; f() }()
}
