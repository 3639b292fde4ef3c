package bridge

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"mcpd/bridge/ledger"
	"mcpd/security"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// inBubble runs a test on a fake clock: time passes only while everything
// waits, so that nothing in a test depends on how fast the machine is.
func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// reaction is what a scripted server does with a line. It reports whether it
// took the line; what it did not take waits in the process's inbox.
type reaction func(p *process, r request, line string) (took bool)

// process is one incarnation of a server in memory: what the bridge writes to
// its stdin is read line by line, what it says goes to the bridge's reader.
type process struct {
	t      testing.TB
	number int // 1 for the first one
	stdin  *io.PipeReader
	stdout *io.PipeWriter
	react  reaction

	mu      sync.Mutex
	all     []string
	inbox   []string
	changed chan struct{} // closed and replaced whenever a line comes in
	ended   chan struct{}
	paused  chan struct{} // non-nil: it reads nothing until this is closed
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
		line = strings.TrimSuffix(line, "\n")
		p.mu.Lock()
		p.all = append(p.all, line)
		p.mu.Unlock()
		took := p.react != nil && p.react(p, parse(p.t, line), line)
		p.mu.Lock()
		if !took {
			p.inbox = append(p.inbox, line)
		}
		close(p.changed)
		p.changed = make(chan struct{})
		paused := p.paused
		p.mu.Unlock()
		if paused != nil {
			<-paused
		}
	}
}

// stall makes the process stop reading after the next line; the returned
// function lets it go on. It needs a bubble.
func (p *process) stall() (resume func()) {
	synctest.Wait() // it is done with the line before
	ch := make(chan struct{})
	p.mu.Lock()
	p.paused = ch
	p.mu.Unlock()
	return sync.OnceFunc(func() {
		p.mu.Lock()
		p.paused = nil
		p.mu.Unlock()
		close(ch)
	})
}

// say writes one line to the bridge.
func (p *process) say(format string, args ...any) {
	_, _ = fmt.Fprintf(p.stdout, format+"\n", args...)
}

// answer writes a result.
func (p *process) answer(id json.RawMessage, result string) {
	p.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
}

// die ends the process as a crash does: both pipes break.
func (p *process) die() {
	_ = p.stdout.Close()
	_ = p.stdin.CloseWithError(errors.New("broken pipe"))
}

// lines are all lines that came in.
func (p *process) lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.all...)
}

// next takes the next line out of the inbox, and waits for it.
func (p *process) next() (request, string) {
	p.t.Helper()
	for {
		p.mu.Lock()
		changed := p.changed
		if len(p.inbox) > 0 {
			line := p.inbox[0]
			p.inbox = p.inbox[1:]
			p.mu.Unlock()
			return parse(p.t, line), line
		}
		p.mu.Unlock()
		select {
		case <-changed:
		case <-p.ended:
			p.t.Fatal("the process ended before another line came in")
		}
	}
}

// expect takes the next line, which has to be of the given method.
func (p *process) expect(method string) request {
	p.t.Helper()
	r, line := p.next()
	if r.Method != method {
		p.t.Fatalf("the server got %s, want %s", line, method)
	}
	return r
}

// quiet checks that nothing came in that the test did not take. It needs a
// bubble.
func (p *process) quiet() {
	p.t.Helper()
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.inbox) > 0 {
		p.t.Fatalf("the server also got %q", p.inbox)
	}
}

// request is how scripted servers read what they get.
type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name          string                     `json:"name"`
		URI           string                     `json:"uri"`
		Level         string                     `json:"level"`
		Cursor        string                     `json:"cursor"`
		Arguments     json.RawMessage            `json:"arguments"`
		Meta          map[string]json.RawMessage `json:"_meta"`
		Notifications json.RawMessage            `json:"notifications"`
		RequestID     json.RawMessage            `json:"requestId"`
		Reason        string                     `json:"reason"`
	} `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// parse reads what it can of a line, which has to be JSON.
func parse(t testing.TB, line string) request {
	var r request
	if err := json.Unmarshal([]byte(line), &r); err != nil && !errors.As(err, new(*json.UnmarshalTypeError)) {
		t.Errorf("the server got a line that is not JSON: %q: %v", line, err)
	}
	return r
}

// pool is a Child that keeps one process up, the next one after a crash.
type pool struct {
	t     testing.TB
	u     *Upstream
	react reaction

	mu      sync.Mutex
	conn    *Conn
	current *process
	starts  int
	conns   []*Conn
	refuse  error // what Acquire says instead
}

func (c *pool) Acquire(ctx context.Context) (*Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuse != nil {
		return nil, c.refuse
	}
	if c.conn != nil && !isDone(c.conn) {
		return c.conn, nil
	}
	return c.start(ctx)
}

// replace starts another process while the last one lives.
func (c *pool) replace(ctx context.Context) (old *Conn, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old = c.conn
	_, err = c.start(ctx)
	return old, err
}

func (c *pool) start(ctx context.Context) (*Conn, error) {
	for range 3 {
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		c.starts++
		p := &process{
			t: c.t, number: c.starts, stdin: inR, stdout: outW, react: c.react,
			changed: make(chan struct{}), ended: make(chan struct{}),
		}
		go p.run()
		conn, err := c.u.Dial(ctx, Pipes{Stdin: inW, Stdout: outR, Junk: func(line []byte) { c.u.log("junk: " + string(line)) }})
		if err != nil {
			_ = outW.Close()
			<-p.ended
			var again *RestartError
			if errors.As(err, &again) {
				continue
			}
			return nil, err
		}
		c.u.Ready(conn)
		c.conn, c.current = conn, p
		c.conns = append(c.conns, conn)
		return conn, nil
	}
	return nil, errors.New("it restarts for ever")
}

func (c *pool) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.Close(nil)
	}
}

// rigOptions describe a rig. Only react has to be there.
type rigOptions struct {
	react    reaction
	limits   Limits
	protocol Era
	eras     EraMemory
	maxBody  int64
	loopback bool // real TCP; else pipes in memory
	quiet    bool // no log in the test's output
	ledger   *ledger.Ledger
	retry    RetryPolicy
	asks     bool // legacy servers may ask clients
	sessions SessionPolicy
}

// rig is an Endpoint with one server "s" behind a real HTTP server. Requests
// come with a principal, as behind the gate.
type rig struct {
	t        testing.TB
	endpoint *Endpoint
	upstream *Upstream
	pool     *pool
	client   *http.Client
	url      string
	active   sync.WaitGroup // requests being handled

	mu        sync.Mutex
	principal *security.Principal
	log       []string // the server's own log
}

func newRig(t testing.TB, o rigOptions) *rig {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	if !o.quiet {
		logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if o.maxBody == 0 {
		o.maxBody = 16 << 20
	}
	r := &rig{t: t, principal: &security.Principal{ID: "p1", Name: "user"}}
	var sealer Sealer
	if o.asks {
		sealed, err := security.NewSealer(make([]byte, security.SealKeySize))
		if err != nil {
			t.Fatal(err)
		}
		sealer = sealed
	}
	u := NewUpstream(UpstreamOptions{
		Sealer: sealer, Name: "s", Version: "test", CommandLine: "scripted", Limits: o.limits, Protocol: o.protocol, Eras: o.eras, Logger: logger,
		Ledger: o.ledger, Retry: o.retry, Sessions: o.sessions,
		Log: func(line string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.log = append(r.log, line)
		},
	})
	r.upstream = u
	r.pool = &pool{t: t, u: u, react: o.react}
	u.Bind(r.pool)
	r.endpoint = NewEndpoint(o.maxBody, logger)
	r.endpoint.SetUpstreams(map[string]*Upstream{"s": u})

	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.active.Add(1)
		defer r.active.Done()
		ctx := req.Context()
		if p := r.principalNow(); p != nil {
			ctx = security.WithPrincipal(ctx, p)
		}
		name := strings.TrimPrefix(req.URL.Path, "/")
		handler := r.endpoint.Handler(name)
		if server, ok := strings.CutSuffix(name, "/legacy"); ok {
			handler = r.endpoint.SessionHandler(server)
		}
		handler.ServeHTTP(w, req.WithContext(ctx))
	})}
	var listener net.Listener
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 100}
	if o.loopback {
		var err error
		if listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		r.url = "http://" + listener.Addr().String() + "/"
	} else {
		pipes := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
		listener = pipes
		transport.DialContext = pipes.dial
		r.url = "http://server/"
	}
	r.client = &http.Client{Transport: transport}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		u.Close()
		_ = server.Close()
		transport.CloseIdleConnections()
		r.pool.close()
		u.End(gone())
		r.active.Wait()
		<-served
	})
	return r
}

// gone is a context that has ended.
func gone() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// pipeListener accepts connections that are pipes in memory.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

func (r *rig) principalNow() *security.Principal {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.principal
}

// as makes the requests that follow those of another principal.
func (r *rig) as(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.principal = &security.Principal{ID: id, Name: id}
}

func (r *rig) logged() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.log, "\n")
}

// up starts the server's process and gives it.
func (r *rig) up() *process {
	r.t.Helper()
	if _, err := r.pool.Acquire(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	return r.pool.process()
}

func (c *pool) process() *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// atRest checks that nothing of any request is left. It needs a bubble.
func (r *rig) atRest() {
	r.t.Helper()
	r.active.Wait()
	synctest.Wait()
	s := r.upstream.Stats()
	if s.InFlight != 0 || s.Listeners != 0 {
		r.t.Errorf("%d requests and %d listeners hold a slot", s.InFlight, s.Listeners)
	}
	r.upstream.load.Lock()
	if n := len(r.upstream.load.byPrincipal); n != 0 {
		r.t.Errorf("%d principals hold a slot", n)
	}
	r.upstream.load.Unlock()
	r.upstream.legacyCalls.mu.Lock()
	if n := len(r.upstream.legacyCalls.calls); n != 0 {
		r.t.Errorf("%d legacy calls are remembered", n)
	}
	r.upstream.legacyCalls.mu.Unlock()
	r.upstream.askings.mu.Lock()
	if a := r.upstream.askings; len(a.all)+len(a.byEntry)+len(a.byPrincipal) != 0 {
		r.t.Errorf("%d asked requests, %d keyed calls and %d principals are remembered", len(a.all), len(a.byEntry), len(a.byPrincipal))
	}
	r.upstream.askings.mu.Unlock()
	if n := r.upstream.clientSubscriptions(); n != 0 {
		r.t.Errorf("%d subscriptions are counted", n)
	}
	for i, c := range r.pool.conns {
		if calls := c.Load().Calls; calls != 0 {
			r.t.Errorf("process %d: %d requests are pending", i+1, calls)
		}
	}
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// metaWith is modernMeta with more members in front.
func metaWith(members string) string {
	return strings.Replace(modernMeta, `"_meta":{`, `"_meta":{`+members+`,`, 1)
}

// headers are sent as given; an empty value leaves the header out.
type headers map[string]string

func modernHeaders(method, name string) headers {
	return headers{"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": name}
}

// with gives a copy with one more header, or without one for "".
func (h headers) with(name, value string) headers {
	c := headers{name: value}
	for k, v := range h {
		if k != name {
			c[k] = v
		}
	}
	return c
}

// modernBody is a modern request; params are members besides _meta, "" for none.
func modernBody(id, method, params string) string {
	if params != "" {
		params += ","
	}
	if strings.Contains(params, `"_meta"`) {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s}}`, id, method, strings.TrimSuffix(params, ","))
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s%s}}`, id, method, params, modernMeta)
}

func (r *rig) request(ctx context.Context, h headers, body string) *http.Request {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"s", strings.NewReader(body))
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
	return req
}

// reply is a whole answer.
type reply struct {
	status int
	header http.Header
	body   string
	err    error
}

func (r *rig) do(req *http.Request) reply {
	r.t.Helper()
	resp, err := r.client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return reply{status: resp.StatusCode, header: resp.Header, body: string(b), err: err}
}

// post sends a request and reads the whole answer.
func (r *rig) post(h headers, body string) reply {
	r.t.Helper()
	rep := r.do(r.request(r.t.Context(), h, body))
	if rep.err != nil {
		r.t.Fatal(rep.err)
	}
	return rep
}

// modern posts a modern request, whose name is read from its params.
func (r *rig) modern(id, method, params string) reply {
	r.t.Helper()
	return r.post(modernHeaders(method, nameIn(params)), modernBody(id, method, params))
}

func nameIn(params string) string {
	var p struct{ Name, URI string }
	_ = json.Unmarshal([]byte("{"+params+"}"), &p)
	return p.Name + p.URI
}

// call is a request in flight.
type call struct {
	r      *rig
	cancel context.CancelFunc
	done   chan struct{}
	got    reply
}

// begin sends a request without waiting for the answer.
func (r *rig) begin(h headers, body string) *call {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	c := &call{r: r, cancel: cancel, done: make(chan struct{})}
	req := r.request(ctx, h, body)
	go func() {
		defer close(c.done)
		c.got = r.do(req)
	}()
	r.t.Cleanup(func() { cancel(); <-c.done })
	return c
}

func (r *rig) beginModern(id, method, params string) *call {
	r.t.Helper()
	return r.begin(modernHeaders(method, nameIn(params)), modernBody(id, method, params))
}

// wait gives the whole answer.
func (c *call) wait() reply {
	c.r.t.Helper()
	<-c.done
	if c.got.err != nil {
		c.r.t.Fatal(c.got.err)
	}
	return c.got
}

// leave disconnects.
func (c *call) leave() {
	c.cancel()
	<-c.done
}

// events splits an event stream into the data of its events.
func (rep reply) events() []string {
	var all []string
	for block := range strings.SplitSeq(rep.body, "\n\n") {
		for line := range strings.SplitSeq(block, "\n") {
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				all = append(all, data)
			}
		}
	}
	return all
}

// stream is an event stream that stays open.
type stream struct {
	t      testing.TB
	resp   *http.Response
	r      *bufio.Reader
	cancel context.CancelFunc
}

// open sends a request and waits for the beginning of its event stream.
func (r *rig) open(h headers, body string) *stream {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	resp, err := r.client.Do(r.request(ctx, h, body))
	if err != nil {
		cancel()
		r.t.Fatal(err)
	}
	s := &stream{t: r.t, resp: resp, r: bufio.NewReader(resp.Body), cancel: cancel}
	r.t.Cleanup(s.leave)
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		b, _ := io.ReadAll(resp.Body)
		r.t.Fatalf("Content-Type %q, status %d: %s", got, resp.StatusCode, b)
	}
	return s
}

func (s *stream) leave() {
	s.cancel()
	_ = s.resp.Body.Close()
}

// next gives the data of the next event, or "" at the end of the stream.
func (s *stream) next() string {
	s.t.Helper()
	for {
		line, err := s.r.ReadString('\n')
		if err != nil {
			return ""
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			return strings.TrimSuffix(data, "\n")
		}
	}
}

// want checks that the next event is JSON equal to want.
func (s *stream) want(want string) {
	s.t.Helper()
	sameJSON(s.t, s.next(), want)
}

// comment reads the next line that is not empty and checks that it is a comment.
func (s *stream) comment() {
	s.t.Helper()
	for {
		line, err := s.r.ReadString('\n')
		if err != nil {
			s.t.Fatal(err)
		}
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if line != ":" {
			s.t.Fatalf("the stream goes on with %q, want a comment", line)
		}
		return
	}
}

// canonical gives JSON in a spelling that can be compared.
func canonical(t testing.TB, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	b, _ := json.Marshal(v)
	return string(b)
}

func sameJSON(t testing.TB, got, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		t.Fatalf("%v in %q, want %s", err, got, want)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatalf("%v in %s", err, want)
	}
	gs, _ := json.Marshal(g)
	ws, _ := json.Marshal(w)
	if string(gs) != string(ws) {
		t.Fatalf("\n got %s\nwant %s", got, want)
	}
}

// wantError checks a reply's status and error code, and that the error's text
// has all parts. id is raw JSON, "" for an error without id.
func (rep reply) wantError(t testing.TB, status int, code int, id string, parts ...string) {
	t.Helper()
	body := rep.body
	if rep.header.Get("Content-Type") == "text/event-stream" {
		if all := rep.events(); len(all) > 0 {
			body = all[len(all)-1]
		}
	}
	var got struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatalf("status %d, body %q: %v", rep.status, rep.body, err)
	}
	if rep.status != status || got.Error.Code != code || string(got.ID) != id || got.JSONRPC != "2.0" {
		t.Errorf("got status %d: %s\nwant status %d, code %d, id %q", rep.status, rep.body, status, code, id)
	}
	if got.Error.Message == "" {
		t.Errorf("the error says nothing: %s", rep.body)
	}
	for _, part := range parts {
		if !strings.Contains(got.Error.Message, part) {
			t.Errorf("%q does not say %q", got.Error.Message, part)
		}
	}
}

// wantJSON checks that a reply is one JSON body with status 200, equal to want.
func (rep reply) wantJSON(t testing.TB, want string) {
	t.Helper()
	if ct := rep.header.Get("Content-Type"); rep.status != http.StatusOK || ct != "application/json" {
		t.Fatalf("status %d, Content-Type %q: %s", rep.status, ct, rep.body)
	}
	sameJSON(t, rep.body, want)
}

// modernServer answers server/discover as a modern server with the given
// capabilities and hands every other line to more, which may be nil.
func modernServer(capabilities string, more reaction) reaction {
	return func(p *process, r request, line string) bool {
		if r.Method == methodDiscover {
			p.answer(r.ID, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":`+capabilities+
				`,"ttlMs":0,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"scripted","version":"1"}}}`)
			return true
		}
		return more != nil && more(p, r, line)
	}
}

// legacyServer refuses server/discover, answers initialize, and hands every
// other line to more.
func legacyServer(version, capabilities string, more reaction) reaction {
	return func(p *process, r request, line string) bool {
		switch r.Method {
		case methodDiscover:
			p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, r.ID)
		case methodInitialize:
			p.answer(r.ID, `{"protocolVersion":"`+version+`","capabilities":`+capabilities+
				`,"serverInfo":{"name":"old","version":"0.9"},"instructions":"be kind"}`)
		case notifyInitialized:
		default:
			return more != nil && more(p, r, line)
		}
		return true
	}
}

// echo answers every request with its own line, so that a test sees what the
// server's stdin got.
func echo(p *process, r request, line string) bool {
	if r.ID != nil && r.Method != "" {
		p.answer(r.ID, `{"resultType":"complete","got":`+line+`}`)
	}
	return true
}

// listTools answers tools/list with these tools.
func listTools(tools string, more reaction) reaction {
	return func(p *process, r request, line string) bool {
		if r.Method == methodToolsList {
			p.answer(r.ID, `{"resultType":"complete","ttlMs":0,"cacheScope":"public","tools":`+tools+`}`)
			return true
		}
		return more != nil && more(p, r, line)
	}
}

// recorder keeps what is written to it.
type recorder struct {
	h http.Header
	b strings.Builder
}

func (r *recorder) Header() http.Header {
	if r.h == nil {
		r.h = http.Header{}
	}
	return r.h
}
func (r *recorder) Write(b []byte) (int, error) { return r.b.Write(b) }
func (r *recorder) WriteHeader(int)             {}

// settle waits until nothing moves any more. It needs a bubble.
func settle() { synctest.Wait() }
