package supervisor

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
)

// Starter starts operating system processes. The real one is NewStarter; tests give one that starts in-memory children.
type Starter interface {
	// Start returns a *StartError when the command cannot be executed.
	Start(c Command) (Process, error)
}

// Command is what to execute.
type Command struct {
	// Name is a path, or a name to look up in the PATH of Env. A relative path counts from Dir.
	Name string
	Args []string
	// Env is the complete environment, KEY=VALUE.
	Env []string
	// Dir is the working folder; empty is the daemon's own.
	Dir string
}

// Process is a started process together with everything that it starts.
type Process interface {
	PID() int
	Stdin() io.WriteCloser
	Stdout() io.ReadCloser
	Stderr() io.ReadCloser
	// Wait blocks until the process ended. When it returns, what the process left behind (its group, its job) was
	// killed and the process itself was reaped. It is called exactly once.
	Wait() Exit
	// Terminate asks the process and its descendants to end. errors.ErrUnsupported means that the system has no way
	// to ask. After the end of the process it does nothing.
	Terminate() error
	// Kill ends the process and its descendants without asking. After the end of the process it does nothing.
	Kill() error
}

// StartError says why a command could not be executed.
type StartError struct {
	// Command as configured.
	Command string
	// Reason is a sentence for the person.
	Reason string
	// Permanent is true where another try will not help before somebody changes something: no such file, no permission.
	Permanent bool
	Err       error
}

func (e *StartError) Error() string { return e.Reason }

// Unwrap gives the system's error.
func (e *StartError) Unwrap() error { return e.Err }

// StarterOptions are what a real Starter needs.
type StarterOptions struct {
	// Logger is told of stray descendants that had to be killed; nil discards.
	Logger *slog.Logger
}

// NewStarter gives the Starter of real processes.
//
// Commands are executed directly, never through a shell; the one exception is a .cmd or .bat file on Windows, which
// only cmd.exe can run: its arguments are quoted so that they stay arguments.
//
// POSIX: each process leads a process group of its own, and the group is killed as soon as its leader has ended. On
// Linux this is done before the leader is reaped, so its number cannot have been given to somebody else, and
// descendants that left the group are found by a mark in their environment (MCPD_CHILD, which a program that means to
// outlive its server can unset) and killed as well. The parent-death signal is not used: it fires when the thread that
// started the child ends, which the Go runtime may do at any time, and it reaches only the leader. After a crash of the
// daemon the children see the end of their stdin.
//
// Windows: each process is started suspended, put into a job object with kill-on-close, and resumed, so that neither a
// descendant nor a crash of the daemon leaves anything behind.
func NewStarter(o StarterOptions) Starter {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &osStarter{logger: o.Logger}
}

type osStarter struct{ logger *slog.Logger }

// pipes are the daemon's ends.
type pipes struct{ stdin, stdout, stderr *os.File }

func (p pipes) Stdin() io.WriteCloser { return p.stdin }
func (p pipes) Stdout() io.ReadCloser { return p.stdout }
func (p pipes) Stderr() io.ReadCloser { return p.stderr }

func (o *osStarter) Start(c Command) (_ Process, err error) {
	if c.Dir != "" {
		info, err := os.Stat(c.Dir)
		if err == nil && !info.IsDir() {
			err = &os.PathError{Op: "chdir", Path: c.Dir, Err: errors.New("not a folder")}
		}
		if err != nil {
			return nil, &StartError{
				Command: c.Name, Permanent: true, Err: err,
				Reason: fmt.Sprintf("the working folder %q cannot be used: %v", c.Dir, causeOf(err)),
			}
		}
	}
	path, err := lookPath(c)
	if err != nil {
		return nil, err
	}
	cmd, group, err := newCommand(path, c, o.logger)
	if err != nil {
		return nil, &StartError{Command: c.Name, Permanent: true, Err: err, Reason: fmt.Sprintf("%q cannot be executed: %v", path, err)}
	}

	// Pipes of our own: those of os/exec are closed by its Wait, with what is still in them.
	var ours pipes
	var theirs, all []*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close() // or the end of the child would never show on our side
		}
		if err != nil {
			for _, f := range all {
				_ = f.Close()
			}
		}
	}()
	pipe := func() (r, w *os.File) {
		if err != nil {
			return nil, nil
		}
		if r, w, err = os.Pipe(); err == nil {
			all = append(all, r, w)
		}
		return r, w
	}
	in, inOurs := pipe()
	outOurs, out := pipe()
	errOurs, errw := pipe()
	if err != nil {
		return nil, o.startError(c, path, err)
	}
	theirs = []*os.File{in, out, errw}
	ours = pipes{inOurs, outOurs, errOurs}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errw
	if err := cmd.Start(); err != nil {
		group.release()
		return nil, o.startError(c, path, err)
	}
	if err := group.adopt(cmd); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		group.release()
		return nil, o.startError(c, path, err)
	}
	return &osProcess{pipes: ours, cmd: cmd, group: group}, nil
}

func (o *osStarter) startError(c Command, path string, err error) error {
	reason, permanent := explainStart(path, err)
	return &StartError{Command: c.Name, Reason: reason, Permanent: permanent, Err: err}
}

// causeOf is the system's word without the operation and the path around it.
func causeOf(err error) error {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Err
	}
	return err
}

// getenv finds the last of equal keys, as the child will.
func getenv(env []string, key string, sameKey func(a, b string) bool) string {
	for i := len(env) - 1; i >= 0; i-- {
		if k, v, ok := strings.Cut(env[i], "="); ok && sameKey(k, key) {
			return v
		}
	}
	return ""
}

// notFound says which folders were searched.
func notFound(c Command, path string) error {
	hint := "install it, give its full path, or set PATH in the env of the server"
	reason := fmt.Sprintf("the command %q was not found in PATH (%s); %s", c.Name, path, hint)
	if path == "" {
		reason = fmt.Sprintf("the command %q was not found: the PATH of the server is empty; %s", c.Name, hint)
	}
	return &StartError{Command: c.Name, Permanent: true, Err: exec.ErrNotFound, Reason: reason}
}

func exitOf(state *os.ProcessState) Exit {
	e := Exit{Code: -1}
	if state != nil {
		e.Code = state.ExitCode()
		e.Signal = signalOf(state)
	}
	return e
}
