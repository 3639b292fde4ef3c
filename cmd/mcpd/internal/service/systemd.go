package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// registrar makes a unit known to systemd: writes it and enables it, or
// disables it and removes it. Each reloads the manager.
type registrar func(unit string) (registration, error)

type registration interface {
	Install() error
	Uninstall() error
}

// systemd drives a systemd manager, the user's or the machine's. The service
// unit is registered by kardianos/service; the socket unit, the order of things
// and what is asked are ours.
type systemd struct {
	run      Runner
	register registrar
	system   bool
	uid      int
	dir      string // where units are put
	linger   string // the folder that names users whose services outlive their sessions
}

const (
	unitFile   = Name + ".service"
	socketFile = Name + ".socket"
)

func newSystemd(o Options, register registrar) *systemd {
	s := &systemd{run: o.Run, register: register, system: o.System, uid: o.UID, linger: "/var/lib/systemd/linger"}
	s.dir = "/etc/systemd/system"
	if !o.System {
		s.dir = filepath.Join(o.Home, ".config", "systemd", "user")
	}
	return s
}

func (s *systemd) Name() string {
	if s.system {
		return "systemd"
	}
	return "systemd (user)"
}

func (s *systemd) HoldsSockets() bool { return true }

func (s *systemd) unitPath() string   { return filepath.Join(s.dir, unitFile) }
func (s *systemd) socketPath() string { return filepath.Join(s.dir, socketFile) }

// systemctl asks the manager. A manager that cannot be reached is an *Error
// that wraps ErrUnreachable.
func (s *systemd) systemctl(ctx context.Context, args ...string) (string, error) {
	if !s.system {
		args = append([]string{"--user"}, args...)
	}
	out, err := s.run(ctx, "systemctl", append([]string{"--no-pager", "--no-ask-password"}, args...)...)
	if text := strings.ToLower(said(err)); err != nil &&
		(strings.Contains(text, "failed to connect to") || strings.Contains(text, "not been booted with systemd")) {
		return out, s.unreachable(said(err))
	}
	if text := said(err); s.system && (strings.Contains(text, "authentication required") || strings.Contains(text, "Access denied")) {
		return out, &Error{err, "run it as root: sudo mcpd service …"}
	}
	return out, err
}

func (s *systemd) unreachable(words string) error {
	words = strings.TrimSpace(words)
	if s.system {
		return &Error{fmt.Errorf("%w: systemd does not run here: %s", ErrUnreachable, words), "use: mcpd run"}
	}
	return &Error{
		fmt.Errorf("%w: no systemd of this user runs, or XDG_RUNTIME_DIR does not lead to it: %s", ErrUnreachable, words),
		fmt.Sprintf("log in as this user (not with su or sudo), or keep its services running without a session: "+
			"sudo loginctl enable-linger %d; then: export XDG_RUNTIME_DIR=/run/user/%d", s.uid, s.uid),
	}
}

// reach fails before anything is changed where the manager cannot be reached.
func (s *systemd) reach(ctx context.Context) error {
	_, err := s.systemctl(ctx, "show", "--property=Version")
	return err
}

func (s *systemd) Install(ctx context.Context, d Definition) (_ Outcome, err error) {
	if err := d.Check(); err != nil {
		return Outcome{}, err
	}
	if d.system() != s.system {
		return Outcome{}, errors.New("service: a machine-wide service needs a user, and only that one does")
	}
	if err := s.reach(ctx); err != nil {
		return Outcome{}, err
	}
	unit, err := snapshot(s.unitPath())
	if err != nil {
		return Outcome{}, err
	}
	socket, err := snapshot(s.socketPath())
	if err != nil {
		return Outcome{}, err
	}
	for _, c := range []fileChange{unit, socket} {
		if c.before != nil && !strings.Contains(string(c.before), marker) {
			return Outcome{}, &Error{
				fmt.Errorf("%s is there already and was not written by mcpd", c.path),
				"move it away, then install again",
			}
		}
	}
	before, err := s.query(ctx)
	if err != nil {
		return Outcome{}, err
	}
	newUnit, newSocket := renderUnit(d), renderSocket(d)
	sameSocket := newSocket == nil && socket.before == nil || newSocket != nil && socket.holds(newSocket)
	if unit.holds(newUnit) && sameSocket && before.enabled && (newSocket == nil || before.socketEnabled) {
		return Outcome{Notes: s.notes()}, nil
	}

	undo := func(ctx context.Context) error { return s.putBack(ctx, unit, socket, before) }
	defer func() {
		if err != nil {
			if uerr := undo(context.WithoutCancel(ctx)); uerr != nil {
				err = errors.Join(err, fmt.Errorf("putting back what was there failed: %w", uerr))
			}
		}
	}()
	out := Outcome{Changed: true, Files: []string{s.unitPath()}, Notes: s.notes(), Undo: undo}
	if newSocket == nil {
		if err := s.dropSocket(ctx, socket.before != nil); err != nil {
			return Outcome{}, err
		}
	} else {
		out.Files = append(out.Files, s.socketPath())
		if err := write(s.socketPath(), newSocket, 0o644); err != nil {
			return Outcome{}, err
		}
	}
	// kardianos/service refuses to write over a unit.
	if err := remove(s.unitPath()); err != nil {
		return Outcome{}, err
	}
	r, err := s.register(string(newUnit))
	if err != nil {
		return Outcome{}, fmt.Errorf("cannot register the service: %w", err)
	}
	if err := r.Install(); err != nil {
		return Outcome{}, s.explain(ctx, err, "enable", unitFile)
	}
	if newSocket != nil {
		if _, err := s.systemctl(ctx, "enable", socketFile); err != nil {
			return Outcome{}, err
		}
	}
	return out, nil
}

// explain finds the words for a failure that kardianos/service reports without
// any, by asking once more.
func (s *systemd) explain(ctx context.Context, err error, args ...string) error {
	if _, again := s.systemctl(ctx, args...); again != nil {
		return again
	}
	return fmt.Errorf("cannot register the service: %w", err)
}

// putBack restores the units from before.
func (s *systemd) putBack(ctx context.Context, unit, socket fileChange, before unitState) error {
	var errs []error
	if unit.before == nil {
		// Whatever of it is enabled; it need not be.
		_, _ = s.systemctl(ctx, "disable", unitFile)
	}
	if socket.before == nil {
		_, _ = s.systemctl(ctx, "disable", socketFile)
	}
	errs = append(errs, unit.undo(), socket.undo())
	_, err := s.systemctl(ctx, "daemon-reload")
	errs = append(errs, err)
	for file, was := range map[string]bool{unitFile: before.enabled, socketFile: before.socketEnabled} {
		if was {
			_, err := s.systemctl(ctx, "enable", file)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (s *systemd) dropSocket(ctx context.Context, there bool) error {
	if !there {
		return nil
	}
	if _, err := s.systemctl(ctx, "disable", "--now", socketFile); err != nil {
		return err
	}
	return remove(s.socketPath())
}

func (s *systemd) notes() []string {
	if s.system {
		return nil
	}
	if on, known := s.lingers(); known && !on {
		return []string{"it runs while you are logged in; to have it from the start of the machine on: sudo loginctl enable-linger " + strconv.Itoa(s.uid)}
	}
	return nil
}

// lingers says whether the user's services run without a session.
func (s *systemd) lingers() (on, known bool) {
	if s.system {
		return false, false
	}
	name, err := userName(s.uid)
	if err != nil {
		return false, false
	}
	_, err = os.Stat(filepath.Join(s.linger, name))
	return err == nil, err == nil || errors.Is(err, os.ErrNotExist)
}

func (s *systemd) Uninstall(ctx context.Context) (Outcome, error) {
	if err := s.reach(ctx); err != nil {
		if errors.Is(err, ErrUnreachable) && !s.system && !s.managerRuns() {
			return s.uninstallOffline(err)
		}
		return Outcome{}, err
	}
	st, err := s.query(ctx)
	if err != nil {
		return Outcome{}, err
	}
	unit, err := snapshot(s.unitPath())
	if err != nil {
		return Outcome{}, err
	}
	socket, err := snapshot(s.socketPath())
	if err != nil {
		return Outcome{}, err
	}
	if unit.before == nil && socket.before == nil && !st.found() {
		return Outcome{}, nil
	}
	out := Outcome{Changed: true}
	if err := s.stop(ctx, st); err != nil {
		return Outcome{}, err
	}
	if err := s.dropSocket(ctx, socket.before != nil); err != nil {
		return Outcome{}, err
	}
	if socket.before != nil {
		out.Files = append(out.Files, s.socketPath())
	}
	switch {
	case unit.before != nil:
		r, err := s.register(string(unit.before))
		if err != nil {
			return out, fmt.Errorf("cannot take the service out: %w", err)
		}
		if err := r.Uninstall(); err != nil {
			return out, s.explain(ctx, err, "disable", unitFile)
		}
		out.Files = append(out.Files, s.unitPath())
	case st.enabled: // the package's own unit
		if _, err := s.systemctl(ctx, "disable", unitFile); err != nil {
			return out, err
		}
	}
	if _, err := s.systemctl(ctx, "daemon-reload"); err != nil {
		return out, err
	}
	_, _ = s.systemctl(ctx, "reset-failed", unitFile, socketFile) // there may be nothing to forget
	return out, nil
}

func (s *systemd) Start(ctx context.Context) error {
	st, err := s.installed(ctx)
	if err != nil {
		return err
	}
	if st.active == "active" {
		return nil
	}
	// A start limit that was hit is forgiven: a person wants it started.
	_, _ = s.systemctl(ctx, "reset-failed", unitFile, socketFile)
	if _, err := s.systemctl(ctx, "start", unitFile); err != nil {
		return s.failedToStart(ctx, err)
	}
	after, err := s.query(ctx)
	if err == nil && after.active != "active" && !after.condition {
		return &Error{
			fmt.Errorf("systemd did not start it: the program that %s names is not there", after.path),
			"mcpd service install writes the unit for this program",
		}
	}
	return err
}

func (s *systemd) Stop(ctx context.Context) error {
	st, err := s.installed(ctx)
	if err != nil {
		return err
	}
	return s.stop(ctx, st)
}

// stop stops the socket with the service: otherwise the next client would start
// the service again.
func (s *systemd) stop(ctx context.Context, st unitState) error {
	units := []string{unitFile}
	if st.socketFound {
		units = append(units, socketFile)
	}
	_, err := s.systemctl(ctx, append([]string{"stop"}, units...)...)
	return err
}

func (s *systemd) Restart(ctx context.Context) error {
	st, err := s.installed(ctx)
	if err != nil {
		return err
	}
	if st.active != "active" {
		return s.Start(ctx)
	}
	if _, err := s.systemctl(ctx, "restart", unitFile); err != nil {
		return s.failedToStart(ctx, err)
	}
	return nil
}

// failedToStart adds what the daemon said last.
func (s *systemd) failedToStart(ctx context.Context, err error) error {
	if errors.Is(err, ErrUnreachable) {
		return err
	}
	text := "the service does not start"
	if st, qerr := s.query(ctx); qerr == nil && st.result != "" && st.result != "success" {
		text += " (" + st.result + ")"
	}
	tail, jerr := s.run(ctx, "journalctl", append(s.journal(), "--lines=3", "--output=cat", "--no-pager", "--quiet")...)
	if tail = strings.TrimSpace(tail); jerr == nil && tail != "" {
		text += "; it said last:\n" + tail
	}
	return &Error{fmt.Errorf("%s", text), "see: " + s.logCommand()}
}

func (s *systemd) journal() []string {
	if s.system {
		return []string{"--unit=" + Name}
	}
	return []string{"--user", "--user-unit=" + Name}
}

func (s *systemd) logCommand() string {
	if s.system {
		return "journalctl -u " + Name
	}
	return "journalctl --user -u " + Name
}

func (s *systemd) installed(ctx context.Context) (unitState, error) {
	if err := s.reach(ctx); err != nil {
		return unitState{}, err
	}
	st, err := s.query(ctx)
	if err == nil && !st.found() {
		err = notInstalled()
	}
	return st, err
}

// unitState is what systemd knows about the two units.
type unitState struct {
	load, active, sub, result    string
	enabled                      bool
	condition                    bool // what has to hold before a start did at the last one
	pid, restarts, exitCode      int
	since, path, statusText      string
	socketFound, socketEnabled   bool
	socketActive                 string
	socket                       []string
	socketResult, sourceOutdated string
}

// found says whether there is a service. A unit that lies in a package for
// everybody, and that nobody asked for, is none.
func (u unitState) found() bool {
	packaged := strings.HasPrefix(u.path, "/usr/") || strings.HasPrefix(u.path, "/lib/")
	unasked := packaged && !u.enabled && u.active == "inactive"
	return u.load != "" && u.load != "not-found" && !unasked
}

func (s *systemd) query(ctx context.Context) (unitState, error) {
	text, err := s.systemctl(ctx, "show", unitFile, "--property=LoadState,ActiveState,SubState,Result,UnitFileState,"+
		"ConditionResult,MainPID,NRestarts,ExecMainStatus,StateChangeTimestamp,FragmentPath,StatusText,NeedDaemonReload")
	if err != nil {
		return unitState{}, err
	}
	v := properties(text)
	st := unitState{
		load: v.one("LoadState"), active: v.one("ActiveState"), sub: v.one("SubState"), result: v.one("Result"),
		enabled: strings.HasPrefix(v.one("UnitFileState"), "enabled"), condition: v.one("ConditionResult") != "no",
		pid: v.number("MainPID"), restarts: v.number("NRestarts"), exitCode: v.number("ExecMainStatus"),
		since: v.one("StateChangeTimestamp"), path: v.one("FragmentPath"), statusText: v.one("StatusText"),
		sourceOutdated: v.one("NeedDaemonReload"),
	}
	text, err = s.systemctl(ctx, "show", socketFile, "--property=LoadState,ActiveState,UnitFileState,Listen,Result")
	if err != nil {
		return unitState{}, err
	}
	v = properties(text)
	st.socketFound = v.one("LoadState") != "" && v.one("LoadState") != "not-found"
	st.socketEnabled = strings.HasPrefix(v.one("UnitFileState"), "enabled")
	st.socketActive, st.socketResult = v.one("ActiveState"), v.one("Result")
	for _, l := range v["Listen"] {
		addr, _, _ := strings.Cut(l, " ")
		st.socket = append(st.socket, addr)
	}
	slices.Sort(st.socket)
	return st, nil
}

// values are properties as systemctl show prints them; some come more than once.
type values map[string][]string

func properties(text string) values {
	v := values{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimRight(line, "\n"), "="); ok {
			v[key] = append(v[key], value)
		}
	}
	return v
}

func (v values) one(key string) string {
	if len(v[key]) == 0 {
		return ""
	}
	return v[key][0]
}

func (v values) number(key string) int {
	n, err := strconv.Atoi(v.one(key))
	if err != nil {
		return 0
	}
	return n
}

func (s *systemd) Status(ctx context.Context) (Status, error) {
	st := Status{Manager: s.Name(), Log: s.logCommand()}
	if err := s.reach(ctx); errors.Is(err, ErrUnreachable) {
		var e *Error
		errors.As(err, &e)
		st.State, st.Detail, st.Hint, st.Log = Unreachable, e.Error(), e.Hint(), ""
		return st, nil
	} else if err != nil {
		return st, err
	}
	u, err := s.query(ctx)
	if err != nil {
		return st, err
	}
	if on, known := s.lingers(); known {
		st.Linger = &on
	}
	return describe(st, u), nil
}

// describe says what systemd's words mean to the person.
func describe(st Status, u unitState) Status {
	if !u.found() {
		st.State, st.Detail, st.Hint, st.Log = NotInstalled, ErrNotInstalled.Error(), "install it with: mcpd service install", ""
		st.Linger = nil
		return st
	}
	st.File, st.Enabled, st.Restarts, st.Since = u.path, u.enabled, u.restarts, u.since
	st.Socket, st.Held = u.socket, u.socketActive == "active"
	switch u.active {
	case "active", "reloading":
		st.State, st.PID, st.Detail = Running, u.pid, u.statusText
		if u.sourceOutdated == "yes" {
			st.Hint = "its unit has changed; take the change over with: mcpd service restart"
		}
	case "activating":
		st.State, st.PID = Starting, u.pid
		if u.sub == "auto-restart" {
			st.State = Restarting
			st.Detail = "it ended by itself (" + ended(u) + ") and is started again in a moment"
			st.Hint = "see why: " + st.Log
		}
	case "deactivating":
		st.State, st.PID = Stopping, u.pid
	case "failed":
		st.State = Failed
		// It would be restarted, were it not for the limit.
		st.Detail = "it ended by itself (" + ended(u) + ") too often, so systemd has given up on it"
		st.Hint = "see why: " + st.Log + "; then: mcpd service start"
	default:
		st.State = Stopped
		st.Hint = "start it with: mcpd service start"
		if !u.condition {
			st.Detail = "the program that its unit names is not there"
			st.Hint = "mcpd service install writes the unit for this program; mcpd service uninstall removes it"
		}
	}
	if u.socketActive == "failed" && u.socketResult != "service-start-limit-hit" {
		st.Detail = strings.TrimPrefix(st.Detail+"; systemd does not hold its port ("+u.socketResult+")", "; ")
		if st.Hint == "" {
			st.Hint = "another program may have the port; then: mcpd service stop, mcpd service start"
		}
	}
	return st
}

func ended(u unitState) string {
	if u.result == "exit-code" {
		return "exit code " + strconv.Itoa(u.exitCode)
	}
	return u.result
}
