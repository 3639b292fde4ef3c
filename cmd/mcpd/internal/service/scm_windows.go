package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
	"unsafe"

	"github.com/kardianos/service"
	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"
)

// DefaultAccount is who a machine-wide service runs as where nobody else is
// named: an account with next to no rights that needs no password.
const DefaultAccount = `NT AUTHORITY\LocalService`

// waitStep is how often a service is asked whether it has come to a state.
const waitStep = 100 * time.Millisecond

// startTimeout is how long the daemon may take to serve; its servers may take
// longer.
const startTimeout = time.Minute

// stopTimeout bounds the wait for a service to stop; it is the daemon's
// drain_timeout and more.
const stopTimeout = 2 * time.Minute

// scm drives the service manager of Windows through kardianos/service, with
// what that leaves out: recovery after each kind of failure, waiting with an
// end, changing what is installed.
type scm struct{}

func newSCM() (Manager, error) { return scm{}, nil }

func (scm) Name() string       { return "Windows services" }
func (scm) HoldsSockets() bool { return false }

func (scm) arguments(d Definition) []string {
	return []string{
		"service", "run", "--scm", "--config", d.ConfigPath, "--state-dir", d.StateDir, "--log-file", windowsLogFile(d),
	}
}

func (m scm) service(d Definition) (service.Service, error) {
	return service.New(nothing{}, &service.Config{
		Name: Name, DisplayName: "mcpd", Description: description,
		UserName: d.User, Executable: d.Executable, Arguments: m.arguments(d),
	})
}

// open opens the service; nil where there is none.
func (scm) open() (*mgr.Mgr, *mgr.Service, error) {
	m, err := mgr.Connect()
	if err != nil {
		if errors.Is(err, windows.ERROR_ACCESS_DENIED) {
			return nil, nil, &Error{errors.New("only administrators may do this"), "run it in a terminal that was started as administrator"}
		}
		return nil, nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	s, err := m.OpenService(Name)
	if errors.Is(err, windows.ERROR_SERVICE_DOES_NOT_EXIST) {
		return m, nil, nil
	}
	if err != nil {
		_ = m.Disconnect()
		return nil, nil, fmt.Errorf("cannot open the service: %w", err)
	}
	return m, s, nil
}

// with runs fn on the installed service.
func (m scm) with(fn func(*mgr.Service) error) error {
	manager, s, err := m.open()
	if err != nil {
		return err
	}
	defer func() { _ = manager.Disconnect() }()
	if s == nil {
		return notInstalled()
	}
	defer func() { _ = s.Close() }()
	return fn(s)
}

func (m scm) Install(ctx context.Context, d Definition) (_ Outcome, err error) {
	if d.User == "" {
		d.User = DefaultAccount
	}
	if err := d.Check(); err != nil {
		return Outcome{}, err
	}
	manager, s, err := m.open()
	if err != nil {
		return Outcome{}, err
	}
	defer func() { _ = manager.Disconnect() }()
	if s != nil {
		defer func() { _ = s.Close() }()
		return m.change(s, d)
	}
	k, err := m.service(d)
	if err != nil {
		return Outcome{}, err
	}
	if err := k.Install(); err != nil {
		return Outcome{}, fmt.Errorf("cannot install the service: %w", err)
	}
	undo := func(ctx context.Context) error {
		_, err := m.Uninstall(ctx)
		return err
	}
	if err := m.with(setRecovery); err != nil {
		return Outcome{}, errors.Join(err, undo(context.WithoutCancel(ctx)))
	}
	return Outcome{Changed: true, Files: []string{"service " + Name}, Undo: undo}, nil
}

// change makes an installed service what d says.
func (m scm) change(s *mgr.Service, d Definition) (Outcome, error) {
	before, err := settingsOf(s)
	if err != nil {
		return Outcome{}, err
	}
	want := settings{windowsArgs(append([]string{d.Executable}, m.arguments(d)...)...), mgr.StartAutomatic}
	if want == before {
		return Outcome{}, setRecovery(s)
	}
	if err := set(s, want); err != nil {
		return Outcome{}, err
	}
	undo := func(context.Context) error {
		return m.with(func(s *mgr.Service) error { return set(s, before) })
	}
	if err := setRecovery(s); err != nil {
		return Outcome{}, errors.Join(err, set(s, before))
	}
	return Outcome{Changed: true, Files: []string{"service " + Name}, Undo: undo}, nil
}

// settings are those of a service that Install decides. The account is the
// administrator's to change, and stays.
type settings struct {
	command string
	start   uint32
}

// settingsOf asks for these only: mgr.Service.Config asks for much else that
// not every service manager knows.
func settingsOf(s *mgr.Service) (settings, error) {
	size := uint32(1024)
	for {
		buf := make([]byte, size)
		c := (*windows.QUERY_SERVICE_CONFIG)(unsafe.Pointer(&buf[0])) //nolint:gosec // the API wants it
		err := windows.QueryServiceConfig(s.Handle, c, size, &size)
		if errors.Is(err, windows.ERROR_INSUFFICIENT_BUFFER) && int(size) > len(buf) {
			continue
		}
		if err != nil {
			return settings{}, fmt.Errorf("cannot read the service's settings: %w", err)
		}
		return settings{windows.UTF16PtrToString(c.BinaryPathName), c.StartType}, nil
	}
}

func set(s *mgr.Service, to settings) error {
	command, err := windows.UTF16PtrFromString(to.command)
	if err == nil {
		err = windows.ChangeServiceConfig(s.Handle, windows.SERVICE_NO_CHANGE, to.start, windows.SERVICE_NO_CHANGE,
			command, nil, nil, nil, nil, nil, nil)
	}
	if err != nil {
		return fmt.Errorf("cannot change the service: %w", err)
	}
	return nil
}

// setRecovery restarts the service within seconds, less and less eagerly, and
// forgets failures after ten good minutes.
func setRecovery(s *mgr.Service) error {
	actions := []mgr.RecoveryAction{
		{Type: mgr.ServiceRestart, Delay: 2 * time.Second},
		{Type: mgr.ServiceRestart, Delay: 10 * time.Second},
		{Type: mgr.ServiceRestart, Delay: time.Minute},
	}
	if err := s.SetRecoveryActions(actions, 600); err != nil && !unsupported(err) {
		return fmt.Errorf("cannot set what happens when the service fails: %w", err)
	}
	// Also where it ends with an exit code rather than by a crash.
	if err := s.SetRecoveryActionsOnNonCrashFailures(true); err != nil && !unsupported(err) {
		return fmt.Errorf("cannot set what happens when the service fails: %w", err)
	}
	return nil
}

// unsupported says that this service manager knows no recovery, as Wine's.
func unsupported(err error) bool {
	return errors.Is(err, windows.ERROR_INVALID_LEVEL) || errors.Is(err, windows.ERROR_CALL_NOT_IMPLEMENTED)
}

func (m scm) Uninstall(ctx context.Context) (Outcome, error) {
	err := m.with(func(s *mgr.Service) error { return stopAndWait(ctx, s) })
	if errors.Is(err, ErrNotInstalled) {
		return Outcome{}, nil
	}
	if err != nil {
		return Outcome{}, err
	}
	k, err := m.service(Definition{})
	if err != nil {
		return Outcome{}, err
	}
	if err := k.Uninstall(); err != nil {
		return Outcome{}, fmt.Errorf("cannot remove the service: %w", err)
	}
	return Outcome{Changed: true, Files: []string{"service " + Name}}, nil
}

func (m scm) Start(ctx context.Context) error {
	return m.with(func(s *mgr.Service) error {
		st, err := s.Query()
		if err != nil {
			return fmt.Errorf("cannot ask about the service: %w", err)
		}
		if st.State == svc.Running {
			return nil
		}
		if err := start(ctx, s); err != nil && !errors.Is(err, windows.ERROR_SERVICE_ALREADY_RUNNING) {
			return &Error{fmt.Errorf("the service does not start: %w", err), "see its log: " + logOf(s)}
		}
		return wait(ctx, s, svc.Running)
	})
}

// start starts a service. While another one is being started, as when the
// machine has just come up, the manager refuses; that passes.
func start(ctx context.Context, s *mgr.Service) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(waitStep)
	defer tick.Stop()
	for {
		err := s.Start()
		if !errors.Is(err, windows.ERROR_SERVICE_DATABASE_LOCKED) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

func (m scm) Stop(ctx context.Context) error {
	return m.with(func(s *mgr.Service) error { return stopAndWait(ctx, s) })
}

func (m scm) Restart(ctx context.Context) error {
	if err := m.Stop(ctx); err != nil {
		return err
	}
	return m.Start(ctx)
}

func stopAndWait(ctx context.Context, s *mgr.Service) error {
	st, err := s.Query()
	if err != nil {
		return fmt.Errorf("cannot ask about the service: %w", err)
	}
	if st.State == svc.Stopped {
		return nil
	}
	if _, err := s.Control(svc.Stop); err != nil && !errors.Is(err, windows.ERROR_SERVICE_NOT_ACTIVE) {
		return fmt.Errorf("cannot stop the service: %w", err)
	}
	return wait(ctx, s, svc.Stopped)
}

// wait waits until the service is in a state, and not past the end of ctx.
func wait(ctx context.Context, s *mgr.Service, want svc.State) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	tick := time.NewTicker(waitStep)
	defer tick.Stop()
	for {
		st, err := s.Query()
		switch {
		case err != nil:
			return fmt.Errorf("cannot ask about the service: %w", err)
		case st.State == want:
			return nil
		case want == svc.Running && st.State == svc.Stopped:
			return &Error{fmt.Errorf("the service stopped again at once (%s)", exitOf(st)), "see its log: " + logOf(s)}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the service did not come to rest: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// logOf is the log file that the service's command line names.
func logOf(s *mgr.Service) string {
	c, err := settingsOf(s)
	if err != nil {
		return "not known"
	}
	_, file, _ := strings.Cut(c.command, "--log-file ")
	return file
}

func exitOf(st svc.Status) string {
	if st.Win32ExitCode == uint32(windows.ERROR_SERVICE_SPECIFIC_ERROR) {
		return fmt.Sprintf("exit code %d", st.ServiceSpecificExitCode)
	}
	return fmt.Sprintf("exit code %d", st.Win32ExitCode)
}

func (m scm) Status(context.Context) (Status, error) {
	st := Status{Manager: m.Name(), File: "service " + Name}
	err := m.with(func(s *mgr.Service) error {
		c, err := settingsOf(s)
		if err != nil {
			return err
		}
		q, err := s.Query()
		if err != nil {
			return fmt.Errorf("cannot ask about the service: %w", err)
		}
		st.Enabled = c.start == mgr.StartAutomatic
		st.PID = int(q.ProcessId)
		st.Log = "Get-Content -Tail 20 -Wait " + logOf(s)
		switch q.State {
		case svc.Running, svc.Paused, svc.PausePending, svc.ContinuePending:
			st.State = Running
		case svc.StartPending:
			st.State = Starting
		case svc.StopPending:
			st.State = Stopping
		default:
			st.State, st.PID, st.Hint = Stopped, 0, "start it with: mcpd service start --system"
			if q.Win32ExitCode != 0 && q.Win32ExitCode != uint32(windows.ERROR_SERVICE_NEVER_STARTED) {
				st.State = Failed
				st.Detail = "it ended by itself (" + exitOf(q) + ")"
				st.Hint = "see why: " + st.Log + "; then: mcpd service start --system"
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, ErrNotInstalled):
		return Status{Manager: m.Name(), State: NotInstalled, Detail: err.Error(), Hint: "install it with: mcpd service install --system"}, nil
	case errors.Is(err, ErrUnreachable):
		return Status{Manager: m.Name(), State: Unreachable, Detail: err.Error(), Hint: "see whether Windows services can be listed: services.msc"}, nil
	}
	return st, err
}

// RunUnderSCM runs the daemon as a Windows service, which the service manager
// has started this process for. main runs until its context ends, calls the
// function when it is ready, and returns the exit code.
func RunUnderSCM(ctx context.Context, main func(context.Context, func()) int) (int, error) {
	h := &handler{ctx: ctx, main: main}
	if err := svc.Run(Name, h); err != nil {
		return 1, &Error{
			fmt.Errorf("this process was not started by the service manager: %w", err),
			"start the service with: mcpd service start --system",
		}
	}
	return h.code, nil
}

type handler struct {
	ctx  context.Context //nolint:containedctx // svc.Handler has no room for one
	main func(context.Context, func()) int
	code int
}

func (h *handler) Execute(_ []string, requests <-chan svc.ChangeRequest, changes chan<- svc.Status) (bool, uint32) {
	ctx, cancel := context.WithCancel(h.ctx)
	defer cancel()
	ended := make(chan int, 1)
	ready := make(chan struct{}, 1)
	changes <- svc.Status{State: svc.StartPending, Accepts: svc.AcceptStop | svc.AcceptShutdown, WaitHint: uint32(startTimeout.Milliseconds())}
	go func() { ended <- h.main(ctx, func() { ready <- struct{}{} }) }()
	for {
		select {
		case <-ready:
			changes <- svc.Status{State: svc.Running, Accepts: svc.AcceptStop | svc.AcceptShutdown}
		case h.code = <-ended:
			changes <- svc.Status{State: svc.StopPending}
			// The service manager restarts a service that ends with an error.
			return h.code != 0, uint32(h.code) //nolint:gosec // exit codes are small
		case r := <-requests:
			switch r.Cmd {
			case svc.Interrogate:
				changes <- r.CurrentStatus
			case svc.Stop, svc.Shutdown:
				changes <- svc.Status{State: svc.StopPending, WaitHint: uint32(stopTimeout.Milliseconds())}
				cancel()
			}
		}
	}
}

// MakeMachineDir makes the folder of a machine-wide service: for administrators
// to write, and for the service's account. One that is there already must belong
// to an administrator: any user can make a folder in ProgramData, and what is in
// this one is run.
func MakeMachineDir(path string) error {
	if d, err := windows.GetNamedSecurityInfo(path, windows.SE_FILE_OBJECT, windows.OWNER_SECURITY_INFORMATION); err == nil {
		owner, _, err := d.Owner()
		if err != nil {
			return fmt.Errorf("cannot tell who owns %s: %w", path, err)
		}
		for _, known := range []windows.WELL_KNOWN_SID_TYPE{windows.WinBuiltinAdministratorsSid, windows.WinLocalSystemSid} {
			if owner.IsWellKnown(known) {
				return nil
			}
		}
		u, err := windows.GetCurrentProcessToken().GetTokenUser()
		if err != nil {
			return fmt.Errorf("cannot find out who you are: %w", err)
		}
		if owner.Equals(u.User.Sid) {
			return nil
		}
		return &Error{
			fmt.Errorf("%s is there already and belongs to %s, who is no administrator", path, owner),
			"look into it, then remove it",
		}
	}
	// Protected: what ProgramData grants to all users is not inherited.
	d, err := windows.SecurityDescriptorFromString("D:P(A;OICI;FA;;;BA)(A;OICI;FA;;;SY)(A;OICI;FA;;;CO)(A;OICI;0x1301bf;;;LS)")
	if err != nil {
		return fmt.Errorf("service: %w", err)
	}
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return fmt.Errorf("service: %w", err)
	}
	sa := windows.SecurityAttributes{SecurityDescriptor: d}
	sa.Length = uint32(unsafe.Sizeof(sa))
	if err := windows.CreateDirectory(name, &sa); err != nil {
		return fmt.Errorf("cannot make %s: %w", path, err)
	}
	return nil
}

// ProgramData is where the files of a machine-wide service are.
func ProgramData() string {
	if dir := os.Getenv("ProgramData"); dir != "" {
		return dir
	}
	return `C:\ProgramData`
}
