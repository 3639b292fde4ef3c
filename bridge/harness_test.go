package bridge

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"mcpd/security"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// process is one incarnation of a server in memory: what the bridge writes to
// its stdin is read line by line, what it says goes to the bridge's reader.
type process struct {
	t      *testing.T
	stdin  *io.PipeReader
	stdout *io.PipeWriter
	serve  func(p *process, line string)

	mu       sync.Mutex
	received []string
	changed  chan struct{} // closed and replaced whenever received grows
	ended    chan struct{}
}

func (p *process) run() {
	defer close(p.ended)
	r := bufio.NewReader(p.stdin)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			_ = p.stdout.Close()
			return
		}
		p.mu.Lock()
		p.received = append(p.received, strings.TrimSuffix(line, "\n"))
		close(p.changed)
		p.changed = make(chan struct{})
		p.mu.Unlock()
		p.serve(p, strings.TrimSuffix(line, "\n"))
	}
}

// say writes one line to the bridge.
func (p *process) say(format string, args ...any) {
	_, _ = fmt.Fprintf(p.stdout, format+"\n", args...)
}

// die ends the process as a crash does: both pipes break.
func (p *process) die() {
	_ = p.stdout.Close()
	_ = p.stdin.CloseWithError(errors.New("broken pipe"))
}

func (p *process) lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.received...)
}

// waitFor waits until a line that contains all parts has come in.
func (p *process) waitFor(parts ...string) string {
	p.t.Helper()
	for {
		p.mu.Lock()
		lines, changed := append([]string(nil), p.received...), p.changed
		p.mu.Unlock()
		for _, line := range lines {
			all := true
			for _, part := range parts {
				all = all && strings.Contains(line, part)
			}
			if all {
				return line
			}
		}
		select {
		case <-changed:
		case <-p.t.Context().Done():
			p.t.Fatalf("no line with %q came in", parts)
		}
	}
}

// request is how scripted servers read what they get.
type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name          string                     `json:"name"`
		URI           string                     `json:"uri"`
		Meta          map[string]json.RawMessage `json:"_meta"`
		Notifications json.RawMessage            `json:"notifications"`
		RequestID     json.RawMessage            `json:"requestId"`
	} `json:"params"`
}

func parse(t *testing.T, line string) request {
	t.Helper()
	var r request
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		t.Errorf("the server got a line that is not JSON: %q: %v", line, err)
	}
	return r
}

// pool is a Child that keeps one process up, the next one after a crash.
type pool struct {
	t     *testing.T
	u     *Upstream
	serve func(p *process, line string)

	mu      sync.Mutex
	conn    *Conn
	current *process
	starts  int
	all     []*Conn
}

func (c *pool) Acquire(ctx context.Context) (*Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn != nil && !isDone(c.conn) {
		return c.conn, nil
	}
	for range 3 {
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		p := &process{t: c.t, stdin: inR, stdout: outW, serve: c.serve, changed: make(chan struct{}), ended: make(chan struct{})}
		go p.run()
		c.starts++
		conn, err := c.u.Dial(ctx, Pipes{Stdin: inW, Stdout: outR})
		var again *RestartError
		if errors.As(err, &again) {
			<-p.ended
			continue
		}
		if err != nil {
			return nil, err
		}
		c.u.Ready(conn)
		c.conn, c.current = conn, p
		c.all = append(c.all, conn)
		return conn, nil
	}
	return nil, errors.New("it restarts for ever")
}

func (c *pool) process() *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

func (c *pool) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.all {
		conn.Close(nil)
	}
}

// rig is an Endpoint with one server "s" behind a real HTTP server. Requests
// come with a principal, as behind the gate.
type rig struct {
	t         *testing.T
	endpoint  *Endpoint
	upstream  *Upstream
	pool      *pool
	server    *httptest.Server
	principal *security.Principal
}

func newRig(t *testing.T, limits Limits, serve func(p *process, line string)) *rig {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	u := NewUpstream(UpstreamOptions{Name: "s", Version: "test", Limits: limits, Logger: logger})
	p := &pool{t: t, u: u, serve: serve}
	u.Bind(p)
	e := NewEndpoint(16<<20, logger)
	e.SetUpstreams(map[string]*Upstream{"s": u})
	r := &rig{t: t, endpoint: e, upstream: u, pool: p, principal: &security.Principal{ID: "p1", Name: "user"}}
	handler := e.Handler("s")
	r.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		handler.ServeHTTP(w, req.WithContext(security.WithPrincipal(req.Context(), r.principal)))
	}))
	t.Cleanup(func() {
		u.Close()
		p.close()
		r.server.Client().CloseIdleConnections()
		r.server.Close()
	})
	return r
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// headers are sent as given; an empty value leaves the header out.
type headers map[string]string

func modernHeaders(method, name string) headers {
	return headers{"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name}
}

func (r *rig) post(ctx context.Context, h headers, body string) *http.Response {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.server.URL, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for k, v := range h {
		if v == "" {
			req.Header.Del(k)
			continue
		}
		req.Header.Set(k, v)
	}
	resp, err := r.server.Client().Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func body(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// events reads an event stream; next gives the data of one event at a time.
type events struct {
	t *testing.T
	r *bufio.Reader
}

func streamOf(t *testing.T, resp *http.Response) *events {
	t.Helper()
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("Content-Type %q, status %d: %s", got, resp.StatusCode, body(t, resp))
	}
	return &events{t: t, r: bufio.NewReader(resp.Body)}
}

// next returns the next event's data, or "" at the end of the stream.
func (e *events) next() string {
	e.t.Helper()
	for {
		line, err := e.r.ReadString('\n')
		if err != nil {
			return ""
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			return strings.TrimSuffix(data, "\n")
		}
	}
}

// modernServer answers like a modern server with the given capabilities and
// hands every other request to serve.
func modernServer(capabilities string, serve func(p *process, r request, line string)) func(*process, string) {
	return func(p *process, line string) {
		r := parse(p.t, line)
		switch {
		case r.Method == "server/discover":
			p.say(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":%s,"ttlMs":0,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"scripted","version":"1"}}}}`, r.ID, capabilities)
		case serve != nil:
			serve(p, r, line)
		}
	}
}

func compact(t *testing.T, s string) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(s)); err != nil {
		t.Fatalf("%v in %s", err, s)
	}
	return b.String()
}
