package supervisor

import (
	"context"
	"fmt"
	"io"
	"time"
)

// Session is the conversation with one incarnation of a child. The supervisor knows nothing of what is said in it.
type Session interface {
	// Done is closed when the session can carry no more: end of file on stdout, a failed write, or Close.
	Done() <-chan struct{}
	// Err says why the session ended. It is meaningful after Done is closed.
	Err() error
	// Load says what the session carries now. It is called from several goroutines and must not block.
	Load() Load
	// Probe asks the child for a sign of life. It returns nil when the child answered, and obeys ctx.
	Probe(ctx context.Context) error
	// Drain refuses new calls and returns when none is in flight, or with ctx's error. It may be called once.
	Drain(ctx context.Context) error
	// Close fails everything that is pending with cause, releases the pipes and joins the session's goroutines. It is
	// idempotent. When the supervisor calls it, the child is dead and both pipes are closed, so a blocked Read or
	// Write has already returned.
	Close(cause error)
}

// Load is what a session carries at one moment.
type Load struct {
	// Calls in flight. Whether a running probe is counted does not matter.
	Calls int
	// Subscriptions that are open.
	Subscriptions int
	// LastActivity is when something last went over the pipes, in either direction. What goes over them during a probe
	// and in the second after it is taken for the probe's own.
	LastActivity time.Time
}

// Pipes connect a session with one incarnation of a child. Closing either end twice is harmless.
type Pipes struct {
	Stdin  io.WriteCloser
	Stdout io.ReadCloser
	PID    int
	// Incarnation counts the starts of this server, from 1. No two incarnations of one Server share a number.
	Incarnation uint64
	// Junk takes a line of stdout that is no message; it goes to the server's log. It copies what it keeps.
	Junk func(line []byte)
}

// Dialer turns the pipes of a fresh child into a session.
type Dialer[S Session] interface {
	// Dial does the handshake. It returns promptly after ctx ends, which is also when the child died. When it fails it
	// has released everything that it made. An error that errors.As finds to be a *RetryStart asks for a fresh
	// process at once, which is not counted as a crash, at most twice in a row.
	Dial(ctx context.Context, p Pipes) (S, error)
	// Ready says that s is about to become the current session: it is called before any Acquire returns s, by the
	// goroutine that owns the server's life. It must not block and must not call the Server's blocking methods.
	Ready(s S)
}

// RetryStart is the error by which a Dialer asks for a fresh process of the same command at once.
type RetryStart struct {
	// Cause says what made a fresh process necessary.
	Cause error
}

func (e *RetryStart) Error() string { return fmt.Sprintf("a fresh process is needed: %v", e.Cause) }

// Unwrap gives the cause.
func (e *RetryStart) Unwrap() error { return e.Cause }

// UnavailableError says that a server has no session to give, and why.
type UnavailableError struct {
	// Server is the configured name.
	Server string
	// State is the state at the moment of the answer.
	State State
	// Reason is one or more sentences for the person.
	Reason string
	// RetryAfter is when another try can make sense; 0 when unknown.
	RetryAfter time.Duration
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("server %q is not available (%s): %s", e.Server, e.State, e.Reason)
}
