//go:build unix

package service

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const target501 = "gui/501/" + Label

func mac(r *recorder) (*launchd, Definition) {
	l := newLaunchd(Options{Home: r.home(), UID: 501, Run: run})
	d := adaOnMac()
	d.StateDir = filepath.Join(r.home(), "state")
	return l, d
}

// As launchctl says it.
func notLoaded() answer {
	return answer{
		To: []string{"launchctl", "print", target501}, Code: 113,
		Err: "Bad request.\nCould not find service \"" + Label + "\" in domain for user gui: 501\n",
	}
}

func loaded(lines string) answer {
	return answer{To: []string{"launchctl", "print", target501}, Out: target501 + " = {\n\tactive count = 1\n\ttype = LaunchAgent\n" + lines +
		"\tspawn type = interactive (4)\n\tendpoints = {\n\t\tpid = 1\n\t}\n}\n"}
}

func notBooted() answer {
	return answer{To: []string{"launchctl", "bootout", target501}, Code: 3, Err: "Boot-out failed: 3: No such process\n"}
}

func TestLaunchdIsDrivenInItsPresentVerbs(t *testing.T) {
	r := newRecorder(t, notLoaded(), notBooted())
	l, d := mac(r)
	ctx := t.Context()
	want := func(what string, commands ...string) {
		t.Helper()
		if diff := cmp.Diff(commands, r.asked(t)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	out, err := l.Install(ctx, d)
	if err != nil || !out.Changed {
		t.Fatalf("%+v, %v", out, err)
	}
	want("install", "launchctl print "+target501, "launchctl enable "+target501)
	path := filepath.Join(r.home(), "Library/LaunchAgents", Label+".plist")
	if data, err := os.ReadFile(path); err != nil || string(data) != string(renderPlist(d)) {
		t.Errorf("the plist is %s, %v", data, err)
	}
	if fi, err := os.Stat(filepath.Join(d.StateDir, "logs")); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("the folder of the log: %v, %v", fi, err)
	}

	if out, err = l.Install(ctx, d); err != nil || out.Changed {
		t.Errorf("again: %+v, %v", out, err)
	}
	r.asked(t)

	if err := l.Start(ctx); err != nil {
		t.Error(err)
	}
	want("start", "launchctl print "+target501, "launchctl bootstrap gui/501 "+path)

	r.answer(t, loaded("\tstate = running\n\tpid = 4711\n\truns = 2\n\tlast exit code = 1\n"))
	if err := l.Start(ctx); err != nil {
		t.Error(err)
	}
	want("start while it runs", "launchctl print "+target501)
	if err := l.Restart(ctx); err != nil {
		t.Error(err)
	}
	want("restart", "launchctl print "+target501, "launchctl bootout "+target501, "launchctl bootstrap gui/501 "+path)
	if err := l.Stop(ctx); err != nil {
		t.Error(err)
	}
	want("stop", "launchctl print "+target501, "launchctl bootout "+target501)
	if out, err := l.Uninstall(ctx); err != nil || !out.Changed {
		t.Errorf("uninstall: %+v, %v", out, err)
	}
	want("uninstall", "launchctl bootout "+target501)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the plist: %v", err)
	}
	r.answer(t, notLoaded(), notBooted())
	if out, err := l.Uninstall(ctx); err != nil || out.Changed {
		t.Errorf("uninstall again: %+v, %v", out, err)
	}
	for what, verb := range map[string]func() error{
		"start": func() error { return l.Start(ctx) }, "stop": func() error { return l.Stop(ctx) }, "restart": func() error { return l.Restart(ctx) },
	} {
		if err := verb(); !errors.Is(err, ErrNotInstalled) {
			t.Errorf("%s of nothing: %v", what, err)
		}
	}
}

func TestAJobThatWaitsIsNotStartedAsItsOldPlistSays(t *testing.T) {
	r := newRecorder(t, loaded("\tstate = spawn scheduled\n\truns = 3\n\tlast exit code = 1\n"))
	l, d := mac(r)
	old := with(d, func(d *Definition) { d.Listen = addresses("127.0.0.1:7400") })
	if err := write(l.path(), renderPlist(old), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := l.Install(t.Context(), d); err != nil || !out.Changed {
		t.Fatalf("%+v, %v", out, err)
	}
	if got := r.asked(t); got[len(got)-1] != "launchctl bootout "+target501 {
		t.Errorf("launchctl was asked %q", got)
	}
}

func TestAnAgentThatLaunchdRefusesLeavesAllAsItWas(t *testing.T) {
	r := newRecorder(t, notLoaded(), notBooted(), answer{To: []string{"launchctl", "enable"}, Code: 5, Err: "Input/output error\n"})
	l, d := mac(r)
	path := l.path()
	if _, err := l.Install(t.Context(), d); err == nil || !strings.Contains(err.Error(), "Input/output error") {
		t.Errorf("the error is %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the plist is left behind: %v", err)
	}
	// An older installation comes back, running.
	old := d
	old.Executable = "/usr/local/bin/mcpd"
	if err := write(path, renderPlist(old), 0o644); err != nil {
		t.Fatal(err)
	}
	r.answer(t, loaded("\tpid = 3\n"), answer{To: []string{"launchctl", "enable"}, Code: 5, Err: "Input/output error\n"})
	r.asked(t)
	if _, err := l.Install(t.Context(), d); err == nil {
		t.Error("no error")
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != string(renderPlist(old)) {
		t.Errorf("the plist is %s, %v", data, err)
	}
	if got := r.asked(t); got[len(got)-1] != "launchctl bootstrap gui/501 "+path {
		t.Errorf("at last launchctl was asked %q", got)
	}
}

func TestAPlistOfSomebodyElseIsNotWrittenOver(t *testing.T) {
	r := newRecorder(t, notLoaded())
	l, d := mac(r)
	if err := write(l.path(), []byte("<plist/>"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Install(t.Context(), d); err == nil || !strings.Contains(err.Error(), "not written by mcpd") {
		t.Errorf("the error is %v", err)
	}
}

func TestLaunchdsAnswersBecomeStates(t *testing.T) {
	ports := []string{"127.0.0.1:7317", "[::1]:7317"}
	for name, tc := range map[string]struct {
		answers   []answer
		installed bool
		want      Status
	}{
		"running": {
			[]answer{loaded("\tstate = running\n\tpid = 4711\n\truns = 3\n\tlast exit code = 1\n")},
			true,
			Status{State: Running, PID: 4711, Restarts: 2, Enabled: true, Socket: ports, Held: true},
		},
		"waiting to be restarted": {
			[]answer{loaded("\tstate = spawn scheduled\n\truns = 3\n\tlast exit code = 1\n")},
			true,
			Status{State: Restarting, Restarts: 2, Enabled: true, Socket: ports, Held: true, Detail: "it ended by itself (1) and is started again in a moment"},
		},
		"ended well": {
			[]answer{loaded("\tstate = not running\n\truns = 1\n\tlast exit code = 0\n")},
			true,
			Status{State: Stopped, Enabled: true, Socket: ports, Held: true},
		},
		"stopped":       {[]answer{notLoaded()}, true, Status{State: Stopped, Enabled: true, Socket: ports}},
		"not installed": {[]answer{notLoaded()}, false, Status{State: NotInstalled, Detail: ErrNotInstalled.Error()}},
		"disabled": {
			[]answer{notLoaded(), {To: []string{"launchctl", "print-disabled"}, Out: "disabled services = {\n\t\"" + Label + "\" => disabled\n}\n"}},
			true,
			Status{State: Stopped, Socket: ports},
		},
		"no graphical session": {
			[]answer{{To: []string{"launchctl", "print"}, Code: 125, Err: "Could not find domain for user gui: 501\n"}},
			true,
			Status{State: Unreachable, Detail: "the service manager cannot be reached: there is no graphical session of this user (gui/501): Could not find domain for user gui: 501"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRecorder(t, tc.answers...)
			l, d := mac(r)
			if tc.installed {
				if err := write(l.path(), renderPlist(d), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := l.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got.State != Running && got.Hint == "" {
				t.Error("it does not say what to do")
			}
			got.Manager, got.File, got.Log, got.Hint = "", "", "", ""
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
