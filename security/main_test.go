package security

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// childEnv makes the test binary act as another mcpd process on a folder of
// tokens, instead of running the tests.
const childEnv = "MCPD_SECURITY_TEST_CHILD"

func TestMain(m *testing.M) {
	if what := os.Getenv(childEnv); what != "" {
		if err := actAsOtherProcess(what, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// actAsOtherProcess waits for its standard input to end, so that several
// processes can be let go at once, and then does what it is told.
func actAsOtherProcess(what string, args []string) error {
	if _, err := fmt.Println("ready"); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	store, err := OpenTokenStore(args[0], TokenStoreOptions{})
	if err != nil {
		return err
	}
	switch what {
	case "show":
		plain, err := store.Show()
		if err != nil {
			return err
		}
		_, err = fmt.Println(plain.Reveal())
		return err
	case "create":
		for _, name := range args[1:] {
			if _, _, err := store.Create(name, CreateOptions{}); err != nil {
				return err
			}
		}
		return nil
	case "rotate":
		_, err := store.Rotate()
		return err
	}
	return fmt.Errorf("unknown task %q", what)
}

// logBuffer collects log output of any goroutine.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *logBuffer) lines() []string {
	return strings.FieldsFunc(b.String(), func(r rune) bool { return r == '\n' })
}

func (b *logBuffer) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func stateDir(t testing.TB) string { return filepath.Join(t.TempDir(), "state") }

func openStore(t testing.TB, dir string) *TokenStore {
	t.Helper()
	store, err := OpenTokenStore(dir, TokenStoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func mustShow(t testing.TB, store *TokenStore) string {
	t.Helper()
	plain, err := store.Show()
	if err != nil {
		t.Fatal(err)
	}
	return plain.Reveal()
}

func mustCreate(t testing.TB, store *TokenStore, name string, options CreateOptions) string {
	t.Helper()
	plain, _, err := store.Create(name, options)
	if err != nil {
		t.Fatal(err)
	}
	return plain.Reveal()
}

// pathRouter serves /servers/NAME/mcp for any name, as the daemon does, a
// public page and an admin page.
type pathRouter struct{ handler http.Handler }

func (p pathRouter) Route(path string) (Route, bool) {
	switch path {
	case "/healthz":
		return Route{Methods: []string{http.MethodGet}, Public: true, Handler: p.handler}, true
	case "/api/v1/status":
		return Route{Methods: []string{http.MethodGet}, Admin: true, Handler: p.handler}, true
	}
	rest, ok := strings.CutPrefix(path, "/servers/")
	if !ok {
		return Route{}, false
	}
	name, ok := strings.CutSuffix(strings.TrimSuffix(rest, "/"), "/mcp")
	if !ok || name == "" || strings.Contains(name, "/") {
		return Route{}, false
	}
	return Route{Methods: []string{http.MethodPost}, Server: name, Handler: p.handler}, true
}

// gateFixture is a gate over a real store, before a handler that counts.
type gateFixture struct {
	gate    *Gate
	handler http.Handler
	store   *TokenStore
	token   string // every right
	limited string // only the server "alpha", no admin right
	log     *logBuffer
	mu      sync.Mutex
	reached []*Principal
}

const (
	testHost   = "127.0.0.1:7317"
	testOrigin = "http://localhost:6274"
)

func newGateFixture(t testing.TB) *gateFixture {
	t.Helper()
	f := &gateFixture{log: &logBuffer{}, store: openStore(t, stateDir(t))}
	f.token = mustShow(t, f.store)
	f.limited = mustCreate(t, f.store, "limited", CreateOptions{Servers: []string{"alpha"}})
	f.gate = NewGate(f.store, Policy{
		Hosts:   []string{testHost, "localhost:7317", "[::1]:7317"},
		Origins: []string{"http://" + testHost, testOrigin},
	}, f.log.logger())
	f.handler = f.gate.Handler(pathRouter{http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, _ := PrincipalFrom(r.Context())
		f.mu.Lock()
		f.reached = append(f.reached, p)
		f.mu.Unlock()
		_, _ = io.WriteString(w, "reached")
	})})
	return f
}

func (f *gateFixture) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.reached)
}

// call sends a request; edit changes it first.
func (f *gateFixture) call(method, path string, edit func(*http.Request)) *http.Response {
	r := httptest.NewRequest(method, "http://"+testHost+path, strings.NewReader("{}"))
	r.URL.Scheme, r.URL.Host = "", "" // as net/http leaves them for an ordinary request
	if edit != nil {
		edit(r)
	}
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, r)
	return w.Result()
}

func bodyOf(t testing.TB, resp *http.Response) string {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func bearer(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}
