package daemon

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpd/cmd/mcpd/internal/control"
	"mcpd/cmd/mcpd/internal/instance"
	"mcpd/config"
	"mcpd/security"
)

func TestOnlyWhatChangedIsTouched(t *testing.T) {
	keep, tune := child(t, "keep", nil), child(t, "tune", nil)
	r := start(t, head+keep+tune+child(t, "change", nil)+child(t, "leave", nil))
	keepPID, tunePID, changePID := r.ready("keep").PID, r.ready("tune").PID, r.ready("change").PID
	r.ready("leave")

	re := r.reload(head + keep + child(t, "tune", nil, `max_in_flight = 1`) +
		child(t, "change", []string{"-name", "changed"}) + child(t, "come", nil))
	want := control.Reload{At: re.At, OK: true, Added: []string{"come"}, Removed: []string{"leave"}, Replaced: []string{"change"}, Retuned: []string{"tune"}}
	if diff := cmp.Diff(want, re); diff != "" {
		t.Fatal(diff)
	}
	r.ready("come")
	r.until("change", func(s control.Server) bool { return s.ServerName == "changed" })
	if got := r.ready("keep").PID; got != keepPID {
		t.Errorf("a server that did not change has a new process: %d, was %d", got, keepPID)
	}
	if got := r.ready("tune").PID; got != tunePID {
		t.Errorf("a server whose limits changed has a new process: %d, was %d", got, tunePID)
	}
	if s := r.ready("change"); s.PID == changePID || s.ServerName != "changed" {
		t.Errorf("the changed server is %+v", s)
	}
	status, _, body := r.request(http.MethodPost, "/servers/leave/mcp", mcpHeaders(r), discover)
	if status != http.StatusNotFound || !strings.Contains(body, "come") {
		t.Errorf("a removed server is answered with %d %s", status, body)
	}

	// The new limit holds for the process that stayed.
	held := make(chan error, 1)
	go func() {
		_, err := r.call("tune", "hold", `{"name":"x"}`)
		held <- err
	}()
	r.until("tune", func(s control.Server) bool { return s.InFlight == 1 })
	if _, err := r.call("tune", "echo", `{}`); err == nil || !strings.Contains(err.Error(), "max_in_flight") {
		t.Errorf("a second request got %v", err)
	}
	r.hurry <- syscall.SIGTERM
	r.stop()
	if err := <-held; err == nil {
		t.Error("a call that was given up looks as if it had worked")
	}
}

func TestASavedFileIsNoticed(t *testing.T) {
	r := start(t, head)
	r.write(head + child(t, "new", nil))
	r.log.await(t, "the config was read again", "the file changed", "added=[new]")
	r.ready("new")
}

func TestASignalReadsTheFile(t *testing.T) {
	r := start(t, head)
	r.hup <- syscall.SIGHUP
	r.log.await(t, "the config was read again and is the same", "a signal asked for it")
}

func TestABadFileChangesNothing(t *testing.T) {
	one := child(t, "one", nil)
	r := start(t, head+one)
	pid := r.ready("one").PID

	r.write(head + "[servers.two]\ncomand = 1\n")
	r.log.await(t, "the config file has an error; nothing changes", "mcpd.toml:6:1", "did you mean")
	st, err := r.control.Status(r.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if st.LastReload == nil || st.LastReload.OK || len(st.LastReload.Problems) == 0 || st.LastReload.Problems[0].Line != 6 {
		t.Errorf("the status says %+v", st.LastReload)
	}
	if got := r.ready("one"); got.PID != pid {
		t.Errorf("the server has process %d, had %d", got.PID, pid)
	}

	if err := os.Remove(r.path); err != nil {
		t.Fatal(err)
	}
	r.log.await(t, "the config file cannot be read; nothing changes")
	if got := r.ready("one"); got.PID != pid {
		t.Errorf("without a file the server has process %d, had %d", got.PID, pid)
	}

	if re := r.reload(head + one); !re.OK || re.Added != nil || re.Replaced != nil {
		t.Errorf("the file from before is read as %+v", re)
	}
	if got := r.ready("one"); got.PID != pid {
		t.Errorf("after it was mended the server has process %d, had %d", got.PID, pid)
	}
}

func TestANewCommandThatDoesNotWorkLeavesTheOldOneInPlace(t *testing.T) {
	r := start(t, head+child(t, "s", nil))
	pid := r.ready("s").PID
	r.reload(head + child(t, "s", []string{"-exit-at-start", "7"}))
	r.log.await(t, "the changed config of the server does not work", "server=s")
	s := r.ready("s")
	if s.PID != pid || s.State != "ready" || !strings.Contains(s.ReloadError, "7") || s.Reloading {
		t.Errorf("got %+v", s)
	}
	r.reload(head + child(t, "s", []string{"-name", "good"}))
	if s := r.until("s", func(s control.Server) bool { return s.ServerName == "good" }); s.ReloadError != "" {
		t.Errorf("after it was mended: %+v", s)
	}
}

func TestASlowReplacementHoldsUpNobody(t *testing.T) {
	r := start(t, head+child(t, "slow", nil))
	pid := r.ready("slow").PID

	// This one never answers its handshake.
	silent := child(t, "slow", []string{"-silent"}, `protocol = "modern"`, `first_start_timeout = "10m"`, `start_timeout = "10m"`)
	r.reload(head + silent)
	r.until("slow", func(s control.Server) bool { return s.Reloading })
	// The old process still serves, others come and go.
	if got := r.ready("slow").PID; got != pid {
		t.Errorf("process %d serves, not %d", got, pid)
	}
	r.reload(head + silent + child(t, "other", nil))
	r.ready("other")

	// A newer config does not wait for the attempt at the older one.
	r.reload(head + child(t, "slow", []string{"-name", "third"}))
	r.until("slow", func(s control.Server) bool { return s.ServerName == "third" })
}

func TestAServerThatLeavesFinishesWhatItWasAsked(t *testing.T) {
	r := start(t, head+child(t, "s", nil))
	r.ready("s")
	held := make(chan string, 1)
	go func() {
		text, err := r.call("s", "hold", `{"name":"x"}`)
		if err != nil {
			text = err.Error()
		}
		held <- text
	}()
	r.mustCall("s", "await", `{"kind":"held","count":1}`)
	listen := r.listen("s")
	if got := listen.next(); !strings.Contains(got, "subscriptions/acknowledged") {
		t.Fatalf("a listener is first told %s", got)
	}

	// Another command line: the old process goes on with its call.
	r.reload(head + child(t, "s", []string{"-name", "second"}))
	r.until("s", func(s control.Server) bool { return s.ServerName == "second" })
	select {
	case text := <-held:
		t.Fatalf("the call ended early: %s", text)
	default:
	}

	// Gone from the config: the listener is told so properly.
	r.reload(head)
	for {
		got := listen.next()
		if strings.Contains(got, `"resultType":"complete"`) {
			break
		}
		if got == "" {
			t.Fatal("the stream ended without its result")
		}
	}
	if got := listen.next(); got != "" {
		t.Errorf("after the result came %s", got)
	}
	r.hurry <- syscall.SIGTERM
	r.stop()
	if text := <-held; strings.Contains(text, "released") {
		t.Errorf("got %s", text)
	}
}

func TestAServerCanLeaveAndComeBackWhileItDrains(t *testing.T) {
	s := child(t, "s", nil)
	r := start(t, head+s)
	first := r.ready("s").PID
	for range 3 {
		r.reload(head)
		r.reload(head + s)
	}
	if got := r.ready("s"); got.PID == first || got.State != "ready" {
		t.Errorf("got %+v", got)
	}
}

func TestDisabledServersAreListedAndDoNotRun(t *testing.T) {
	r := start(t, head+child(t, "s", nil, "disabled = true"))
	if s := r.server("s"); s.State != control.StateDisabled || s.PID != 0 {
		t.Errorf("got %+v", s)
	}
	if _, err := r.control.Act(r.ctx(), "s", "start"); err == nil || !strings.Contains(err.Error(), "disabled") {
		t.Errorf("starting it: %v", err)
	}
	if re := r.reload(head + child(t, "s", nil)); !cmp.Equal(re.Added, []string{"s"}) {
		t.Errorf("enabling it: %+v", re)
	}
	r.ready("s")
	if re := r.reload(head + child(t, "s", nil, "disabled = true")); !cmp.Equal(re.Removed, []string{"s"}) {
		t.Errorf("disabling it: %+v", re)
	}
}

func TestADaemonThatStopsLetsCallsFinishAndListenersGo(t *testing.T) {
	r := start(t, head+child(t, "s", nil))
	r.ready("s")
	held := make(chan string, 1)
	go func() {
		text, err := r.call("s", "hold", `{"name":"x"}`)
		if err != nil {
			text = err.Error()
		}
		held <- text
	}()
	r.mustCall("s", "await", `{"kind":"held","count":1}`)
	listen := r.listen("s")
	if got := listen.next(); !strings.Contains(got, "subscriptions/acknowledged") {
		t.Fatalf("a listener is first told %s", got)
	}
	logs := make(chan error, 1)
	following := make(chan struct{})
	go func() {
		once := false
		logs <- r.control.Logs(r.t.Context(), "s", 100, true, func(control.LogLine) error {
			if !once {
				close(following)
				once = true
			}
			return nil
		})
	}()
	<-following

	r.cancel()
	if got := listen.next(); !strings.Contains(got, `"resultType":"complete"`) {
		t.Errorf("the listener got %s", got)
	}
	if err := <-logs; err != nil {
		t.Errorf("the follower of the log got %v", err)
	}
	select {
	case text := <-held:
		t.Fatalf("the call was not waited for: %s", text)
	default:
	}
	// The second signal.
	r.hurry <- syscall.SIGINT
	if err := <-r.ended; err != nil {
		t.Errorf("the daemon ended with %v", err)
	}
	r.cancel = nil
	if text := <-held; !strings.Contains(text, "uncertain") || !strings.Contains(text, "mcpd is being stopped") {
		t.Errorf("the call that was given up got %q", text)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "state", "daemon.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what commands find the daemon by is left: %v", err)
	}
}

func TestACallInFlightIsAnsweredWhenTheDaemonStops(t *testing.T) {
	r := start(t, head+child(t, "s", nil))
	r.ready("s")
	listen := r.listen("s")
	if got := listen.next(); !strings.Contains(got, "subscriptions/acknowledged") {
		t.Fatalf("a listener is first told %s", got)
	}
	// The child answers this one when it hears that the subscription is over,
	// which it does because the daemon stops.
	answer := make(chan error, 1)
	go func() {
		_, err := r.call("s", "await", `{"kind":"cancelled","count":1}`)
		answer <- err
	}()
	r.until("s", func(s control.Server) bool { return s.InFlight >= 1 && s.Requests >= 3 })
	r.stop()
	if err := <-answer; err != nil {
		t.Errorf("the call got %v", err)
	}
	if strings.Contains(r.log.String(), "given up") {
		t.Error("calls were given up")
	}
}

func TestASecondDaemonIsRefused(t *testing.T) {
	r := start(t, head)
	o := r.d.opts
	_, err := New(t.Context(), o)
	var held *instance.HeldError
	if !errors.As(err, &held) || held.Holder.PID != os.Getpid() {
		t.Errorf("with the same state folder: %v", err)
	}

	o.StateDir = filepath.Join(r.dir, "other")
	o.ConfigPath = filepath.Join(r.dir, "other.toml")
	if err := os.WriteFile(o.ConfigPath, []byte(strings.Replace(head, "127.0.0.1:0", r.d.Addr(), 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = New(t.Context(), o)
	var taken *PortTakenError
	if !errors.As(err, &taken) || taken.Addr.String() != r.d.Addr() || taken.Hint() == "" {
		t.Errorf("with the same port: %v", err)
	}
	if _, err := instance.Find(o.StateDir); !errors.Is(err, instance.ErrNotRunning) {
		t.Errorf("the refused daemon holds its folder: %v", err)
	}
}

func TestChildrenGetTheLoginShellsEnvironment(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tools := t.TempDir()
	if err := os.Symlink(self, filepath.Join(tools, "only-in-the-shells-path")); err != nil {
		t.Skip("this system has no symbolic links:", err)
	}
	asked := make(chan struct{})
	goOn := make(chan struct{})
	text := strings.Replace(head, "login_shell_env = false", "login_shell_env = true", 1) +
		"\n[servers.s]\ncommand = \"only-in-the-shells-path\"\nenv = {" + asFixture + " = \"1\", BOTH = \"config\"}\n"
	r := start(t, text, func(o *Options) {
		o.Environ = append(o.Environ, "DAEMON=daemon")
		o.LoginEnvironment = func(context.Context) (map[string]string, error) {
			close(asked)
			<-goOn
			return map[string]string{"PATH": tools, "SHELL_ONLY": "shell", "BOTH": "shell", "DAEMON": "shell"}, nil
		}
	})
	<-asked
	if s := r.server("s"); s.State != control.StateWaiting {
		t.Errorf("before the shell has answered the server is %q", s.State)
	}
	close(goOn)
	got := r.mustCall("s", "environment", `{"names":["SHELL_ONLY","BOTH","DAEMON"]}`)
	for _, want := range []string{"shell", "config", "daemon"} {
		if !strings.Contains(got, want) {
			t.Errorf("the child has %s", got)
		}
	}
}

func TestServersStartWithoutTheShellsEnvironmentWhereItCannotBeHad(t *testing.T) {
	text := strings.Replace(head, "login_shell_env = false", "login_shell_env = true", 1) + child(t, "s", nil)
	r := start(t, text, func(o *Options) {
		o.LoginEnvironment = func(context.Context) (map[string]string, error) { return nil, errors.New("the shell is broken") }
	})
	r.ready("s")
	st, err := r.control.Status(r.ctx())
	if err != nil || st.EnvironmentError != "the shell is broken" {
		t.Errorf("got %q, %v", st.EnvironmentError, err)
	}
}

func TestThePathOfTheShellOutlivesAShellThatFails(t *testing.T) {
	file := lastPath(filepath.Join(t.TempDir(), "login-path.json"))
	resolve := func(login LoginEnvironment) *environment {
		e := newEnvironment("")
		e.resolve(t.Context(), []string{"PATH=/bin", "OWN=1"}, login, file)
		return e
	}
	broken := func(context.Context) (map[string]string, error) { return nil, errors.New("the shell is broken") }

	if e := resolve(broken); e.values()["PATH"] != "/bin" || e.problem() != "the shell is broken" {
		t.Errorf("with nothing kept: PATH %q, problem %q", e.values()["PATH"], e.problem())
	}
	e := resolve(func(context.Context) (map[string]string, error) {
		return map[string]string{"PATH": "/opt/node/bin", "API_KEY": "sesame"}, nil
	})
	if e.problem() != "" || e.values()["API_KEY"] != "sesame" {
		t.Errorf("from the shell: %v, problem %q", e.values(), e.problem())
	}
	e = resolve(broken)
	if got, want := e.values()["PATH"], "/opt/node/bin"+string(filepath.ListSeparator)+"/bin"; got != want {
		t.Errorf("PATH %q, want %q", got, want)
	}
	if !strings.Contains(e.problem(), "the shell is broken; the PATH that it gave on ") {
		t.Errorf("problem %q", e.problem())
	}
	if data, err := os.ReadFile(string(file)); err != nil || strings.Contains(string(data), "sesame") {
		t.Errorf("kept: %s, %v", data, err)
	}
}

func TestADaemonThatWaitsForTheShellCanBeStopped(t *testing.T) {
	text := strings.Replace(head, "login_shell_env = false", "login_shell_env = true", 1) + child(t, "s", nil)
	asked := make(chan struct{})
	r := start(t, text, func(o *Options) {
		o.LoginEnvironment = func(ctx context.Context) (map[string]string, error) {
			close(asked)
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	<-asked
	r.stop()
	if strings.Contains(r.log.String(), "the child was started") {
		t.Error("a child was started while the daemon stopped")
	}
}

func TestWhatIsRememberedOfCommandsHoldsNoneOfThem(t *testing.T) {
	legacy := child(t, "s", []string{"-era", "legacy", "-name", "sesame"})
	r := start(t, head+legacy)
	if s := r.ready("s"); s.Era != "legacy" {
		t.Fatalf("got %+v", s)
	}
	r.stop()
	path := filepath.Join(r.dir, "state", "commands.json")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), `"era":"legacy"`) || !strings.Contains(string(data), `"started":true`) {
		t.Errorf("remembered: %s", data)
	}
	if strings.Contains(string(data), "sesame") {
		t.Errorf("an argument is in %s", data)
	}
	m := openMemory(path, r.d.logger)
	for key := range m.entries {
		if era, ok := (eras{m}).Era(key); !ok || era != "legacy" {
			t.Errorf("after a restart %q is known", era)
		}
		if !(starts{m}).Started(key) {
			t.Error("after a restart the start is forgotten")
		}
	}
}

func TestTheConfigAsItWasAtStartDecidesWhatWaitsForARestart(t *testing.T) {
	r := start(t, head)
	moved := strings.Replace(head, "127.0.0.1:0", "127.0.0.1:7998", 1)
	if re := r.reload(moved); !cmp.Equal(re.RestartNeeded, []string{"daemon.listen"}) {
		t.Errorf("a new address: %+v", re)
	}
	if re := r.reload(moved + "\n[defaults]\nrequest_timeout = \"1m\"\n"); !cmp.Equal(re.RestartNeeded, []string{"daemon.listen"}) {
		t.Errorf("it still waits: %+v", re)
	}
	if re := r.reload(head); re.RestartNeeded != nil {
		t.Errorf("it was taken back: %+v", re)
	}
}

func TestTheGateFollowsTheConfig(t *testing.T) {
	r := start(t, head)
	origin := http.Header{"Origin": {"http://localhost:6274"}, "Authorization": {"Bearer " + r.token}}
	if status, _, _ := r.request(http.MethodGet, "/api/v1/status", origin, ""); status != http.StatusForbidden {
		t.Errorf("before: %d", status)
	}
	r.reload(head + "[security]\nallowed_origins = [\"http://localhost:6274\"]\n")
	if status, _, _ := r.request(http.MethodGet, "/api/v1/status", origin, ""); status != http.StatusOK {
		t.Errorf("after: %d", status)
	}
}

const (
	meta     = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	discover = `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + meta + `}}`
)

func mcpHeaders(r *rig) http.Header {
	h := r.auth()
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "application/json, text/event-stream")
	h.Set("Mcp-Protocol-Version", "2026-07-28")
	h.Set("Mcp-Method", "server/discover")
	return h
}

func TestPathsAreTakenAsTheyAreWritten(t *testing.T) {
	r := start(t, head+child(t, "s", nil))
	r.ready("s")
	h := mcpHeaders(r)
	tests := []struct {
		method, target string
		header         http.Header
		want           int
	}{
		{http.MethodPost, "/servers/s/mcp", h, 200},
		{http.MethodPost, "/servers/s/mcp/", h, 200},
		{http.MethodPost, "/servers/s/mcp//", h, 404},
		{http.MethodPost, "//servers/s/mcp", h, 404},
		{http.MethodPost, "/servers/s%2Fmcp", h, 404},
		{http.MethodPost, "/servers/%73/mcp", h, 404},
		{http.MethodPost, "/servers/x/../s/mcp", h, 404},
		{http.MethodPost, "/servers/x/%2e%2e/s/mcp", h, 404},
		{http.MethodPost, "/servers/./s/mcp", h, 404},
		{http.MethodPost, "/Servers/s/mcp", h, 404},
		{http.MethodPost, "/servers//mcp", h, 404},
		{http.MethodPost, "/servers/s", h, 404},
		{http.MethodPost, "/", h, 404},
		{http.MethodGet, "/servers/s/mcp", h, 405},
		{http.MethodDelete, "/servers/s/mcp", h, 405},
		{http.MethodGet, "/api/v1/status", r.auth(), 200},
		{http.MethodGet, "/api/v1/status/", r.auth(), 404},
		{http.MethodGet, "/api/v1/stat%75s", r.auth(), 404},
		{http.MethodPost, "/api/v1/status", r.auth(), 405},
		{http.MethodGet, "/api/v1/", r.auth(), 404},
		{http.MethodGet, "/api/v1/servers/s/start", r.auth(), 405},
		{http.MethodGet, "/api/v1/servers//logs", r.auth(), 404},
		{http.MethodGet, "/api/v1/servers/s/logs?n=x", r.auth(), 400},
		{http.MethodGet, "/api/v1/servers/s/logs?follow=maybe", r.auth(), 400},
		{http.MethodGet, "/api/v1/servers/nobody/logs", r.auth(), 404},
		{http.MethodGet, "/healthz", http.Header{}, 200},
		{http.MethodGet, "/healthz/", http.Header{}, 404},
		{http.MethodGet, "/.well-known/oauth-protected-resource", http.Header{}, 404},
	}
	for _, tt := range tests {
		status, header, body := r.request(tt.method, tt.target, tt.header, map[bool]string{true: discover}[tt.method == http.MethodPost])
		if status != tt.want {
			t.Errorf("%s %s: got %d %s, want %d", tt.method, tt.target, status, body, tt.want)
		}
		if header.Get("Location") != "" {
			t.Errorf("%s %s: redirected", tt.method, tt.target)
		}
	}
	if _, _, body := r.request(http.MethodGet, "/healthz", http.Header{}, ""); body != "ok\n" {
		t.Errorf("healthz says %q", body)
	}
}

func TestAStrangerLearnsNothing(t *testing.T) {
	r := start(t, head+child(t, "s", nil))
	ref := func(target string, h http.Header) string {
		status, header, body := r.request(http.MethodPost, target, h, discover)
		header.Del("Date")
		return strings.Join([]string{http.StatusText(status), header.Get("Www-Authenticate"), body}, "|")
	}
	for name, h := range map[string]http.Header{
		"no token":      {},
		"a wrong token": {"Authorization": {"Bearer mcpd_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}},
	} {
		known, unknown := ref("/servers/s/mcp", h), ref("/servers/nobody/mcp", h)
		if known != unknown || !strings.HasPrefix(known, "Unauthorized|Bearer ") {
			t.Errorf("%s: a server that exists answers %s, one that does not %s", name, known, unknown)
		}
	}
	created, err := r.control.CreateToken(r.ctx(), control.NewToken{Name: "few", Servers: []string{"other"}})
	if err != nil {
		t.Fatal(err)
	}
	few := http.Header{"Authorization": {"Bearer " + created.Secret}}
	for _, target := range []string{"/servers/s/mcp", "/servers/nobody/mcp", "/api/v1/reload", "/api/v1/tokens/rotate", "/api/v1/servers/s/stop"} {
		if status, _, body := r.request(http.MethodPost, target, few, discover); status != http.StatusForbidden || strings.Contains(body, "nobody") {
			t.Errorf("%s with a token that has no right to it: %d %s", target, status, body)
		}
	}
	if err := r.control.RevokeToken(r.ctx(), "few"); err != nil {
		t.Fatal(err)
	}
	if status, _, _ := r.request(http.MethodPost, "/servers/other/mcp", few, discover); status != http.StatusUnauthorized {
		t.Errorf("a revoked token gets %d", status)
	}
	host := r.auth()
	host.Set("Host", "evil.example:80")
	if status, _, _ := r.request(http.MethodGet, "/api/v1/status", host, ""); status != http.StatusForbidden {
		t.Errorf("a foreign host gets %d", status)
	}
}

func TestControlRequestsThatAreNoneAreRefused(t *testing.T) {
	r := start(t, head)
	for _, body := range []string{"", "[]", `{"name":"x","rights":"all"}`, `{"name":"x"} {}`, `{"name":1}`, `{"name":"` + strings.Repeat("x", 70_000) + `"}`, `{"name":""}`} {
		status, _, got := r.request(http.MethodPost, "/api/v1/tokens", r.auth(), body)
		if status != http.StatusBadRequest && status != http.StatusRequestEntityTooLarge {
			t.Errorf("%.40s: %d %s", body, status, got)
		}
		if !strings.Contains(got, `"error":`) {
			t.Errorf("%.40s: the answer is %s", body, got)
		}
	}
}

func TestAServerIsStoppedAndStartedByHand(t *testing.T) {
	r := start(t, head+child(t, "s", nil))
	pid := r.ready("s").PID
	s, err := r.control.Act(r.ctx(), "s", "stop")
	if err != nil || s.State != "stopped" || s.PID != 0 {
		t.Fatalf("stop: %+v %v", s, err)
	}
	if _, err := r.mcp("s").ListTools(r.ctx()); err == nil || !strings.Contains(err.Error(), "stopped") {
		t.Errorf("a request to it: %v", err)
	}
	if s, err = r.control.Act(r.ctx(), "s", "start"); err != nil || s.State != "ready" || s.PID == pid {
		t.Fatalf("start: %+v %v", s, err)
	}
	if s, err = r.control.Act(r.ctx(), "s", "restart"); err != nil || s.State != "ready" {
		t.Fatalf("restart: %+v %v", s, err)
	}
	r.ready("s")
	if _, err := r.control.Act(r.ctx(), "s", "dance"); err == nil {
		t.Error("there is no such action")
	}
}

func TestAStreamEndsWithItsToken(t *testing.T) {
	r := start(t, head+child(t, "one", nil))
	r.ready("one")
	token, _, err := r.d.tokens.Create("guest", security.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	body := `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` +
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	req, err := http.NewRequestWithContext(r.ctx(), http.MethodPost, r.url("one"), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{
		"Authorization": {"Bearer " + token.Reveal()}, "Content-Type": {"application/json"},
		"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"subscriptions/listen"},
	}
	resp, err := r.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	in := bufio.NewReader(resp.Body)
	next := func() string {
		for {
			line, err := in.ReadString('\n')
			if data, ok := strings.CutPrefix(line, "data: "); ok || err != nil {
				return data
			}
		}
	}
	if got := next(); !strings.Contains(got, "acknowledged") {
		t.Fatalf("got %q", got)
	}
	if err := r.d.tokens.Revoke("guest"); err != nil {
		t.Fatal(err)
	}
	r.mustCall("one", "change", `{"kind":"tools"}`)
	if got := next(); !strings.Contains(got, `"resultType":"complete"`) {
		t.Errorf("after the revocation the stream said %q", got)
	}
	if got := next(); got != "" {
		t.Errorf("and then %q", got)
	}
}

func TestATruncatedFileChangesNothing(t *testing.T) {
	r := start(t, head+child(t, "one", nil))
	pid := r.ready("one").PID
	for _, text := range []string{"", "\n \n"} {
		if got := r.reload(text); got.OK || !strings.Contains(got.Error, "is empty") {
			t.Errorf("%q: got %+v", text, got)
		}
	}
	if got := r.ready("one"); got.PID != pid {
		t.Errorf("the server has process %d, had %d", got.PID, pid)
	}
	if got := r.reload("# no servers\n"); !got.OK || len(got.Removed) != 1 {
		t.Errorf("a file with a comment: %+v", got)
	}
}

func TestABodyThatNeverComesHoldsUpNoRefusal(t *testing.T) {
	r := start(t, head+child(t, "one", nil))
	for name, lines := range map[string]string{
		"no token":      "POST /servers/one/mcp HTTP/1.1\r\nHost: " + r.d.Addr(),
		"unknown path":  "POST /x HTTP/1.1\r\nHost: " + r.d.Addr(),
		"wrong method":  "PUT /servers/one/mcp HTTP/1.1\r\nHost: " + r.d.Addr(),
		"foreign Host":  "POST /servers/one/mcp HTTP/1.1\r\nHost: evil.example",
		"public route":  "GET /healthz HTTP/1.1\r\nHost: " + r.d.Addr(),
		"preflight":     "OPTIONS /servers/one/mcp HTTP/1.1\r\nHost: " + r.d.Addr(),
		"control route": "POST /api/v1/reload HTTP/1.1\r\nHost: " + r.d.Addr(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := (&net.Dialer{}).DialContext(r.ctx(), "tcp", r.d.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, lines+"\r\nContent-Length: 10\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			all, err := io.ReadAll(conn) // to the end: the connection is given up
			if err != nil || !strings.HasPrefix(string(all), "HTTP/1.1 ") {
				t.Errorf("got %q, %v", all, err)
			}
		})
	}
}

func TestAConfigThatIsBadAtStartIsAnError(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "mcpd.toml")
	o := Options{ConfigPath: path, StateDir: filepath.Join(dir, "state"), Logger: newTestLogger(), Environment: config.OSEnvironment()}
	if _, err := New(t.Context(), o); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := os.WriteFile(path, []byte("[daemon]\nlisten = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var problems config.Errors
	if _, err := New(t.Context(), o); !errors.As(err, &problems) {
		t.Errorf("a bad file: %v", err)
	}
	if _, err := os.Stat(o.StateDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the state folder was made: %v", err)
	}
}

// stream is one open listen stream.
type stream struct {
	t  *testing.T
	sc *bufio.Scanner
}

// next gives the next event's data, or "" at the end of the stream.
func (s *stream) next() string {
	for s.sc.Scan() {
		if data, ok := strings.CutPrefix(s.sc.Text(), "data: "); ok {
			return data
		}
	}
	return ""
}

func (r *rig) listen(server string) *stream {
	r.t.Helper()
	body := `{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + meta + `}}`
	req, err := http.NewRequestWithContext(r.ctx(), http.MethodPost, r.url(server), strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header = mcpHeaders(r)
	req.Header.Set("Mcp-Method", "subscriptions/listen")
	resp, err := r.http.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = resp.Body.Close() })
	return &stream{r.t, bufio.NewScanner(resp.Body)}
}
