package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"mcpd/cmd/mcpd/internal/instance"
	"mcpd/cmd/mcpd/internal/service"
	"mcpd/config"
)

// serviceFlags say whose service is meant.
type serviceFlags struct {
	system bool
	user   string
}

func (a *app) serviceCommand() *cobra.Command {
	return a.group(
		&cobra.Command{
			Use:   "service",
			Short: "Run mcpd in the background, from login on",
			Long: `Have the system run mcpd in the background: systemd, launchd or the Windows Task
Scheduler starts it when you log in, and again when it crashes. It is yours
alone and needs no administrator.

With --system it is one of the machine, started with it, and runs as the user
that --user names. That needs root, or an administrator's terminal on Windows.`,
			Example: `  mcpd service install
  mcpd service status
  mcpd service restart                    after an update of mcpd
  mcpd service uninstall`,
		},
		a.serviceInstallCommand(), a.serviceUninstallCommand(),
		a.serviceStartCommand(), a.serviceStopCommand(), a.serviceRestartCommand(),
		a.serviceStatusCommand(), a.serviceRunCommand(),
	)
}

// serviceVerb makes one of the commands that act on the service.
func (a *app) serviceVerb(cmd *cobra.Command, act func(context.Context, service.Manager, serviceFlags) error) *cobra.Command {
	var f serviceFlags
	cmd.Args = usage(cobra.NoArgs)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.user != "" && !f.system {
			return usageError{errors.New("--user is for a service of the machine"), "say --system too, or run the command as that user"}
		}
		m, err := a.serviceManager(f)
		if err != nil {
			return err
		}
		ctx, stop := interruptible(cmd)
		defer stop()
		return act(ctx, m, f)
	}
	cmd.Flags().BoolVar(&f.system, "system", false, "the service of the machine, not yours")
	if cmd.Name() == "install" || cmd.Name() == "restart" {
		cmd.Flags().StringVar(&f.user, "user", "", "who the service of the machine runs as: the `NAME` of an account")
	}
	return a.jsonFlag(cmd)
}

func (a *app) serviceManager(f serviceFlags) (service.Manager, error) {
	o := service.Options{System: f.system, Home: a.env.Home, UID: os.Getuid()}
	if runtime.GOOS == "windows" && !f.system {
		u, err := user.Current()
		if err != nil {
			return nil, fmt.Errorf("cannot find out who you are: %w", err)
		}
		o.Username = u.Username
	}
	return service.New(o)
}

// serviceReport is what the commands that change the service print as JSON.
type serviceReport struct {
	Changed bool           `json:"changed"`
	Files   []string       `json:"files,omitempty"` // written or removed
	Notes   []string       `json:"notes,omitempty"`
	Status  service.Status `json:"status"`
}

func (a *app) serviceInstallCommand() *cobra.Command {
	var noStart, allowSetuid bool
	cmd := a.serviceVerb(&cobra.Command{
		Use:   "install",
		Short: "Install mcpd as a background service and start it",
		Long: `Install mcpd as a background service that starts when you log in, and start it
now. Where there is no config file yet, an example is written. Doing it again
changes what is installed to what is said now: another program file, other
paths, another port. Where anything fails, all is left as it was.

systemd and launchd also hold mcpd's port, so that no other program can take it
while mcpd is down.`,
		Example: `  mcpd service install
  mcpd service install --no-start
  sudo mcpd service install --system --user ada`,
	}, func(ctx context.Context, m service.Manager, f serviceFlags) error {
		before, err := m.Status(ctx)
		if err != nil {
			return err
		}
		if before.State == service.Unreachable {
			return hinted{errors.New(before.Detail), before.Hint}
		}
		d, err := a.definition(ctx, m, f, true)
		if err != nil {
			return err
		}
		if allowSetuid {
			d.AllowSetuid = true
		} else if snap := snapPrograms(); snap != "" {
			d.AllowSetuid = true
			_, _ = fmt.Fprintf(a.err, "note: %s has programs that only start with setuid allowed, so the service allows it\n", snap)
		}
		return a.installService(ctx, m, d, before, !noStart)
	})
	cmd.Flags().BoolVar(&noStart, "no-start", false, "install it without starting it")
	cmd.Flags().BoolVar(&allowSetuid, "allow-setuid", false, "let servers start setuid programs (sudo, snap, setuid sandboxes)")
	return cmd
}

// installService installs, and starts what was installed. It leaves things as
// they were where either fails.
func (a *app) installService(ctx context.Context, m service.Manager, d service.Definition, before service.Status, start bool) error {
	if start {
		if err := notInForeground(d.StateDir, before); err != nil {
			return err
		}
	}
	out, err := m.Install(ctx, d)
	if err != nil {
		return err
	}
	if start {
		ran := before.State == service.Running
		err := error(nil)
		if out.Changed && ran {
			err = m.Stop(ctx)
		}
		if err == nil {
			err = m.Start(ctx)
		}
		if err != nil {
			return a.rollBack(ctx, m, out, ran, err)
		}
	}
	return a.reportService(ctx, m, out, map[bool]string{true: "installed", false: "was installed already"}[out.Changed])
}

func (a *app) rollBack(ctx context.Context, m service.Manager, out service.Outcome, ran bool, cause error) error {
	if out.Undo == nil {
		return cause
	}
	ctx = context.WithoutCancel(ctx)
	errs := []error{m.Stop(ctx), out.Undo(ctx)}
	if ran {
		errs = append(errs, m.Start(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		return errors.Join(cause, fmt.Errorf("putting back what was there failed: %w", err))
	}
	hint := "mend that and install again; nothing was changed"
	var h interface{ Hint() string }
	if errors.As(cause, &h) && h.Hint() != "" {
		hint = h.Hint() + "\n" + hint
	}
	return hinted{cause, hint}
}

// notInForeground fails where a daemon that is not the service has the state
// folder: the service would fail, again and again.
func notInForeground(stateDir string, st service.Status) error {
	if st.State != service.NotInstalled && st.State != service.Stopped && st.State != service.Failed {
		return nil
	}
	info, err := instance.Find(stateDir)
	if err != nil {
		return nil //nolint:nilerr // none runs, or it cannot be told: then the service will say
	}
	return hinted{
		fmt.Errorf("mcpd runs already, but not as the service: process %d", info.PID),
		"stop it first (Ctrl-C where it was started, or: kill " + strconv.Itoa(info.PID) + ")",
	}
}

func (a *app) serviceUninstallCommand() *cobra.Command {
	return a.serviceVerb(&cobra.Command{
		Use:   "uninstall",
		Short: "Stop the background service and remove it",
		Long: `Stop the background service and remove what mcpd service install made. The config
file, the token and the logs stay.`,
		Example: "  mcpd service uninstall",
	}, func(ctx context.Context, m service.Manager, _ serviceFlags) error {
		out, err := m.Uninstall(ctx)
		if err != nil {
			return err
		}
		return a.reportService(ctx, m, out, map[bool]string{true: "uninstalled", false: "was not installed"}[out.Changed])
	})
}

func (a *app) serviceStartCommand() *cobra.Command {
	return a.serviceVerb(&cobra.Command{
		Use:     "start",
		Short:   "Start the installed service",
		Long:    "Start the installed service and wait until mcpd is ready. One that runs is left alone.",
		Example: "  mcpd service start",
	}, func(ctx context.Context, m service.Manager, f serviceFlags) error {
		before, err := m.Status(ctx)
		if err != nil {
			return err
		}
		if dir, err := a.stateDir(); err == nil && !f.system && before.State != service.NotInstalled {
			if err := notInForeground(dir, before); err != nil {
				return err
			}
		}
		if d, err := a.movedPort(ctx, m, f, before); d != nil || err != nil {
			if err != nil {
				return err
			}
			return a.installService(ctx, m, *d, before, true)
		}
		if err := m.Start(ctx); err != nil {
			return err
		}
		return a.reportService(ctx, m, service.Outcome{Changed: before.State != service.Running}, "started")
	})
}

func (a *app) serviceStopCommand() *cobra.Command {
	return a.serviceVerb(&cobra.Command{
		Use:   "stop",
		Short: "Stop the service until the next login or start",
		Long: `Stop the service: listen streams end, calls in flight get drain_timeout to
finish, every server is stopped, and the port is free. It stays installed and
starts again at the next login, or with mcpd service start.`,
		Example: "  mcpd service stop",
	}, func(ctx context.Context, m service.Manager, _ serviceFlags) error {
		before, err := m.Status(ctx)
		if err != nil {
			return err
		}
		if err := m.Stop(ctx); err != nil {
			return err
		}
		return a.reportService(ctx, m, service.Outcome{Changed: before.State != service.Stopped}, "stopped")
	})
}

func (a *app) serviceRestartCommand() *cobra.Command {
	return a.serviceVerb(&cobra.Command{
		Use:   "restart",
		Short: "Restart the service, for instance after an update",
		Long: `Stop the service as mcpd service stop does, and start it again: after an update of
mcpd, or for config keys that wait for a restart. Where systemd holds the port,
clients that call meanwhile wait. The config, the token and all state stay.`,
		Example: "  mcpd service restart",
	}, func(ctx context.Context, m service.Manager, f serviceFlags) error {
		before, err := m.Status(ctx)
		if err != nil {
			return err
		}
		if d, err := a.movedPort(ctx, m, f, before); d != nil || err != nil {
			if err != nil {
				return err
			}
			return a.installService(ctx, m, *d, before, true)
		}
		if err := m.Restart(ctx); err != nil {
			return err
		}
		return a.reportService(ctx, m, service.Outcome{Changed: true}, "restarted")
	})
}

// movedPort returns what is to be installed where the config names another port
// than the service manager holds; nil where all is well.
func (a *app) movedPort(ctx context.Context, m service.Manager, f serviceFlags, st service.Status) (*service.Definition, error) {
	if f.system || len(st.Socket) == 0 {
		return nil, nil
	}
	d, err := a.definition(ctx, m, f, false)
	if err != nil || sameAddresses(d.Listen, st.Socket) {
		return nil, err
	}
	return &d, nil
}

func sameAddresses(want []netip.AddrPort, held []string) bool {
	if len(want) != len(held) {
		return false
	}
	for _, h := range held {
		found := false
		for _, w := range want {
			found = found || w.String() == h
		}
		if !found {
			return false
		}
	}
	return true
}

func (a *app) serviceStatusCommand() *cobra.Command {
	return a.serviceVerb(&cobra.Command{
		Use:   "status",
		Short: "Show how the background service is",
		Long: `Show how the background service is: running, starting, restarting after a crash,
stopped, failed, not installed, or unreachable because its manager is; and what
to do. Exit code 0 means that it runs. mcpd status shows the servers.`,
		Example: `  mcpd service status
  mcpd service status --json | jq -r .state`,
	}, func(ctx context.Context, m service.Manager, _ serviceFlags) error {
		st, err := m.Status(ctx)
		if err != nil {
			return err
		}
		if a.json {
			err = a.printJSON(st)
		} else {
			err = a.printService(st)
		}
		if err != nil || st.State == service.Running {
			return err
		}
		what := "the mcpd service is " + string(st.State)
		if st.State == service.Unreachable || st.State == service.NotInstalled {
			what = st.Detail
		} else if st.Detail != "" {
			what += ": " + st.Detail
		}
		return hinted{errors.New(what), st.Hint}
	})
}

func (a *app) printService(st service.Status) error {
	paint := painter(a.out)
	var b strings.Builder
	p := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%s %s\n", paint(faint, pad(name+":", 12)), fmt.Sprintf(format, args...))
	}
	colour := map[service.State]string{
		service.Running: green, service.Failed: red, service.Restarting: red, service.Unreachable: red,
		service.Starting: yellow, service.Stopping: yellow,
	}[st.State]
	state := paint(colour, string(st.State))
	if st.PID != 0 {
		state += fmt.Sprintf(", process %d", st.PID)
	}
	if st.Since != "" && st.State == service.Running {
		state += ", since " + st.Since
	}
	p("service", "%s", state)
	if st.State == service.Running && st.Detail != "" {
		p("", "%s", printable(st.Detail))
	}
	p("manager", "%s", st.Manager)
	if st.File != "" {
		p("file", "%s", st.File)
		p("by itself", "%s", map[bool]string{true: "starts by itself", false: "does not start by itself"}[st.Enabled])
	}
	if st.Restarts > 0 {
		p("restarts", "%d", st.Restarts)
	}
	if len(st.Socket) > 0 {
		p("port", "%s, %s", strings.Join(st.Socket, " and "),
			map[bool]string{true: "held while mcpd is down", false: "not held at present"}[st.Held])
	}
	if st.Log != "" {
		p("log", "%s", st.Log)
	}
	if st.State == service.Running && st.Hint != "" {
		p("to do", "%s", st.Hint)
	}
	_, err := fmt.Fprint(a.out, b.String())
	return err
}

func (a *app) reportService(ctx context.Context, m service.Manager, out service.Outcome, what string) error {
	st, err := m.Status(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(serviceReport{out.Changed, out.Files, out.Notes, st})
	}
	for _, f := range out.Files {
		_, _ = fmt.Fprintf(a.err, "%s %s\n", map[bool]string{true: "removed", false: "wrote"}[what == "uninstalled"], f)
	}
	for _, n := range out.Notes {
		_, _ = fmt.Fprintf(a.err, "note: %s\n", n)
	}
	text := "the mcpd service " + what
	if !strings.HasPrefix(what, "was") {
		text = "the mcpd service is " + what
	}
	if st.State == service.Running || what == "installed" || what == "was installed already" {
		text += ": " + string(st.State)
		if st.PID != 0 {
			text += fmt.Sprintf(", process %d", st.PID)
		}
	}
	_, err = fmt.Fprintln(a.out, text)
	return err
}

// definition says what the service is to run. With create it writes an example
// config where there is none.
func (a *app) definition(ctx context.Context, m service.Manager, f serviceFlags, create bool) (service.Definition, error) {
	var d service.Definition
	var err error
	env := a.env
	if f.system {
		if d.User, env, err = a.systemUser(f.user); err != nil {
			return d, err
		}
	}
	d.Home = env.Home
	if d.Executable, err = installedProgram(); err != nil {
		return d, err
	}
	if d.ConfigPath, err = config.DefaultPath(a.configFlag, env); err != nil {
		return d, err
	}
	if d.StateDir, err = config.StateDir(a.stateFlag, env); err != nil {
		return d, err
	}
	if _, err := os.Stat(d.ConfigPath); errors.Is(err, fs.ErrNotExist) {
		switch {
		case !create:
		case f.system && runtime.GOOS != "windows":
			return d, hinted{
				fmt.Errorf("%s has no config file %s", d.User, d.ConfigPath),
				"write one as that user: sudo -u " + d.User + " -H mcpd init",
			}
		default:
			if err := a.writeExample(ctx, d.ConfigPath, 0); err != nil {
				return d, err
			}
		}
	}
	// A service must not be installed that cannot start.
	c, err := config.Load(d.ConfigPath, env)
	if err != nil {
		return d, err
	}
	if m.HoldsSockets() && c.Daemon.Listen.Port() != 0 {
		d.Listen = held(c.Daemon.Listen)
	}
	return d, nil
}

// held are the addresses that the daemon listens on: with 127.0.0.1 also ::1,
// where the system has that.
func held(addr netip.AddrPort) []netip.AddrPort {
	list := []netip.AddrPort{addr}
	if addr.Addr() != netip.MustParseAddr("127.0.0.1") {
		return list
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return list
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.Equal(net.IPv6loopback) {
			return append(list, netip.AddrPortFrom(netip.IPv6Loopback(), addr.Port()))
		}
	}
	return list
}

// systemUser says who a service of the machine runs as, and what that user's
// environment is as far as paths go.
func (a *app) systemUser(name string) (string, config.Environment, error) {
	if runtime.GOOS == "windows" {
		return windowsServiceUser(name, a.env)
	}
	name = cmp.Or(name, os.Getenv("SUDO_USER"))
	if name == "" || name == "root" {
		return "", a.env, usageError{
			errors.New("it is not said who the service of the machine is to run as"),
			"say --user NAME: a user that is not root, since the servers get that user's rights",
		}
	}
	u, err := user.Lookup(name)
	if err != nil {
		return "", a.env, usageError{fmt.Errorf("there is no user %q: %w", name, err), "say --user NAME"}
	}
	if u.Uid == "0" {
		return "", a.env, usageError{errors.New("the servers must not have all rights of the machine"), "say --user NAME: a user that is not root"}
	}
	env := a.env
	env.Home = u.HomeDir
	env.Getenv = func(string) (string, bool) { return "", false } // the caller's is another
	return u.Username, env, nil
}

// installedProgram is the path of this program that will still be right after
// an update: package managers put a link to the newest version on the PATH.
func installedProgram() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("cannot find out where mcpd itself is: %w", err)
	}
	real, err := filepath.EvalSymlinks(self)
	if err != nil {
		return "", fmt.Errorf("cannot find out where mcpd itself is: %w", err)
	}
	if onPath, err := exec.LookPath("mcpd"); err == nil {
		if abs, err := filepath.Abs(onPath); err == nil {
			if r, err := filepath.EvalSymlinks(abs); err == nil && r == real {
				return abs, nil
			}
		}
	}
	if filepath.Base(filepath.Dir(real)) == "exe" && strings.Contains(real, "go-build") {
		return "", hinted{errors.New("this mcpd was built by go run and is gone in a moment"), "build or install it, then run the command from there"}
	}
	return real, nil
}

// snapPrograms is the folder of programs that snap starts, which needs setuid;
// "" where there are none.
func snapPrograms() string {
	const dir = "/snap/bin"
	if runtime.GOOS != "linux" {
		return ""
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) == 0 {
		return ""
	}
	return dir
}
