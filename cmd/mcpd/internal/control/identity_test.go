package control

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"mcpd/security"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// owner is a Daemon that is asked for nothing but who it is and how it is.
type owner struct {
	Daemon
	id Identity
}

func (o owner) Identity() Identity { return o.id }
func (o owner) Status() Status     { return Status{Version: "v1"} }

// listener is a program on a port, which notes whether it was sent a token.
type listener struct {
	*httptest.Server
	addr       string
	tokens     atomic.Int64
	challenges atomic.Int64
}

func listen(t *testing.T, handler func(l *listener) http.Handler) *listener {
	t.Helper()
	l := &listener{}
	var h http.Handler
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			l.tokens.Add(1)
		}
		if r.URL.Path == Prefix+challengePath {
			l.challenges.Add(1)
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(l.Close)
	l.addr = l.Listener.Addr().String()
	h = handler(l)
	return l
}

// daemonWith is a program that answers as a daemon with that key does.
func daemonWith(key string) func(*listener) http.Handler {
	return func(l *listener) http.Handler {
		api := NewAPI(owner{id: Identity{l.addr, security.NewSecret(key)}}, slog.New(slog.DiscardHandler))
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			route, ok := api.Route(r.URL.Path)
			if !ok {
				http.NotFound(w, r)
				return
			}
			route.Handler.ServeHTTP(w, r)
		})
	}
}

func ask(ctx context.Context, addr string) (Status, error) {
	c := Identity{addr, security.NewSecret("the key")}.NewClient("the token")
	defer c.Close()
	return c.Status(ctx)
}

func refused(t *testing.T, l *listener, err error) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || !strings.Contains(err.Error(), "did not prove that it is your mcpd") || e.Hint == "" {
		t.Errorf("got %v", err)
	}
	if strings.Contains(err.Error(), "the key") {
		t.Errorf("the key is in %q", err)
	}
	if n := l.tokens.Load(); n > 0 {
		t.Errorf("it was sent a token %d times", n)
	}
}

func TestTheDaemonProvesItselfOnEveryConnectionAndThenGetsTheToken(t *testing.T) {
	l := listen(t, daemonWith("the key"))
	c := Identity{l.addr, security.NewSecret("the key")}.NewClient("the token")
	defer c.Close()
	for range 3 {
		if st, err := c.Status(t.Context()); err != nil || st.Version != "v1" {
			t.Fatalf("%+v, %v", st, err)
		}
	}
	if n := l.challenges.Load(); n != 1 || l.tokens.Load() != 3 {
		t.Errorf("%d challenges for one connection, %d requests with a token", n, l.tokens.Load())
	}
	l.CloseClientConnections()
	if _, err := c.Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := l.challenges.Load(); n != 2 {
		t.Errorf("%d challenges for two connections", n)
	}
}

func TestWhoDoesNotHaveTheKeyIsSentNoToken(t *testing.T) {
	var last string
	var mu sync.Mutex
	for name, handler := range map[string]func(*listener) http.Handler{
		"a daemon of somebody else": daemonWith("another key"),
		"a daemon without a key":    daemonWith(""),
		"a program that says yes": func(*listener) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{}`)) })
		},
		"a program that knows no challenge": func(*listener) http.Handler { return http.NotFoundHandler() },
		"a program that passes the question on": func(*listener) http.Handler {
			real := listen(t, daemonWith("the key"))
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				req, err := http.NewRequestWithContext(r.Context(), r.Method, real.URL+r.URL.Path, r.Body)
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := real.Client().Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				defer func() { _ = resp.Body.Close() }()
				if resp.StatusCode != http.StatusOK {
					t.Errorf("the daemon answered %s", resp.Status)
				}
				_, _ = io.Copy(w, resp.Body)
			})
		},
		"a program that repeats an earlier answer": func(l *listener) http.Handler {
			real := daemonWith("the key")(l)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				if last == "" { // what it may have seen once, on its own port even
					recorder := httptest.NewRecorder()
					body := `{"nonce":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}`
					real.ServeHTTP(recorder, httptest.NewRequestWithContext(r.Context(), http.MethodPost, Prefix+challengePath, strings.NewReader(body)))
					if last = recorder.Body.String(); !strings.Contains(last, "proof") {
						t.Errorf("the daemon answered %s", last)
					}
				}
				_, _ = io.WriteString(w, last)
			})
		},
		"a program that sends too much": func(*listener) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, strings.Repeat(" ", 1<<20)+"{}")
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := listen(t, handler)
			_, err := ask(t.Context(), l.addr)
			refused(t, l, err)
		})
	}
}

func TestAProgramThatSpeaksNoHTTPIsSentNoToken(t *testing.T) {
	for name, answer := range map[string]string{"garbage": "SSH-2.0-x\r\n\r\n", "nothing": ""} {
		t.Run(name, func(t *testing.T) {
			l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			got := make(chan string, 1)
			go func() {
				conn, err := l.Accept()
				if err != nil {
					got <- err.Error()
					return
				}
				defer func() { _ = conn.Close() }()
				_, _ = io.WriteString(conn, answer)
				var text strings.Builder
				buffer := make([]byte, 4096)
				for {
					n, err := conn.Read(buffer)
					text.Write(buffer[:n])
					if answer == "" && strings.Contains(text.String(), "nonce") {
						cancel() // the person's patience is at an end
					}
					if err != nil {
						break
					}
				}
				got <- text.String()
			}()
			if _, err := ask(ctx, l.Addr().String()); err == nil {
				t.Error("it was taken for the daemon")
			}
			if text := <-got; strings.Contains(text, "Authorization") || !strings.Contains(text, "nonce") {
				t.Errorf("it was sent\n%s", text)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNothingIsSentToAnotherAddress(t *testing.T) {
	l := listen(t, daemonWith("the key"))
	c := Identity{"127.0.0.1:1", security.NewSecret("the key")}.NewHTTPClient()
	defer c.CloseIdleConnections()
	resp, err := c.Get(l.URL)
	if err == nil {
		_ = resp.Body.Close()
		t.Error("it was reached")
	}
	if l.challenges.Load() != 0 {
		t.Error("it was asked")
	}
}

func TestAChallengeIsCheckedBeforeItIsAnswered(t *testing.T) {
	l := listen(t, daemonWith("the key"))
	for _, body := range []string{"", "{}", `{"nonce":"AAAA"}`, `{"nonce":1}`, `[]`, `{"nonce":"` + strings.Repeat("A", 100000) + `"}`} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, l.URL+Prefix+challengePath, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := l.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode/100 != 4 || strings.Contains(string(answer), "proof") {
			t.Errorf("%.40s: %s %s, %v", body, resp.Status, answer, err)
		}
		_ = resp.Body.Close()
	}
}
