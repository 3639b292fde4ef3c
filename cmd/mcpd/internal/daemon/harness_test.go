package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mcpd/cmd/mcpd/internal/control"
	"mcpd/cmd/mcpd/internal/fixture"
	"mcpd/cmd/mcpd/internal/mcpclient"
	"mcpd/config"
	"mcpd/security"
)

// asFixture makes the test binary the child of a daemon under test.
const asFixture = "MCPD_DAEMON_TEST_FIXTURE"

// patience is far longer than anything here takes.
const patience = time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(asFixture) != "" {
		fixture.Main()
	}
	goleak.VerifyTestMain(m)
}

// rig is a daemon with real children in this process.
type rig struct {
	t       *testing.T
	dir     string
	path    string
	d       *Daemon
	log     *logText
	token   string
	control *control.Client
	http    *http.Client
	hup     chan os.Signal
	hurry   chan os.Signal
	cancel  context.CancelFunc
	ended   chan error
}

// head is the beginning of every config file here.
const head = "[daemon]\nlisten = \"127.0.0.1:0\"\nlogin_shell_env = false\nlog_level = \"debug\"\n"

// child is the table of a server that is the fixture; lines are further keys.
func child(t *testing.T, name string, args []string, lines ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(append([]string{}, args...))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("\n[servers.%s]\ncommand = %q\nargs = %s\nenv = {%s = \"1\"}\n%s\n",
		name, self, list, asFixture, strings.Join(lines, "\n"))
}

// start runs a daemon with a config. When the test ends it is stopped, must
// end cleanly, and must not have written its token anywhere.
func start(t *testing.T, text string, edit ...func(*Options)) *rig {
	t.Helper()
	r := &rig{
		t: t, dir: t.TempDir(), log: newLogText(), http: control.NewHTTPClient(),
		hup: make(chan os.Signal, 1), hurry: make(chan os.Signal, 1), ended: make(chan error, 1),
	}
	r.path = filepath.Join(r.dir, "mcpd.toml")
	r.write(text)
	level := new(slog.LevelVar)
	o := Options{
		ConfigPath: r.path, StateDir: filepath.Join(r.dir, "state"), Version: "test",
		Logger: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: level})), Level: level,
		Environment: config.OSEnvironment(), Environ: os.Environ(), Reload: r.hup,
	}
	for _, e := range edit {
		e(&o)
	}
	var err error
	if r.d, err = New(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	store, err := security.OpenTokenStore(o.StateDir, security.TokenStoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token, err := store.Show()
	if err != nil {
		t.Fatal(err)
	}
	r.token = token.Reveal()
	r.control = r.d.Identity().NewClient(r.token)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r.cancel = cancel
	go func() { r.ended <- r.d.Run(ctx, r.hurry) }()
	t.Cleanup(r.finish)
	return r
}

func (r *rig) finish() {
	r.stop()
	r.control.Close()
	r.http.CloseIdleConnections()
	text := r.log.String()
	if strings.Contains(text, r.token) {
		r.t.Error("the token is in the log")
	}
	if r.t.Failed() {
		r.t.Log("the daemon's log:\n" + text)
	}
}

// stop ends the daemon, if it still runs, and checks that it ends cleanly.
func (r *rig) stop() {
	if r.cancel == nil {
		return
	}
	r.cancel()
	r.cancel = nil
	if err := <-r.ended; err != nil {
		r.t.Errorf("the daemon ended with %v", err)
	}
}

// write replaces the config file in one step.
func (r *rig) write(text string) {
	r.t.Helper()
	if err := os.WriteFile(r.path+".new", []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(r.path+".new", r.path); err != nil {
		r.t.Fatal(err)
	}
}

// reload writes the config file and has it read.
func (r *rig) reload(text string) control.Reload {
	r.t.Helper()
	r.write(text)
	re, err := r.control.Reload(r.ctx())
	if err != nil {
		r.t.Fatal(err)
	}
	return re
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	r.t.Cleanup(cancel)
	return ctx
}

func (r *rig) server(name string) control.Server {
	r.t.Helper()
	st, err := r.control.Status(r.ctx())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, s := range st.Servers {
		if s.Name == name {
			return s
		}
	}
	return control.Server{}
}

// ready waits until a server answers and returns its status.
func (r *rig) ready(name string) control.Server {
	r.t.Helper()
	if _, err := r.mcp(name).ListTools(r.ctx()); err != nil {
		r.t.Fatalf("server %s: %v", name, err)
	}
	return r.server(name)
}

// until asks for a server's status until it is what is waited for.
func (r *rig) until(name string, is func(control.Server) bool) control.Server {
	r.t.Helper()
	for ctx := r.ctx(); ; {
		s := r.server(name)
		if is(s) {
			return s
		}
		if ctx.Err() != nil {
			r.t.Fatalf("server %s stays %+v", name, s)
		}
	}
}

func (r *rig) mcp(name string) *mcpclient.Client {
	return mcpclient.New(mcpclient.Options{HTTP: r.http, URL: r.url(name), Token: r.token, Version: "test"})
}

func (r *rig) url(name string) string { return "http://" + r.d.Addr() + "/servers/" + name + "/mcp" }

// call calls a tool and returns its text.
func (r *rig) call(server, tool, arguments string) (string, error) {
	raw, err := r.mcp(server).CallTool(r.ctx(), mcpclient.Tool{Name: tool}, json.RawMessage(arguments), nil)
	if err != nil {
		return "", err
	}
	var result struct {
		Content []struct{ Text string }
		IsError bool
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return "", err
	}
	if result.IsError || len(result.Content) == 0 {
		return "", fmt.Errorf("the tool answered %s", raw)
	}
	return result.Content[0].Text, nil
}

func (r *rig) mustCall(server, tool, arguments string) string {
	r.t.Helper()
	text, err := r.call(server, tool, arguments)
	if err != nil {
		r.t.Fatalf("%s at %s: %v", tool, server, err)
	}
	return text
}

// request sends an HTTP request as it is given.
func (r *rig) request(method, target string, header http.Header, body string) (int, http.Header, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.ctx(), method, "http://"+r.d.Addr()+target, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header = header.Clone()
	if h := req.Header.Get("Host"); h != "" {
		req.Host = h
	}
	resp, err := r.http.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(data)
}

func (r *rig) auth() http.Header { return http.Header{"Authorization": {"Bearer " + r.token}} }

// logText is a log that can be waited on.
type logText struct {
	mu     sync.Mutex
	b      strings.Builder
	change chan struct{}
}

func newLogText() *logText { return &logText{change: make(chan struct{})} }

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Write(p)
	close(l.change)
	l.change = make(chan struct{})
	return len(p), nil
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// await waits until a line of the log has every text.
func (l *logText) await(t *testing.T, texts ...string) {
	t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		l.mu.Lock()
		text, change := l.b.String(), l.change
		l.mu.Unlock()
	lines:
		for line := range strings.Lines(text) {
			for _, want := range texts {
				if !strings.Contains(line, want) {
					continue lines
				}
			}
			return
		}
		select {
		case <-change:
		case <-limit.C:
			t.Fatalf("no log line with %q", texts)
		}
	}
}
