package supervisor

import (
	"fmt"
	"time"
)

// State is where a server is in its life.
type State string

// The states of a server.
const (
	StateStopped  State = "stopped"  // no child, none on its way
	StateStarting State = "starting" // a child is being started or does its handshake
	StateReady    State = "ready"    // a session can be had
	StateBackoff  State = "backoff"  // the child died, the next start is at NextTry
	StateFailed   State = "failed"   // it died too often, or cannot be executed at all
	StateDraining State = "draining" // the child takes no new calls and is on its way out
)

// Status is a snapshot of a server.
type Status struct {
	State State
	// Since is when State was entered.
	Since time.Time
	// PID of the current child; 0 when there is none.
	PID int
	// Incarnation of the current child; 0 when there is none.
	Incarnation uint64
	// StartedAt is when the current child was started; zero when there is none.
	StartedAt time.Time
	// Restarts counts the starts after the first one.
	Restarts int
	// LastExit is how the latest child ended; nil when none has.
	LastExit *Exit
	// LastError is why there is no session, or the last thing that went wrong; empty when ready again after a start.
	LastError string
	// StderrTail holds the last lines of stderr of the latest children, oldest first.
	StderrTail []string
	// Installing is true while a command line that never came up before is starting: it may be downloading.
	Installing bool
	// NextTry is when the next start is due in backoff and failed; zero when none is planned.
	NextTry time.Time
	// OnDemand is true where the next start waits for a demand: lazy or idle-stopped servers, and failed lazy ones
	// after NextTry.
	OnDemand bool
	// Held is true after Stop: demands do not start it, only Start, Restart.
	Held bool
	// Replacing is true while a new child is being brought up beside the old one.
	Replacing bool
	// ReplaceError is why the last Replace left the old child in place; empty after one that worked.
	ReplaceError string
	// Retiring counts old children that still finish what was in flight.
	Retiring int
}

// Exit is how one child ended.
type Exit struct {
	// Code is the exit code; -1 when it was ended by a signal or never ran.
	Code int
	// Signal is the name of the signal that ended it, such as "killed"; empty when none did.
	Signal string
	// At is when the end was seen.
	At time.Time
	// Reason is a sentence for the person: why it ended as far as mcpd knows.
	Reason string
	// Stderr holds the last lines it wrote to stderr, oldest first.
	Stderr []string
	// PID it had; 0 when it never ran.
	PID int
}

// String says how it ended in a few words: "exit code 1", "signal: killed".
func (e Exit) String() string {
	switch {
	case e.Signal != "":
		return "signal: " + e.Signal
	case e.Code >= 0:
		return fmt.Sprintf("exit code %d", e.Code)
	default:
		return "did not run"
	}
}
