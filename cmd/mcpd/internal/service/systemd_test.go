package service

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a real systemd answers is shown by packaging/systemtest; this is what it
// answers only when something is broken.

func linux(t *testing.T, r *recorder) (*systemd, Definition) {
	t.Helper()
	register, err := systemdRegistrar(false)
	if err != nil {
		t.Skip(err)
	}
	d := ada()
	d.Home = r.home()
	return newSystemd(Options{Home: r.home(), UID: os.Getuid(), Run: run}, register), d
}

// question is one to the user's systemd as the driver asks it.
func question(words ...string) []string {
	return append([]string{"systemctl", "--no-pager", "--no-ask-password", "--user"}, words...)
}

func unknown() answer {
	return answer{To: question("show", "mcpd.service"), Out: "LoadState=not-found\nActiveState=inactive\n"}
}

func TestAnInstallationThatSystemdRefusesIsRolledBack(t *testing.T) {
	for name, refusal := range map[string]answer{
		// kardianos/service asks in words of its own.
		"the service": {To: []string{"systemctl", "enable", "--user"}, Code: 1, Err: "Failed to enable unit: disk full\n"},
		"the socket":  {To: question("enable", "mcpd.socket"), Code: 1, Err: "Failed to enable unit: disk full\n"},
	} {
		for _, before := range []string{"", "# " + marker + "\n[Service]\nExecStart=/old/mcpd run\n"} {
			t.Run(name, func(t *testing.T) {
				also := refusal
				also.To = question("enable", "mcpd.service")
				r := newRecorder(t, unknown(), refusal, also)
				s, d := linux(t, r)
				if before != "" {
					if err := write(s.unitPath(), []byte(before), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				_, err := s.Install(t.Context(), d)
				if err == nil || !strings.Contains(err.Error(), "disk full") {
					t.Errorf("the error is %v", err)
				}
				left, err := os.ReadDir(filepath.Dir(s.unitPath()))
				if err != nil {
					t.Fatal(err)
				}
				data, err := os.ReadFile(s.unitPath())
				switch {
				case before == "" && len(left) != 0:
					t.Errorf("left behind: %v", left)
				case before != "" && (err != nil || string(data) != before || len(left) != 1):
					t.Errorf("the unit from before is %q, %v, among %v", data, err, left)
				}
				if asked := r.asked(t); asked[len(asked)-1] != strings.Join(question("daemon-reload"), " ") {
					t.Errorf("systemd was not told: %q", asked)
				}
			})
		}
	}
}

func TestAUnitOfSomebodyElseIsNotWrittenOver(t *testing.T) {
	r := newRecorder(t, unknown())
	s, d := linux(t, r)
	if err := write(s.unitPath(), []byte("[Service]\nExecStart=/my/own\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Install(t.Context(), d); err == nil || !strings.Contains(err.Error(), "not written by mcpd") {
		t.Errorf("the error is %v", err)
	}
}

func TestWithoutABusNothingIsTouched(t *testing.T) {
	r := newRecorder(t, answer{To: []string{"systemctl"}, Code: 1, Err: "Failed to connect to bus: No medium found\n"})
	s, d := linux(t, r)
	for what, err := range map[string]error{
		"install":   func() error { _, err := s.Install(t.Context(), d); return err }(),
		"uninstall": func() error { _, err := s.Uninstall(t.Context()); return err }(),
		"start":     s.Start(t.Context()), "stop": s.Stop(t.Context()), "restart": s.Restart(t.Context()),
	} {
		var e *Error
		if !errors.Is(err, ErrUnreachable) || !errors.As(err, &e) || !strings.Contains(e.Hint(), "enable-linger") {
			t.Errorf("%s: %v", what, err)
		}
	}
	st, err := s.Status(t.Context())
	if err != nil || st.State != Unreachable || !strings.Contains(st.Hint, "XDG_RUNTIME_DIR") {
		t.Errorf("the status is %+v, %v", st, err)
	}
	if _, err := os.Stat(r.home()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("something was written: %v", err)
	}
}

func TestSystemdsAnswersBecomeStates(t *testing.T) {
	for name, tc := range map[string]struct {
		properties string
		want       State
		detail     string
	}{
		"restarting":  {"LoadState=loaded\nActiveState=activating\nSubState=auto-restart\nResult=signal\n", Restarting, "signal"},
		"starting":    {"LoadState=loaded\nActiveState=activating\nSubState=start\n", Starting, ""},
		"stopping":    {"LoadState=loaded\nActiveState=deactivating\nSubState=stop-sigterm\n", Stopping, ""},
		"failed":      {"LoadState=loaded\nActiveState=failed\nResult=exit-code\nExecMainStatus=1\n", Failed, "exit code 1"},
		"no program":  {"LoadState=loaded\nActiveState=inactive\nConditionResult=no\n", Stopped, "is not there"},
		"a package's": {"LoadState=loaded\nActiveState=inactive\nUnitFileState=disabled\nFragmentPath=/usr/lib/systemd/user/mcpd.service\n", NotInstalled, "not installed"},
		"an admin's":  {"LoadState=loaded\nActiveState=inactive\nUnitFileState=enabled\nFragmentPath=/usr/lib/systemd/user/mcpd.service\n", Stopped, ""},
		"never heard": {"LoadState=not-found\nActiveState=inactive\n", NotInstalled, "not installed"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRecorder(t, answer{To: question("show", "mcpd.service"), Out: tc.properties})
			s, _ := linux(t, r)
			st, err := s.Status(t.Context())
			if err != nil || st.State != tc.want || !strings.Contains(st.Detail, tc.detail) {
				t.Errorf("the status is %+v, %v", st, err)
			}
			if st.Hint == "" && st.State != Starting && st.State != Stopping {
				t.Error("it does not say what to do")
			}
		})
	}
}

func TestUninstalledWithoutARunningSystemdItsFilesGo(t *testing.T) {
	r := newRecorder(t, answer{To: []string{"systemctl"}, Code: 1, Err: "Failed to connect to bus: No medium found\n"})
	s, d := linux(t, r)
	s.uid = 4294967294 // whose systemd surely does not run
	runtimeDir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", runtimeDir)
	foreign := filepath.Join(s.dir, "default.target.wants", "other.service")
	lay := func() {
		t.Helper()
		for path, data := range map[string][]byte{s.unitPath(): renderUnit(d), s.socketPath(): renderSocket(d), foreign: []byte("[Unit]\n")} {
			if err := write(path, data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for _, link := range []string{"default.target.wants/mcpd.service", "sockets.target.wants/mcpd.socket"} {
			link = filepath.Join(s.dir, link)
			if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Join(s.dir, filepath.Base(link)), link); err != nil {
				t.Fatal(err)
			}
		}
	}
	lay()
	out, err := s.Uninstall(t.Context())
	if err != nil || !out.Changed || len(out.Files) != 4 {
		t.Errorf("%+v, %v", out, err)
	}
	var left []string
	if err := filepath.WalkDir(s.dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			left = append(left, path)
		}
		return err
	}); err != nil || len(left) != 1 || left[0] != foreign {
		t.Errorf("left are %v, %v", left, err)
	}

	// One that runs and cannot be asked might have the service running.
	lay()
	if err := write(filepath.Join(runtimeDir, "systemd", "private"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Uninstall(t.Context()); !errors.Is(err, ErrUnreachable) {
		t.Errorf("the error is %v", err)
	}
	if _, err := os.Stat(s.unitPath()); err != nil {
		t.Error(err)
	}

	// A unit of somebody else is not mcpd's to remove.
	if err := os.RemoveAll(runtimeDir); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{s.unitPath(), s.socketPath()} {
		if err := write(path, []byte("[Service]\nExecStart=/my/own\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Uninstall(t.Context()); !errors.Is(err, ErrUnreachable) {
		t.Errorf("the error is %v", err)
	}
	if _, err := os.Stat(s.unitPath()); err != nil {
		t.Error(err)
	}
}
