package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mcpd/cmd/mcpd/internal/control"
	"mcpd/cmd/mcpd/internal/service"
	"mcpd/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patient is a person with a home, a config and a state folder of their own.
type patient struct {
	Options
	t *testing.T
}

func newPatient(t *testing.T, text string) *patient {
	t.Helper()
	dir := t.TempDir()
	path, state := filepath.Join(dir, "mcpd.toml"), filepath.Join(dir, "state")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	env := config.OSEnvironment()
	env.Home = dir
	return &patient{t: t, Options: Options{
		ConfigPath: path, StateDir: state, Version: "v1", Environment: env, Environ: []string{"PATH=" + os.Getenv("PATH")},
		Status: func(context.Context) (control.Status, error) { return control.Status{}, errors.New("nobody is there") },
	}}
}

// examine returns the findings by check.
func (p *patient) examine() map[string]Finding {
	p.t.Helper()
	found := map[string]Finding{}
	if err := Run(p.t.Context(), p.Options, func(f Finding) { found[f.Check] = f }); err != nil {
		p.t.Fatal(err)
	}
	return found
}

func (p *patient) want(found map[string]Finding, check string, result Result, parts ...string) {
	p.t.Helper()
	f, ok := found[check]
	if !ok || f.Result != result {
		p.t.Errorf("%s: %+v, want %s", check, f, result)
		return
	}
	text := strings.Join(slices.Concat([]string{f.Summary}, f.Details, f.Mend), "\n")
	for _, part := range parts {
		if !strings.Contains(text, part) {
			p.t.Errorf("%s: %q is not in\n%s", check, part, text)
		}
	}
}

func TestAClockThatWasSetBackIsFound(t *testing.T) {
	p := newPatient(t, "")
	p.want(p.examine(), "clock", OK)
	path := filepath.Join(p.StateDir, tokenList)
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	ahead := time.Now().Add(time.Hour)
	if err := os.Chtimes(path, ahead, ahead); err != nil {
		t.Fatal(err)
	}
	p.want(p.examine(), "clock", Trouble, "in the future", "touch "+path)
}

func TestOthersWhoCanWriteAreFound(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("access lists of Windows are not looked at")
	}
	p := newPatient(t, "[daemon]\n")
	p.want(p.examine(), "config file", OK)
	if err := os.Chmod(p.ConfigPath, 0o666); err != nil {
		t.Fatal(err)
	}
	p.want(p.examine(), "config file", Trouble, "mode 0666", "chmod o-w "+p.ConfigPath)
	if err := os.Chmod(p.ConfigPath, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(p.ConfigPath), 0o777); err != nil {
		t.Fatal(err)
	}
	p.want(p.examine(), "config file", Trouble, "chmod o-w "+filepath.Dir(p.ConfigPath))
}

func TestWhoHoldsThePortIsNamed(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	p := newPatient(t, "[daemon]\nlisten = \""+l.Addr().String()+"\"\n")
	want := []string{"another program listens on " + l.Addr().String()}
	if runtime.GOOS == "linux" {
		want = append(want, fmt.Sprintf("it is process %d (", os.Getpid()), fmt.Sprintf("end process %d", os.Getpid()))
	}
	p.want(p.examine(), "port", Trouble, want...)
}

func TestAPortThatTheServiceManagerHoldsIsNotTaken(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	p := newPatient(t, "[daemon]\nlisten = \""+l.Addr().String()+"\"\n")
	st := service.Status{State: service.Stopped, Held: true, Socket: []string{l.Addr().String()}}
	p.Service = func(context.Context) (service.Status, error) { return st, nil }
	p.want(p.examine(), "port", OK, "holds "+l.Addr().String()+" for mcpd")
	st.Held = false
	p.want(p.examine(), "port", Trouble)
}

func TestAPortThatIsPickedEachTimeGetsANote(t *testing.T) {
	p := newPatient(t, "[daemon]\nlisten = \"127.0.0.1:0\"\n")
	p.want(p.examine(), "port", Note, "picks another port")
}

func TestALoginShellThatFailsIsTroubleAndTheRestGoesOn(t *testing.T) {
	p := newPatient(t, "[servers.a]\ncommand = \"no-such-program-here\"\n")
	p.LoginEnvironment = func(context.Context) (map[string]string, error) { return nil, errors.New("it said no") }
	found := p.examine()
	if runtime.GOOS != "windows" {
		p.want(found, "login shell", Trouble, "it said no", "login_shell_env = false")
	}
	p.want(found, "command of a", Trouble, "not in the PATH of servers")

	p = newPatient(t, "[daemon]\nlogin_shell_env = false\n")
	p.LoginEnvironment = func(context.Context) (map[string]string, error) {
		t.Error("the shell was asked")
		return nil, nil
	}
	p.want(p.examine(), "login shell", OK, "not asked")
}

func TestAProgramOutsideOfPATHIsFoundAllTheSame(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("these folders are those of Unix")
	}
	p := newPatient(t, "[servers.a]\ncommand = \"my-mcp-tool\"\n[servers.b]\ncommand = \"lss\"\n")
	bin := filepath.Join(p.Environment.Home, ".local", "bin")
	if err := os.MkdirAll(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	tool := filepath.Join(bin, "my-mcp-tool")
	if err := os.WriteFile(tool, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	found := p.examine()
	p.want(found, "command of a", Trouble, "it is at "+tool)
	p.want(found, "command of b", Trouble, "did you mean")
}

func TestVersionsOfLaunchersAreShownAndOldOnesAreTrouble(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the programs of this test are shell scripts")
	}
	p := newPatient(t, "[servers.a]\ncommand = \"npx\"\n[servers.b]\ncommand = \"uvx\"\n[servers.c]\ncommand = \"deno\"\n")
	bin := t.TempDir()
	for name, script := range map[string]string{
		"npx": "echo 10.9.2", "node": "echo v16.1.0", "uvx": "echo 'uv-tool-uvx 0.5.1 (abc 2026)'", "deno": "exit 4",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p.Environ = []string{"PATH=" + bin}
	var list []string
	if err := Run(t.Context(), p.Options, func(f Finding) {
		if f.Check == "program" {
			list = append(list, string(f.Result)+" "+strings.ReplaceAll(f.Summary, bin, ""))
		}
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"ok /npx 10.9.2, for a",
		"trouble /node is version v16.1.0, too old for most servers",
		"ok /uvx 0.5.1, for b",
		"trouble /deno, for c, does not run: exit status 4",
	}
	if !slices.Equal(list, want) {
		t.Errorf("\n%s\nwant\n%s", strings.Join(list, "\n"), strings.Join(want, "\n"))
	}
}

func TestOriginsThatNoBrowserSendsAreTrouble(t *testing.T) {
	for origin, instead := range map[string]string{
		"http://localhost:6274":                               "",
		"https://app.example":                                 "",
		"chrome-extension://abcdefghijklmnopabcdefghijklmnop": "",
		"vscode-webview://abc":                                "",
		"ws://localhost:1":                                    `write "http://localhost:1"`,
		"wss://app.example":                                   `write "https://app.example"`,
		"file://host":                                         "serve the page by http",
		"http://0.0.0.0:3000":                                 `write "http://localhost:3000"`,
		"chrome-extension://my-addon":                         "chrome://extensions",
		"moz-extension://addon.mozilla":                       "about:debugging",
		"https://0.0.0.0":                                     `write "https://localhost"`,
	} {
		why, got := neverSent(origin)
		if (why == "") != (instead == "") || !strings.Contains(got, instead) {
			t.Errorf("%s: %q, %q; want %q", origin, why, got, instead)
		}
	}
	p := newPatient(t, "[security]\nallowed_origins = [\"ws://localhost:1\"]\n")
	p.want(p.examine(), "origins", Trouble, "can never match")
}

func TestTheServiceManagersWordIsPassedOn(t *testing.T) {
	yes, no := true, false
	installed := newPatient(t, "")
	unit := filepath.Join(installed.Environment.Home, ".config", "systemd", "user", "mcpd.service")
	if err := os.MkdirAll(filepath.Dir(unit), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(unit, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		p      *patient
		status service.Status
		err    error
		want   Result
		parts  []string
	}{
		{"running", newPatient(t, ""), service.Status{State: service.Running, Enabled: true, Linger: &yes}, nil, OK, nil},
		{"without linger", newPatient(t, ""), service.Status{State: service.Running, Enabled: true, Linger: &no}, nil, Note, []string{"log out", "enable-linger"}},
		{"not enabled", newPatient(t, ""), service.Status{State: service.Running}, nil, Note, []string{"does not start by itself"}},
		{"failed", newPatient(t, ""), service.Status{State: service.Failed, Detail: "too often", Hint: "see why"}, nil, Trouble, []string{"too often", "see why"}},
		{"no bus, no unit", newPatient(t, ""), service.Status{State: service.Unreachable, Hint: "export XDG"}, nil, Note, []string{"mcpd run works", "export XDG"}},
		{"no bus, but a unit", installed, service.Status{State: service.Unreachable, Detail: "no bus", Hint: "export XDG"}, nil, Trouble, []string{"no bus", "export XDG"}},
		{"not installed", newPatient(t, ""), service.Status{State: service.NotInstalled, Hint: "install it"}, nil, Note, []string{"install it"}},
		{"stopped", newPatient(t, ""), service.Status{State: service.Stopped, Hint: "start it"}, nil, Note, []string{"start it"}},
		{"no manager", newPatient(t, ""), service.Status{}, errors.New("there is none"), Skipped, []string{"there is none"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.p.Service = func(context.Context) (service.Status, error) { return c.status, c.err }
			c.p.want(c.p.examine(), "service", c.want, c.parts...)
		})
	}
}

func TestTheEndOfTheContextEndsTheExamination(t *testing.T) {
	p := newPatient(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	err := Run(ctx, p.Options, func(Finding) {
		n++
		cancel()
	})
	if !errors.Is(err, context.Canceled) || n != 1 {
		t.Errorf("%v after %d findings", err, n)
	}
}
