package service

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/kardianos/service"
)

// initSystem drives what kardianos/service knows and has no driver here: OpenRC,
// System V, Upstart, procd, the rc of BSD systems. They keep no port and tell no
// crash loop from a service that runs.
type initSystem struct{ system service.System }

func newInit() (Manager, error) {
	s := service.ChosenSystem()
	if s == nil {
		return nil, &Error{fmt.Errorf("no service manager is known on this system (%s)", runtime.GOOS), "use: mcpd run"}
	}
	return initSystem{s}, nil
}

func (m initSystem) Name() string       { return m.system.String() }
func (m initSystem) HoldsSockets() bool { return false }

func (m initSystem) service(d Definition) (service.Service, error) {
	return m.system.New(nothing{}, &service.Config{
		Name: Name, DisplayName: Name, Description: description, UserName: d.User, Executable: d.Executable,
		Arguments: []string{"service", "run", "--config", d.ConfigPath, "--state-dir", d.StateDir, "--log-file", d.LogFile()},
	})
}

func (m initSystem) Install(ctx context.Context, d Definition) (Outcome, error) {
	if err := d.Check(); err != nil {
		return Outcome{}, err
	}
	s, err := m.service(d)
	if err != nil {
		return Outcome{}, err
	}
	undo := func(context.Context) error { return s.Uninstall() }
	if _, err := s.Status(); !errors.Is(err, service.ErrNotInstalled) && err == nil {
		return Outcome{}, nil
	}
	if err := s.Install(); err != nil {
		return Outcome{}, errors.Join(fmt.Errorf("cannot install the service: %w", err), undo(ctx))
	}
	return Outcome{Changed: true, Undo: undo}, nil
}

func (m initSystem) Uninstall(ctx context.Context) (Outcome, error) {
	st, err := m.Status(ctx)
	if err != nil || st.State == NotInstalled {
		return Outcome{}, err
	}
	s, err := m.service(Definition{})
	if err != nil {
		return Outcome{}, err
	}
	if st.State == Running {
		if err := s.Stop(); err != nil {
			return Outcome{}, fmt.Errorf("cannot stop the service: %w", err)
		}
	}
	if err := s.Uninstall(); err != nil {
		return Outcome{}, fmt.Errorf("cannot remove the service: %w", err)
	}
	return Outcome{Changed: true}, nil
}

func (m initSystem) do(ctx context.Context, want State, act func(service.Service) error) error {
	st, err := m.Status(ctx)
	switch {
	case err != nil:
		return err
	case st.State == NotInstalled:
		return notInstalled()
	case st.State == want:
		return nil
	}
	s, err := m.service(Definition{})
	if err != nil {
		return err
	}
	return act(s)
}

func (m initSystem) Start(ctx context.Context) error {
	return m.do(ctx, Running, service.Service.Start)
}

func (m initSystem) Stop(ctx context.Context) error {
	return m.do(ctx, Stopped, service.Service.Stop)
}

func (m initSystem) Restart(ctx context.Context) error {
	return m.do(ctx, "", service.Service.Restart)
}

func (m initSystem) Status(context.Context) (Status, error) {
	st := Status{Manager: m.Name()}
	s, err := m.service(Definition{})
	if err != nil {
		return st, err
	}
	state, err := s.Status()
	switch {
	case errors.Is(err, service.ErrNotInstalled):
		st.State, st.Detail, st.Hint = NotInstalled, ErrNotInstalled.Error(), "install it with: mcpd service install --system"
		return st, nil
	case err != nil:
		return st, fmt.Errorf("cannot ask the service manager: %w", err)
	}
	st.Enabled = true
	if state == service.StatusRunning {
		st.State = Running
	} else {
		st.State, st.Hint = Stopped, "start it with: mcpd service start --system"
	}
	return st, nil
}
