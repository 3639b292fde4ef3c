package service

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"unicode"
)

// Name is what the service is called by systemd and by Windows.
const Name = "mcpd"

// Label is what launchd calls the service.
const Label = "dev.mcpd.mcpd"

const description = "mcpd: one daemon for all local MCP servers"

// Definition is what is to run, and how. Every path is absolute.
type Definition struct {
	Executable string
	ConfigPath string
	StateDir   string
	// User is who a machine-wide service runs as; empty for a user's own.
	User string
	// Home is the home folder of the user that the service runs as.
	Home string
	// Listen are the addresses that the service manager should hold for the
	// daemon, where it can. Empty means that the daemon opens them itself.
	Listen []netip.AddrPort
	// AllowSetuid leaves out every hardening that keeps programs that the
	// servers start from gaining rights: sudo, snap, setuid sandboxes.
	AllowSetuid bool
}

// system says whether the service is the machine's.
func (d Definition) system() bool { return d.User != "" }

// LogFile is where the daemon's log goes where the service manager keeps none.
func (d Definition) LogFile() string { return filepath.Join(d.StateDir, "logs", "mcpd.log") }

// Check says whether every service manager can be given the definition. Their
// files know no way to write a line break, and the meaning of braces and
// percent signs differs.
func (d Definition) Check() error {
	for what, path := range map[string]string{
		"the program": d.Executable, "the config file": d.ConfigPath, "the state folder": d.StateDir,
	} {
		switch {
		case path == "":
			return fmt.Errorf("service: it is not known where %s is", what)
		case !isAbsolute(path):
			return fmt.Errorf("service: the path of %s is not absolute: %q", what, path)
		}
	}
	for _, v := range []string{d.Executable, d.ConfigPath, d.StateDir, d.User, d.Home} {
		if strings.ContainsFunc(v, unicode.IsControl) || strings.Contains(v, "{{") {
			return fmt.Errorf("service: a service manager cannot be given %q; choose a name without control characters and double braces", v)
		}
	}
	for _, a := range d.Listen {
		if !a.IsValid() || a.Port() == 0 || !a.Addr().IsLoopback() {
			return fmt.Errorf("service: %s cannot be held for the daemon: it is not a loopback address with a port", a)
		}
	}
	return nil
}

// isAbsolute is filepath.IsAbs for the paths of every system: what is rendered
// need not be for the one that renders.
func isAbsolute(path string) bool {
	drive := len(path) > 2 && path[1] == ':' && (path[2] == '\\' || path[2] == '/')
	return strings.HasPrefix(path, "/") || strings.HasPrefix(path, `\\`) || drive
}

// State is how the service is.
type State string

// States of a service.
const (
	Running      State = "running"
	Starting     State = "starting"
	Restarting   State = "restarting" // it ended by itself and is about to be started again
	Stopping     State = "stopping"
	Stopped      State = "stopped" // installed, and not wanted now
	Failed       State = "failed"  // and the service manager has given up on it
	NotInstalled State = "not installed"
	Unreachable  State = "unreachable" // the service manager cannot be asked
)

// Status describes the service.
type Status struct {
	State   State  `json:"state"`
	Manager string `json:"manager"`        // systemd (user), launchd (gui/501), …
	File    string `json:"file,omitempty"` // the unit, plist or task
	// Enabled says whether it starts by itself, at login or with the machine.
	Enabled  bool   `json:"enabled"`
	PID      int    `json:"pid,omitempty"`
	Restarts int    `json:"restarts"` // since it was started, by the service manager
	Since    string `json:"since,omitempty"`
	// Socket are the addresses that the service manager is to hold for the
	// daemon, and Held whether it does.
	Socket []string `json:"socket,omitempty"`
	Held   bool     `json:"held,omitempty"`
	// Linger says whether a user's service runs without a session; nil where
	// that is no question.
	Linger *bool `json:"linger,omitempty"`
	// Detail says more about the state, for the person.
	Detail string `json:"detail,omitempty"`
	// Hint says what to do, where there is something.
	Hint string `json:"hint,omitempty"`
	// Log is how to read the daemon's log.
	Log string `json:"log,omitempty"`
}

// Error is a failure with what to do about it.
type Error struct {
	Err  error
	hint string
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Hint says what to do.
func (e *Error) Hint() string { return e.hint }

// ErrNotInstalled says that there is no service to do something with.
var ErrNotInstalled = errors.New("the mcpd service is not installed")

// ErrUnreachable says that the service manager cannot be asked.
var ErrUnreachable = errors.New("the service manager cannot be reached")

func notInstalled() error {
	return &Error{ErrNotInstalled, "install it with: mcpd service install"}
}
