//go:build unix

package supervisor

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// markKey names the variable by which stray descendants are found.
const markKey = "MCPD_CHILD"

// lookPath finds the file of a command the way the child's own shell would, except that relative entries of PATH, the
// empty one included, are not searched: what is executed must not depend on a working folder.
func lookPath(c Command) (string, error) {
	if strings.ContainsRune(c.Name, '/') {
		path := c.Name
		if !filepath.IsAbs(path) {
			path = filepath.Join(c.Dir, path)
		}
		path, err := filepath.Abs(path)
		if err == nil {
			err = executable(path)
		}
		if err != nil {
			reason, permanent := explainStart(path, err)
			return "", &StartError{Command: c.Name, Permanent: permanent, Err: err, Reason: reason}
		}
		return path, nil
	}
	if c.Name == "" {
		return "", &StartError{Permanent: true, Err: exec.ErrNotFound, Reason: "the command is empty"}
	}
	list := getenv(c.Env, "PATH", func(a, b string) bool { return a == b })
	var denied error
	for _, dir := range filepath.SplitList(list) {
		if !filepath.IsAbs(dir) {
			continue
		}
		path := filepath.Join(dir, c.Name)
		switch err := executable(path); {
		case err == nil:
			return path, nil
		case errors.Is(err, fs.ErrPermission) && denied == nil:
			reason, permanent := explainStart(path, err)
			denied = &StartError{Command: c.Name, Permanent: permanent, Err: err, Reason: reason}
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", notFound(c, list)
}

// executable says why path cannot be executed.
func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return syscall.EISDIR
	}
	if err := unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS); err != nil && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) {
		return err
	}
	if info.Mode()&0o111 == 0 { // root is granted everything else
		return syscall.EACCES
	}
	return nil
}

// explainStart says in a sentence why path was not started, and whether another try is pointless until somebody acts.
func explainStart(path string, err error) (reason string, permanent bool) {
	switch {
	case errors.Is(err, syscall.ENOENT):
		if _, statErr := os.Stat(path); statErr == nil {
			return fmt.Sprintf("%q cannot be executed: the interpreter in its first line, or its loader, does not exist", path), true
		}
		return fmt.Sprintf("%q does not exist", path), true
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return fmt.Sprintf("%q cannot be executed: permission denied; try: chmod +x %s", path, path), true
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Sprintf("%q cannot be executed: it is no program for this system, and a script needs a first line like #!/bin/sh", path), true
	case errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.E2BIG), errors.Is(err, syscall.EINVAL):
		return fmt.Sprintf("%q cannot be executed: %v", path, causeOf(err)), true
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return fmt.Sprintf("the system has no room for another process: %v; see ulimit -u and ulimit -n", causeOf(err)), false
	default:
		return fmt.Sprintf("%q cannot be executed: %v", path, causeOf(err)), false
	}
}

func newCommand(path string, c Command, logger *slog.Logger) (*exec.Cmd, *group, error) {
	mark := markKey + "=" + rand.Text()
	cmd := &exec.Cmd{
		Path:        path,
		Args:        append([]string{c.Name}, c.Args...),
		Env:         append(slices.Clone(c.Env), mark),
		Dir:         c.Dir,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	return cmd, &group{mark: mark, logger: logger}, nil
}

// group is the process group of a child.
type group struct {
	mark   string
	logger *slog.Logger

	mu     sync.Mutex
	pgid   int  // also the pid of the leader
	reaped bool // from then on the number may belong to somebody else
}

func (g *group) adopt(cmd *exec.Cmd) error {
	g.pgid = cmd.Process.Pid
	return nil
}

func (g *group) release() {}

func (g *group) signal(sig syscall.Signal) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reaped {
		return nil
	}
	return g.signalLocked(sig)
}

func (g *group) signalLocked(sig syscall.Signal) error {
	if g.pgid <= 1 {
		return nil // kill(-1) would be everybody
	}
	err := syscall.Kill(-g.pgid, sig)
	if errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.EPERM) && sig == syscall.SIGKILL {
		return nil // nobody is left, or only a zombie, which some systems deny to have the right to signal
	}
	return err
}

// reap waits for the leader, kills what it left behind and collects it.
func (g *group) reap(cmd *exec.Cmd) {
	if !awaitExit(g.pgid) {
		_ = cmd.Wait()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.signalLocked(syscall.SIGKILL); err != nil {
		g.logger.Warn("what a child left behind could not be killed", "pgid", g.pgid, "error", err)
	}
	killStrays(g.mark, g.logger)
	if cmd.ProcessState == nil {
		_ = cmd.Wait()
	}
	g.reaped = true
}

// osProcess is a real process.
type osProcess struct {
	pipes
	cmd   *exec.Cmd
	group *group
}

func (p *osProcess) PID() int         { return p.cmd.Process.Pid }
func (p *osProcess) Terminate() error { return p.group.signal(syscall.SIGTERM) }
func (p *osProcess) Kill() error      { return p.group.signal(syscall.SIGKILL) }

func (p *osProcess) Wait() Exit {
	p.group.reap(p.cmd)
	e := exitOf(p.cmd.ProcessState)
	e.At = time.Now()
	return e
}

func signalOf(state *os.ProcessState) string {
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return ws.Signal().String()
	}
	return ""
}
