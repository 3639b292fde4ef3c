// Package doctor looks for the troubles that people usually have with mcpd and
// says how to mend each.
//
// It repairs nothing: it changes no file of the person, leaves no process
// running, and makes no folder. It shows names and paths and never the value of a variable, an
// argument or a token.
package doctor

import (
	"context"
	"log/slog"
	"time"

	"mcpd/cmd/mcpd/internal/control"
	"mcpd/cmd/mcpd/internal/daemon"
	"mcpd/cmd/mcpd/internal/instance"
	"mcpd/cmd/mcpd/internal/service"
	"mcpd/config"
)

// Result is the outcome of one check.
type Result string

// The outcomes.
const (
	OK      Result = "ok"
	Note    Result = "note"    // worth knowing; nothing has to be done
	Trouble Result = "trouble" // something does not work, or is not safe
	Skipped Result = "skipped" // it could not be looked at, or has no meaning here
)

// Finding is what one check found.
type Finding struct {
	Check   string `json:"check"`
	Result  Result `json:"result"`
	Summary string `json:"summary"` // one line
	// Details are given for trouble, and rarely else.
	Details []string `json:"details,omitempty"`
	// Mend says what to do, one way or step a line.
	Mend []string `json:"mend,omitempty"`
}

// Options are what there is to look at.
type Options struct {
	ConfigPath, StateDir string // absolute; they need not exist
	Version              string // of mcpd
	Environment          config.Environment
	// Environ is the environment of this process, KEY=VALUE.
	Environ []string
	// LoginEnvironment finds out the environment of the login shell.
	LoginEnvironment daemon.LoginEnvironment
	// Status asks the running daemon.
	Status func(context.Context) (control.Status, error)
	// Service asks the service manager about mcpd; nil where it is not to be.
	Service func(context.Context) (service.Status, error)
	// ServerTimeout bounds the handshake of one server. Zero starts none.
	ServerTimeout time.Duration
}

// doctor is one examination. What a check finds out, later ones use.
type doctor struct {
	Options
	emit func(Finding)

	config  *config.Config // nil where there is none, or it has errors
	running bool           // a daemon runs with this state folder
	info    instance.Info
	status  *control.Status // of the running daemon; nil where it gave none
	trial   *daemon.Trial   // knows the environment of servers
	held    []string        // addresses that the service manager holds for mcpd
	broken  map[string]bool // servers whose command cannot be run
}

// Run makes all checks, one after the other, and gives each finding to emit as
// soon as it is there. It stops when ctx ends.
func Run(ctx context.Context, o Options, emit func(Finding)) error {
	d := &doctor{Options: o, emit: emit, broken: make(map[string]bool)}
	for _, check := range []func(context.Context){
		d.checkConfig, d.checkConfigFile, d.checkReferencedFiles, d.checkState, d.checkDisk, d.checkClock,
		d.checkDaemon, d.checkService, d.checkPort, d.checkOrigins,
		d.checkShell, d.checkPrograms, d.checkServers,
	} {
		if err := ctx.Err(); err != nil {
			return err
		}
		check(ctx)
	}
	return ctx.Err()
}

func (d *doctor) ok(check, summary string) {
	d.emit(Finding{Check: check, Result: OK, Summary: summary})
}

func (d *doctor) skip(check, why string) {
	d.emit(Finding{Check: check, Result: Skipped, Summary: why})
}

func (d *doctor) trouble(check, summary string, details, mend []string) {
	d.emit(Finding{Check: check, Result: Trouble, Summary: summary, Details: details, Mend: mend})
}

func (d *doctor) note(check, summary string, mend ...string) {
	d.emit(Finding{Check: check, Result: Note, Summary: summary, Mend: mend})
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
