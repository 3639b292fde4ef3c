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
