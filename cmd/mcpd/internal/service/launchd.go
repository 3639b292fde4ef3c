package service

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// launchd drives launchd: an agent in the user's graphical session, or a daemon
// of the machine.
type launchd struct {
	run    Runner
	system bool
	uid    int
	dir    string // where plists are put
}

func newLaunchd(o Options) *launchd {
	l := &launchd{run: o.Run, system: o.System, uid: o.UID, dir: "/Library/LaunchDaemons"}
	if !o.System {
		l.dir = filepath.Join(o.Home, "Library", "LaunchAgents")
	}
	return l
}

func (l *launchd) domain() string {
	if l.system {
		return "system"
	}
	return "gui/" + strconv.Itoa(l.uid)
}

func (l *launchd) target() string { return l.domain() + "/" + Label }
func (l *launchd) path() string   { return filepath.Join(l.dir, Label+".plist") }

func (l *launchd) Name() string       { return "launchd (" + l.domain() + ")" }
func (l *launchd) HoldsSockets() bool { return true }

// Exit codes of launchctl, which are those of launchd's errors.
const (
	launchdNoSuchProcess = 3   // not loaded (ESRCH)
	launchdNotFound      = 113 // no such service
	launchdNoDomain      = 125 // the domain does not exist: no graphical session
)

func (l *launchd) launchctl(ctx context.Context, args ...string) (string, error) {
	out, err := l.run(ctx, "launchctl", args...)
	if err == nil {
		return out, nil
	}
	text := said(err)
	if exitCode(err) == launchdNoDomain || strings.Contains(text, "Domain does not support specified action") ||
		strings.Contains(text, "Could not find domain") {
		return out, &Error{
			fmt.Errorf("%w: there is no graphical session of this user (%s): %s", ErrUnreachable, l.domain(), text),
			"log in at the screen, or install it for the machine: sudo mcpd service install --system --user NAME",
		}
	}
	if l.system && strings.Contains(text, "Operation not permitted") {
		return out, &Error{err, "run it as root: sudo mcpd service …"}
	}
	return out, err
}

// loaded asks launchd about the job; nil where it is not loaded.
func (l *launchd) loaded(ctx context.Context) (*job, error) {
	out, err := l.launchctl(ctx, "print", l.target())
	if err != nil {
		if c := exitCode(err); !errors.Is(err, ErrUnreachable) && (c == launchdNotFound || c == launchdNoSuchProcess) {
			return nil, nil
		}
		return nil, err
	}
	j := parseJob(out)
	return &j, nil
}

func (l *launchd) Install(ctx context.Context, d Definition) (Outcome, error) {
	if err := d.Check(); err != nil {
		return Outcome{}, err
	}
	if d.system() != l.system {
		return Outcome{}, errors.New("service: a machine-wide service needs a user, and only that one does")
	}
	before, err := snapshot(l.path())
	if err != nil {
		return Outcome{}, err
	}
	if before.before != nil && !strings.Contains(string(before.before), marker) {
		return Outcome{}, &Error{
			fmt.Errorf("%s is there already and was not written by mcpd", before.path), "move it away, then install again",
		}
	}
	j, err := l.loaded(ctx)
	if err != nil {
		return Outcome{}, err
	}
	plist := renderPlist(d)
	if before.holds(plist) {
		// It may have been disabled by hand.
		_, err := l.launchctl(ctx, "enable", l.target())
		return Outcome{}, err
	}
	undo := func(ctx context.Context) error {
		_, berr := l.bootout(ctx)
		errs := []error{berr, before.undo()}
		if j != nil && before.before != nil {
			_, err := l.launchctl(ctx, "bootstrap", l.domain(), l.path())
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
	// launchd does not make the folder of a log.
	if !l.system {
		if err := os.MkdirAll(filepath.Dir(bootLog(d)), 0o700); err != nil {
			return Outcome{}, fmt.Errorf("cannot make the folder of the log: %w", err)
		}
	}
	fail := func(err error) (Outcome, error) {
		if uerr := undo(context.WithoutCancel(ctx)); uerr != nil {
			err = errors.Join(err, fmt.Errorf("putting back what was there failed: %w", uerr))
		}
		return Outcome{}, err
	}
	if err := write(l.path(), plist, 0o644); err != nil {
		return fail(err)
	}
	if _, err := l.launchctl(ctx, "enable", l.target()); err != nil {
		return fail(err)
	}
	// What is loaded and waits would be started as the old plist says.
	if j != nil && j.pid == 0 {
		if _, err := l.bootout(ctx); err != nil {
			return fail(err)
		}
	}
	return Outcome{Changed: true, Files: []string{l.path()}, Undo: undo}, nil
}

// bootout stops the job and makes launchd forget it. It says whether there was
// one.
func (l *launchd) bootout(ctx context.Context) (bool, error) {
	_, err := l.launchctl(ctx, "bootout", l.target())
	if c := exitCode(err); c == launchdNoSuchProcess || c == launchdNotFound {
		return false, nil
	}
	return err == nil, err
}

func (l *launchd) Uninstall(ctx context.Context) (Outcome, error) {
	before, err := snapshot(l.path())
	if err != nil {
		return Outcome{}, err
	}
	was, err := l.bootout(ctx)
	if err != nil {
		return Outcome{}, err
	}
	if before.before == nil {
		return Outcome{Changed: was}, nil
	}
	if err := remove(l.path()); err != nil {
		return Outcome{}, err
	}
	return Outcome{Changed: true, Files: []string{l.path()}}, nil
}

func (l *launchd) Start(ctx context.Context) error {
	j, err := l.installed(ctx)
	switch {
	case err != nil:
		return err
	case j == nil: // RunAtLoad starts it
		_, err = l.launchctl(ctx, "bootstrap", l.domain(), l.path())
	case j.pid == 0:
		_, err = l.launchctl(ctx, "kickstart", l.target())
	}
	return err
}

// Stop unloads the job: loaded it would be started at once by the next who
// asks. At the next login it is loaded again.
func (l *launchd) Stop(ctx context.Context) error {
	if _, err := l.installed(ctx); err != nil {
		return err
	}
	_, err := l.bootout(ctx)
	return err
}

func (l *launchd) Restart(ctx context.Context) error {
	// launchd reads a plist when it is loaded, so a changed one needs this.
	if _, err := l.installed(ctx); err != nil {
		return err
	}
	if _, err := l.bootout(ctx); err != nil {
		return err
	}
	_, err := l.launchctl(ctx, "bootstrap", l.domain(), l.path())
	return err
}

func (l *launchd) installed(ctx context.Context) (*job, error) {
	if _, err := os.Stat(l.path()); errors.Is(err, os.ErrNotExist) {
		return nil, notInstalled()
	} else if err != nil {
		return nil, fmt.Errorf("cannot look at %s: %w", l.path(), err)
	}
	return l.loaded(ctx)
}

func (l *launchd) Status(ctx context.Context) (Status, error) {
	st := Status{Manager: l.Name()}
	plist, err := snapshot(l.path())
	if err != nil {
		return st, err
	}
	j, err := l.loaded(ctx)
	switch {
	case errors.Is(err, ErrUnreachable):
		var e *Error
		errors.As(err, &e)
		st.State, st.Detail, st.Hint = Unreachable, e.Error(), e.Hint()
		return st, nil
	case err != nil:
		return st, err
	case plist.before == nil && j == nil:
		st.State, st.Detail, st.Hint = NotInstalled, ErrNotInstalled.Error(), "install it with: mcpd service install"
		return st, nil
	}
	st.File, st.Log = l.path(), logOfPlist(plist.before)
	// launchd holds the sockets of what is loaded.
	st.Socket = socketsOfPlist(plist.before)
	st.Held = j != nil && len(st.Socket) > 0
	off, err := l.disabled(ctx)
	if err != nil {
		return st, err
	}
	st.Enabled = plist.before != nil && !off
	switch {
	case j == nil:
		st.State, st.Hint = Stopped, "start it with: mcpd service start"
	case j.pid != 0:
		st.State, st.PID, st.Restarts = Running, j.pid, max(0, j.runs-1)
	case j.exit != "" && j.exit != "0" && j.exit != "(never exited)":
		st.State, st.Restarts = Restarting, max(0, j.runs-1)
		st.Detail = "it ended by itself (" + j.exit + ") and is started again in a moment"
		st.Hint = "see why: " + st.Log
	default:
		st.State, st.Hint = Stopped, "start it with: mcpd service start"
	}
	return st, nil
}

// disabled says whether launchd has been told not to load the job.
func (l *launchd) disabled(ctx context.Context) (bool, error) {
	out, err := l.launchctl(ctx, "print-disabled", l.domain())
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(out) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " => "); ok && name == `"`+Label+`"` {
			return value == "true" || value == "disabled", nil
		}
	}
	return false, nil
}

func logOfPlist(plist []byte) string {
	m := regexp.MustCompile(`--log-file</string>\s*<string>([^<]*)</string>`).FindSubmatch(plist)
	if m == nil {
		return ""
	}
	return `tail -f "` + html.UnescapeString(string(m[1])) + `"` // it knows what XML does
}

// socketsOfPlist are the addresses that launchd is to hold.
func socketsOfPlist(plist []byte) []string {
	var list []string
	for _, m := range regexp.MustCompile(`SockNodeName</key>\s*<string>([^<]*)</string>\s*<key>SockServiceName</key>\s*<string>([^<]*)</string>`).
		FindAllSubmatch(plist, -1) {
		list = append(list, net.JoinHostPort(string(m[1]), string(m[2])))
	}
	return list
}

// job is what `launchctl print` tells about a loaded job.
type job struct {
	state     string
	pid, runs int
	exit      string // last exit code, as launchd words it
}

// parseJob reads the top level of launchctl's print; deeper blocks describe
// other things with the same keys.
func parseJob(text string) job {
	var j job
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "\t\t") {
			continue
		}
		key, value, ok := strings.Cut(strings.TrimSpace(line), " = ")
		if !ok {
			continue
		}
		switch key {
		case "state":
			j.state = value
		case "pid":
			j.pid, _ = strconv.Atoi(value) //nolint:errcheck // 0 is no process
		case "runs":
			j.runs, _ = strconv.Atoi(value) //nolint:errcheck // 0 is unknown
		case "last exit code":
			j.exit = value
		}
	}
	return j
}
