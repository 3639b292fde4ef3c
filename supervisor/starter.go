package supervisor

import "io"

// Starter starts operating system processes. The real one is NewStarter; tests give one that starts in-memory children.
type Starter interface {
	Start(c Command) (Process, error)
}

// Command is what to execute.
type Command struct {
	// Name is a path, or a name to look up in the PATH of Env.
	Name string
	Args []string
	Env  []string
	Dir  string
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
	// to ask.
	Terminate() error
	// Kill ends the process and its descendants without asking.
	Kill() error
}

// StartError says why a command could not be executed.
type StartError struct {
	// Command as configured.
	Command string
	// Reason is a sentence for the person.
	Reason string
	// Permanent is true where another try will not help before something changes: no such file, no permission.
	Permanent bool
	Err       error
}

func (e *StartError) Error() string { return e.Reason }

// Unwrap gives the system's error.
func (e *StartError) Unwrap() error { return e.Err }
