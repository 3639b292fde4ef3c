package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
)

// Manager drives the service manager of the system. Every method is idempotent:
// what is so already is left alone.
type Manager interface {
	// Name names the manager and its scope for the person.
	Name() string
	// Install makes d the service and enables it, without starting it. An
	// installed service is changed to d. On an error nothing has changed.
	Install(ctx context.Context, d Definition) (Outcome, error)
	// Uninstall stops the service and removes what Install made.
	Uninstall(ctx context.Context) (Outcome, error)
	// Start starts the service and waits until it is ready, where the manager
	// can tell.
	Start(ctx context.Context) error
	// Stop stops the service until it is started again or the user logs in.
	Stop(ctx context.Context) error
	Restart(ctx context.Context) error
	// Status describes the service. Failing to reach the manager is a state,
	// not an error.
	Status(ctx context.Context) (Status, error)
	// HoldsSockets says whether Definition.Listen has an effect.
	HoldsSockets() bool
}

// Outcome says what Install or Uninstall did.
type Outcome struct {
	Changed bool
	Files   []string // written or removed
	Notes   []string // that the person should know
	// Undo puts back what was there before; nil where nothing changed.
	Undo func(context.Context) error
}

// Options choose the Manager.
type Options struct {
	System bool // the machine's service, not the user's
	Home   string
	UID    int // of the user; -1 on Windows
	// Username is the account of a user's task on Windows, DOMAIN\NAME.
	Username string
	// Run runs a command of the system; nil is the real thing.
	Run Runner
}

// New returns the Manager of this system.
func New(o Options) (Manager, error) {
	if o.Run == nil {
		o.Run = run
	}
	if o.Home == "" && !o.System {
		return nil, errors.New("the home folder of this user is not known")
	}
	switch {
	case runtime.GOOS == "darwin":
		return newLaunchd(o), nil
	case runtime.GOOS == "windows" && !o.System:
		return newTask(o), nil
	case runtime.GOOS == "windows":
		return newSCM()
	case runtime.GOOS == "linux" && hasSystemd():
		register, err := systemdRegistrar(o.System)
		if err != nil {
			return nil, err
		}
		if !o.System {
			if err := findBus(o.UID); err != nil {
				return nil, err
			}
		}
		return newSystemd(o, register), nil
	}
	return nil, &Error{
		errors.New("this system is not run by systemd, and mcpd knows no other service manager of it"),
		"have your desktop's autostart, or what starts programs here, run as you: mcpd service run --log-file FILE",
	}
}

// hasSystemd says whether systemd runs the system (sd_booted(3)).
func hasSystemd() bool {
	fi, err := os.Lstat("/run/systemd/system")
	return err == nil && fi.IsDir()
}

// findBus helps commands that have lost the variable by which the user's
// systemd is found, as after su or sudo.
func findBus(uid int) error {
	if os.Getenv("XDG_RUNTIME_DIR") != "" || uid < 0 {
		return nil
	}
	dir := fmt.Sprintf("/run/user/%d", uid)
	if _, err := os.Stat(dir + "/systemd/private"); err != nil {
		return nil //nolint:nilerr // then there is nothing to find, and Status says so
	}
	if err := os.Setenv("XDG_RUNTIME_DIR", dir); err != nil {
		return fmt.Errorf("cannot set XDG_RUNTIME_DIR: %w", err)
	}
	return nil
}
