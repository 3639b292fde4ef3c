package service

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"
)

// task drives a user's scheduled task at logon: Windows has no services of a
// user, and this needs no password.
type task struct {
	run  Runner
	user string
	temp string // where the task's file is put for schtasks to read
}

func newTask(o Options) *task { return &task{run: o.Run, user: o.Username, temp: os.TempDir()} }

func (t *task) Name() string       { return "Task Scheduler" }
func (t *task) HoldsSockets() bool { return false }

// path names the task in its folder of the scheduler. Other users of the
// machine have their own.
func (t *task) path() string {
	return `\` + Name + `\` + strings.NewReplacer(`\`, "-", "/", "-", ":", "-").Replace(t.user)
}

func (t *task) schtasks(ctx context.Context, args ...string) (string, error) {
	return t.run(ctx, "schtasks", args...)
}

// exported is the task as the scheduler has it, "" where there is none.
// schtasks words its errors in the language of the system, but its code for a
// task that is not there is always 1, as for all else: so the list is asked.
func (t *task) exported(ctx context.Context) (string, error) {
	out, err := t.schtasks(ctx, "/query", "/tn", t.path(), "/xml")
	if err == nil {
		return out, nil
	}
	list, lerr := t.schtasks(ctx, "/query", "/fo", "csv", "/nh")
	switch {
	case lerr != nil:
		return "", fmt.Errorf("%w: %w", ErrUnreachable, lerr)
	case strings.Contains(list, `"`+t.path()+`"`):
		return "", err
	}
	return "", nil
}

func (t *task) Install(ctx context.Context, d Definition) (Outcome, error) {
	if err := d.Check(); err != nil {
		return Outcome{}, err
	}
	if d.system() {
		return Outcome{}, errors.New("service: a task is a user's own")
	}
	before, err := t.exported(ctx)
	if err != nil {
		return Outcome{}, err
	}
	want := renderTask(d, t.user)
	if sameTask(before, string(want)) {
		return Outcome{}, nil
	}
	undo := func(ctx context.Context) error {
		if before == "" {
			_, err := t.schtasks(ctx, "/delete", "/tn", t.path(), "/f")
			return err
		}
		return t.create(ctx, []byte(before))
	}
	// One step, which the scheduler does or does not do.
	if err := t.create(ctx, want); err != nil {
		return Outcome{}, err
	}
	return Outcome{Changed: true, Files: []string{"task " + t.path()}, Undo: undo}, nil
}

func (t *task) create(ctx context.Context, text []byte) (err error) {
	dir, err := os.MkdirTemp(t.temp, "mcpd-task-*")
	if err != nil {
		return fmt.Errorf("cannot write the task for the scheduler: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "task.xml")
	if err := os.WriteFile(file, utf16File(text), 0o600); err != nil {
		return fmt.Errorf("cannot write the task for the scheduler: %w", err)
	}
	_, err = t.schtasks(ctx, "/create", "/tn", t.path(), "/xml", file, "/f")
	return err
}

// sameTask compares what matters of a task: the scheduler adds to what it is
// given, and orders it anew.
func sameTask(have, want string) bool {
	for _, element := range []string{"Command", "Arguments", "LogonType", "ExecutionTimeLimit", "Interval"} {
		if inside(have, element) != inside(want, element) || inside(want, element) == "" {
			return false
		}
	}
	return true
}

func inside(text, element string) string {
	_, rest, ok := strings.Cut(text, "<"+element+">")
	if !ok {
		return ""
	}
	value, _, ok := strings.Cut(rest, "</"+element+">")
	if !ok {
		return ""
	}
	return html.UnescapeString(value) // which knows what XML does
}

func (t *task) Uninstall(ctx context.Context) (Outcome, error) {
	before, err := t.exported(ctx)
	if err != nil || before == "" {
		return Outcome{}, err
	}
	if err := t.Stop(ctx); err != nil {
		return Outcome{}, err
	}
	if _, err := t.schtasks(ctx, "/delete", "/tn", t.path(), "/f"); err != nil {
		return Outcome{}, err
	}
	return Outcome{Changed: true, Files: []string{"task " + t.path()}}, nil
}

func (t *task) Start(ctx context.Context) error {
	st, err := t.Status(ctx)
	switch {
	case err != nil:
		return err
	case st.State == NotInstalled:
		return notInstalled()
	case st.State == Unreachable:
		return &Error{fmt.Errorf("%w: %s", ErrUnreachable, st.Detail), st.Hint}
	case st.State == Running:
		return nil
	}
	_, err = t.schtasks(ctx, "/run", "/tn", t.path())
	return err
}

func (t *task) Stop(ctx context.Context) error {
	st, err := t.Status(ctx)
	switch {
	case err != nil:
		return err
	case st.State == NotInstalled:
		return notInstalled()
	case st.State != Running:
		return nil
	}
	_, err = t.schtasks(ctx, "/end", "/tn", t.path())
	return err
}

func (t *task) Restart(ctx context.Context) error {
	if err := t.Stop(ctx); err != nil {
		return err
	}
	return t.Start(ctx)
}

func (t *task) Status(ctx context.Context) (Status, error) {
	st := Status{Manager: t.Name()}
	text, err := t.exported(ctx)
	switch {
	case errors.Is(err, ErrUnreachable):
		st.State, st.Detail, st.Hint = Unreachable, err.Error(), "see whether the service Task Scheduler (Schedule) runs"
		return st, nil
	case err != nil:
		return st, err
	case text == "":
		st.State, st.Detail, st.Hint = NotInstalled, ErrNotInstalled.Error(), "install it with: mcpd service install"
		return st, nil
	}
	st.File = "task " + t.path()
	st.Enabled = !strings.Contains(inside(text, "Settings"), "<Enabled>false</Enabled>") && !strings.Contains(inside(text, "LogonTrigger"), "<Enabled>false</Enabled>")
	if _, log, ok := strings.Cut(inside(text, "Arguments"), "--log-file "); ok {
		st.Log = "Get-Content -Tail 20 -Wait " + log
	}
	// State and last result are the only columns asked for whose values do not
	// depend on the language of the system: PowerShell names states in English.
	out, err := t.run(ctx, "powershell", "-NoProfile", "-NonInteractive", "-Command",
		"$t = Get-ScheduledTask -TaskPath '\\"+Name+"\\' -TaskName '"+strings.ReplaceAll(filepath.Base(strings.ReplaceAll(t.path(), `\`, "/")), "'", "''")+"'; "+
			"$i = $t | Get-ScheduledTaskInfo; '{0},{1}' -f [int]$t.State, $i.LastTaskResult")
	if err != nil {
		return st, err
	}
	row, err := csv.NewReader(strings.NewReader(out)).Read()
	if err != nil || len(row) != 2 {
		return st, fmt.Errorf("cannot understand the Task Scheduler: %q", out)
	}
	const stateDisabled, stateQueued, stateReady, stateRunning = "1", "2", "3", "4"
	const hasNotRun = "267011" // SCHED_S_TASK_HAS_NOT_RUN
	switch row[0] {
	case stateRunning:
		st.State = Running
	case stateQueued:
		st.State = Starting
	case stateDisabled:
		st.State, st.Enabled, st.Hint = Stopped, false, "it is disabled; mcpd service install enables it"
	case stateReady:
		st.State, st.Hint = Stopped, "start it with: mcpd service start"
		// 0x41306 is a task that was ended by /end.
		if r := row[1]; r != "0" && r != hasNotRun && r != "267014" {
			st.State = Failed
			st.Detail = "it ended by itself (exit code " + r + ")"
			st.Hint = "see why: " + st.Log + "; then: mcpd service start"
		}
	default:
		return st, fmt.Errorf("cannot understand the Task Scheduler: state %q", row[0])
	}
	return st, nil
}
