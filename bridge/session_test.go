package bridge

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// legacyClient is a client of a legacy revision at the endpoint with sessions.
type legacyClient struct {
	r       *rig
	id      string
	version string
}

const allAbilities = `{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{"listChanged":true}}`

// greets begins a session.
func (r *rig) greets(version, capabilities string) *legacyClient {
	r.t.Helper()
	c := &legacyClient{r: r}
	rep := c.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%q,"capabilities":%s,"clientInfo":{"name":"old editor","version":"1"}}}`,
		version, capabilities))
	c.id, c.version = rep.header.Get("Mcp-Session-Id"), version
	if rep.status != 200 || c.id == "" {
		r.t.Fatalf("status %d, session id %q: %s", rep.status, c.id, rep.body)
	}
	if rep := c.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`); rep.status != 202 || rep.body != "" {
		r.t.Fatalf("initialized: status %d: %s", rep.status, rep.body)
	}
	return c
}

func (c *legacyClient) headers() headers {
	h := headers{}
	if c.id != "" {
		h["Mcp-Session-Id"] = c.id
	}
	if c.version != "" {
		h["MCP-Protocol-Version"] = c.version
	}
	return h
}

func (c *legacyClient) request(ctx context.Context, method, body string) *http.Request {
	c.r.t.Helper()
	req := c.r.request(ctx, c.headers(), body)
	req.Method = method
	req.URL.Path = "/s/legacy"
	if method != http.MethodPost {
		req.Body, req.ContentLength = nil, 0
		req.Header.Del("Content-Type")
	}
	return req
}

func (c *legacyClient) post(body string) reply {
	c.r.t.Helper()
	return c.send(http.MethodPost, body)
}

func (c *legacyClient) send(method, body string) reply {
	c.r.t.Helper()
	rep := c.r.do(c.request(c.r.t.Context(), method, body))
	if rep.err != nil {
		c.r.t.Fatal(rep.err)
	}
	return rep
}

// open sends a request whose answer is an event stream.
func (c *legacyClient) open(method, body string) *stream {
	c.r.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.r.t.Context()))
	resp, err := c.r.client.Do(c.request(ctx, method, body))
	if err != nil {
		cancel()
		c.r.t.Fatal(err)
	}
	s := &stream{t: c.r.t, resp: resp, r: bufio.NewReader(resp.Body), cancel: cancel}
	c.r.t.Cleanup(s.leave)
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		b, _ := io.ReadAll(resp.Body)
		c.r.t.Fatalf("Content-Type %q, status %d: %s", got, resp.StatusCode, b)
	}
	return s
}

// begin sends a request and does not wait for its answer.
func (c *legacyClient) begin(body string) *call {
	c.r.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.r.t.Context()))
	one := &call{r: c.r, cancel: cancel, done: make(chan struct{})}
	req := c.request(ctx, http.MethodPost, body)
	go func() {
		defer close(one.done)
		one.got = c.r.do(req)
	}()
	c.r.t.Cleanup(func() { cancel(); <-one.done })
	return one
}

const withSessions = 4

func sessionRig(t *testing.T, react reaction, o ...func(*rigOptions)) *rig {
	t.Helper()
	options := rigOptions{react: react, sessions: SessionPolicy{Enabled: true, Max: withSessions}}
	for _, f := range o {
		f(&options)
	}
	return newRig(t, options)
}

const fullModern = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"logging":{},"completions":{},"extensions":{"x":{}}}`

func TestWithoutTheSettingThereIsNoEndpointWithSessions(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		p := r.up()
		c := &legacyClient{r: r}
		for _, method := range []string{"POST", "GET", "DELETE"} {
			c.send(method, initializeBody("2025-11-25")).wantError(t, 404, CodeUnknownServer, map[string]string{"POST": "0"}[method], "legacy_sessions", "/servers/s/mcp")
		}
		p.quiet()
	})
}

func TestASessionHasALifeFromInitializeToDelete(t *testing.T) {
	for _, version := range []string{"2025-03-26", "2025-06-18", "2025-11-25"} {
		inBubble(t, func(t *testing.T) {
			r := sessionRig(t, modernServer(fullModern, acknowledgesAndEchoes))
			c := &legacyClient{r: r}
			rep := c.post(initializeBody(version))
			rep.wantJSON(t, `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"`+version+`",
				"capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"logging":{},"completions":{}},
				"serverInfo":{"name":"scripted","version":"1"}}}`)
			c.id = rep.header.Get("Mcp-Session-Id")
			if len(c.id) < 26 || strings.ContainsFunc(c.id, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
				t.Errorf("the session id is %q", c.id)
			}
			if n := r.upstream.Stats().Sessions; n != 1 {
				t.Errorf("%d sessions are counted", n)
			}
			c.post(`{"jsonrpc":"2.0","id":"p","method":"ping"}`).wantJSON(t, `{"jsonrpc":"2.0","id":"p","result":{}}`)
			if rep := c.send("DELETE", ""); rep.status != 204 || rep.body != "" {
				t.Errorf("DELETE: status %d: %s", rep.status, rep.body)
			}
			c.post(`{"jsonrpc":"2.0","id":"p","method":"ping"}`).wantError(t, 404, CodeUnknownSession, `"p"`, "initialize")
			c.send("GET", "").wantError(t, 404, CodeUnknownSession, "")
			c.send("DELETE", "").wantError(t, 404, CodeUnknownSession, "")
			if n := r.upstream.Stats().Sessions; n != 0 {
				t.Errorf("%d sessions are counted", n)
			}
			r.atRest()
		})
	}
}

func TestASessionIdOpensOnlyItsOwnersSession(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := sessionRig(t, modernServer(fullModern, acknowledgesAndEchoes))
		c := r.greets("2025-11-25", `{}`)
		other := r.greets("2025-11-25", `{}`)
		if c.id == other.id {
			t.Fatal("two sessions have one id")
		}
		const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
		forged := map[string]string{
			"of nobody": "AAAAAAAAAAAAAAAAAAAAAAAAAA", "cut short": c.id[:len(c.id)-1], "in another case": strings.ToLower(c.id), "with more": c.id + "A",
		}
		for name, id := range forged {
			f := &legacyClient{r: r, id: id}
			f.post(ping).wantError(t, 404, CodeUnknownSession, "1")
			f.send("GET", "").wantError(t, 404, CodeUnknownSession, "")
			if rep := f.send("DELETE", ""); rep.status != 404 {
				t.Errorf("an id %s can be deleted: %d", name, rep.status)
			}
		}
		r.as("p2")
		c.post(ping).wantError(t, 404, CodeUnknownSession, "1")
		c.post(`{"jsonrpc":"2.0","id":1,"result":{}}`).wantError(t, 404, CodeUnknownSession, "")
		c.post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`).wantError(t, 404, CodeUnknownSession, "1")
		c.send("GET", "").wantError(t, 404, CodeUnknownSession, "")
		c.send("DELETE", "").wantError(t, 404, CodeUnknownSession, "")
		r.as("p1")
		c.post(ping).wantJSON(t, `{"jsonrpc":"2.0","id":1,"result":{}}`)
		r.atRest()
	})
}

func TestWhatMakesNoSenseWithoutASession(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := sessionRig(t, modernServer(fullModern, acknowledgesAndEchoes))
		p := r.up()
		none := &legacyClient{r: r}
		none.post(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`).wantError(t, 400, codeInvalidRequest, "1", "Mcp-Session-Id", "initialize")
		none.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`).wantError(t, 400, codeInvalidRequest, "")
		none.post(`[]`).wantError(t, 400, codeInvalidRequest, "")
		none.post(`{"jsonrpc":"2.0","id":1,"result":{}}`).wantError(t, 400, codeInvalidRequest, "")
		none.send("GET", "").wantError(t, 400, codeInvalidRequest, "")
		none.send("DELETE", "").wantError(t, 400, codeInvalidRequest, "")
		none.post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`).wantError(t, 200, codeInvalidParams, "1")
		none.post(`{`).wantError(t, 400, codeParse, "")
		p.quiet()
		c := r.greets("2025-11-25", `{}`)
		c.post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`).wantError(t, 200, codeInvalidRequest, "1", "already")
		for version, says := range map[string]string{"2026-07-28": "/mcp", "1999-01-01": "2025-11-25"} {
			odd := &legacyClient{r: r, id: c.id, version: version}
			odd.post(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`).wantError(t, 400, codeInvalidRequest, "1", says)
			odd.send("GET", "").wantError(t, 400, codeInvalidRequest, "", says)
		}
		for _, method := range []string{"server/discover", "subscriptions/listen", "elicitation/create"} {
			c.post(`{"jsonrpc":"2.0","id":1,"method":"`+method+`"}`).wantError(t, 200, codeMethodNotFound, "1")
		}
		c.post(modernBody("1", "tools/list", "")).wantError(t, 200, codeInvalidRequest, "1", "/servers/s/mcp")
		if rep := c.send("HEAD", ""); rep.status != 405 {
			t.Errorf("HEAD: %d", rep.status)
		}
		p.quiet()
		r.atRest()
	})
}

func TestTheNumberOfSessionsIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := sessionRig(t, modernServer(fullModern, acknowledgesAndEchoes))
		var all []*legacyClient
		for range withSessions {
			all = append(all, r.greets("2025-11-25", `{}`))
		}
		full := &legacyClient{r: r}
		for range 50 {
			rep := full.post(initializeBody("2025-11-25"))
			rep.wantError(t, 503, CodeUnavailable, "0", "4 sessions", "max_legacy_sessions", "legacy_session_idle")
			if rep.header.Get("Mcp-Session-Id") != "" || rep.header.Get("Retry-After") == "" {
				t.Errorf("header %v", rep.header)
			}
		}
		all[0].send("DELETE", "")
		r.greets("2025-11-25", `{}`)
		r.upstream.SetSessionPolicy(SessionPolicy{Enabled: true, Max: withSessions + 1})
		r.greets("2025-11-25", `{}`)
		r.upstream.SetSessionPolicy(SessionPolicy{})
		settle()
		all[1].post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`).wantError(t, 404, CodeUnknownServer, "1", "legacy_sessions")
		if n := r.upstream.Stats().Sessions; n != 0 {
			t.Errorf("%d sessions are left", n)
		}
	})
}

func TestAnIdleSessionEnds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := sessionRig(t, modernServer(fullModern, acknowledges), func(o *rigOptions) { o.sessions.Idle = time.Minute })
		idle, used, busy := r.greets("2025-11-25", `{}`), r.greets("2025-11-25", `{}`), r.greets("2025-11-25", `{}`)
		p := r.pool.process()
		work := busy.begin(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow"}}`)
		q := p.expect("tools/call")
		for range 5 {
			time.Sleep(30 * time.Second)
			used.post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		}
		if n := r.upstream.Stats().Sessions; n != 2 {
			t.Errorf("%d sessions are open, want those that are used and busy", n)
		}
		idle.post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`).wantError(t, 404, CodeUnknownSession, "1")
		p.answer(q.ID, `{"resultType":"complete","content":[]}`)
		work.wait()
		time.Sleep(61 * time.Second)
		settle()
		if n := r.upstream.Stats().Sessions; n != 0 {
			t.Errorf("%d sessions are open", n)
		}
		r.atRest()
	})
}

func TestAClientThatOnlyListensIsAskedForASignOfLife(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := sessionRig(t, modernServer(`{}`, nil), func(o *rigOptions) { o.sessions.Idle = time.Minute })
		c := r.greets("2025-11-25", `{}`)
		s := c.open("GET", "")
		for i := range 3 {
			s.want(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i+1))
			if rep := c.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, i+1)); rep.status != 202 {
				t.Fatalf("the answer: status %d %s", rep.status, rep.body)
			}
		}
		begin := time.Now()
		s.want(`{"jsonrpc":"2.0","id":4,"method":"ping"}`)
		if end := s.next(); end != "" || time.Since(begin) != time.Minute+pingTimeout {
			t.Errorf("after %v the stream goes on with %q", time.Since(begin), end)
		}
		c.post(`{"jsonrpc":"2.0","id":4,"result":{}}`).wantError(t, 404, CodeUnknownSession, "")
		r.atRest()
	})
}

func TestACallCarriesWhatTheClientToldInInitialize(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := sessionRig(t, modernServer(fullModern, acknowledges))
		c := r.greets("2025-11-25", `{"elicitation":{},"sampling":{},"roots":{"listChanged":true},"experimental":{"x":{"y":1}},"tasks":{"list":{}},"odd":7}`)
		p := r.pool.process()
		const meta = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"old editor","version":"1"},
			"io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"experimental":{"x":{"y":1}},"roots":{},"sampling":{}},"io.modelcontextprotocol/logLevel":"info"`
		work := c.begin(`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"t","arguments":{"n":1.0},"requestState":"forged","_meta":{"k":1,"io.modelcontextprotocol/clientInfo":{}}}}`)
		q, line := p.next()
		sameJSON(t, line, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"t","arguments":{"n":1.0},"_meta":{%s,"k":1}}}`, q.ID, meta))
		p.answer(q.ID, `{"resultType":"complete","content":[],"ttlMs":7,"cacheScope":"public","_meta":{"x":1}}`)
		work.wait().wantJSON(t, `{"jsonrpc":"2.0","id":"a","result":{"content":[],"_meta":{"x":1}}}`)

		work = c.begin(`{"jsonrpc":"2.0","id":7,"method":"prompts/list"}`)
		q, line = p.next()
		sameJSON(t, line, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"prompts/list","params":{"_meta":{%s}}}`, q.ID, meta))
		p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, q.ID)
		work.wait().wantJSON(t, `{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"no"}}`)
		r.atRest()
	})
}

func TestProgressAndLogsComeOnTheCallsOwnStream(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := sessionRig(t, modernServer(fullModern, acknowledges))
		c := r.greets("2025-11-25", `{}`)
		p := r.pool.process()
		c.post(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"loud"}}`).wantError(t, 200, codeInvalidParams, "1")
		c.post(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"error"}}`).wantJSON(t, `{"jsonrpc":"2.0","id":1,"result":{}}`)
		work := c.begin(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"mine"}}}`)
		q := p.expect("tools/call")
		if got := string(q.Params.Meta["io.modelcontextprotocol/logLevel"]); got != `"error"` {
			t.Errorf("the log level is %s", got)
		}
		p.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`, q.Params.Meta["progressToken"])
		p.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"quiet"}}`)
		p.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"alert","data":"loud"}}`)
		p.answer(q.ID, `{"resultType":"complete","content":[]}`)
		events := work.wait().events()
		if len(events) != 3 {
			t.Fatalf("events %q", events)
		}
		sameJSON(t, events[0], `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"mine","progress":1}}`)
		sameJSON(t, events[1], `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"alert","data":"loud"}}`)
		sameJSON(t, events[2], `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
		r.atRest()
	})
}

func TestOnlyANotificationCancels(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := sessionRig(t, modernServer(fullModern, acknowledges))
		c, other := r.greets("2025-11-25", `{}`), r.greets("2025-11-25", `{}`)
		p := r.pool.process()
		const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`
		mine, theirs := c.begin(body), (*call)(nil)
		first := p.expect("tools/call")
		theirs = other.begin(body)
		second := p.expect("tools/call")
		c.post(body).wantError(t, 200, codeInvalidRequest, "1", "in flight already")
		c.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)
		c.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}`)
		p.quiet()
		c.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		mine.wait().wantError(t, 200, CodeCancelled, "1")
		if q := p.expect("notifications/cancelled"); string(q.Params.RequestID) != string(first.ID) {
			t.Errorf("request %s was cancelled, want %s", q.Params.RequestID, first.ID)
		}
		theirs.leave() // to a legacy client that is no cancellation
		p.quiet()
		p.answer(second.ID, `{"resultType":"complete","content":[]}`)
		settle()
		// The session is in order all the same, and the id is free again.
		again := other.begin(body)
		q := p.expect("tools/call")
		p.answer(q.ID, `{"resultType":"complete","content":[]}`)
		again.wait().wantJSON(t, `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
		r.atRest()
	})
}

func TestDeleteEndsWhatTheSessionDoes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := sessionRig(t, modernServer(fullModern, acknowledges))
		c := r.greets("2025-11-25", `{}`)
		p := r.pool.process()
		s := c.open("GET", "")
		c.post(`{"jsonrpc":"2.0","id":5,"method":"resources/subscribe","params":{"uri":"a:1"}}`).wantJSON(t, `{"jsonrpc":"2.0","id":5,"result":{}}`)
		work := c.begin(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`)
		q := p.expect("tools/call")
		if rep := c.send("DELETE", ""); rep.status != 204 {
			t.Fatalf("status %d", rep.status)
		}
		work.wait().wantError(t, 404, CodeUnknownSession, "1", "ended the session")
		if got := s.next(); got != "" {
			t.Errorf("the stream goes on with %s", got)
		}
		settle()
		cancelled := map[string]bool{}
		for range 2 {
			cancelled[string(p.expect("notifications/cancelled").Params.RequestID)] = true
		}
		if !cancelled[string(q.ID)] {
			t.Errorf("cancelled was %v", cancelled)
		}
		r.atRest()
	})
}

// acknowledges grants every subscription.
func acknowledges(p *process, q request, _ string) bool {
	if q.Method != methodListen {
		return false
	}
	p.say(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"notifications":%s}}`,
		q.ID, q.Params.Notifications)
	return true
}

func acknowledgesAndEchoes(p *process, q request, line string) bool {
	return acknowledges(p, q, line) || echo(p, q, line)
}

// subscriptionOf finds the id of the subscription at the server whose filter
// holds a text.
func (p *process) subscriptionOf(text string) string {
	p.t.Helper()
	synctest.Wait()
	lines := p.lines()
	for i := len(lines) - 1; i >= 0; i-- {
		if q := parse(p.t, lines[i]); q.Method == methodListen && strings.Contains(string(q.Params.Notifications), text) {
			return string(q.ID)
		}
	}
	p.t.Fatalf("there is no subscription with %s in %q", text, lines)
	return ""
}

func (p *process) says(subscription, method, members string) {
	p.say(`{"jsonrpc":"2.0","method":%q,"params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}%s}}`, method, subscription, members)
}

func TestChangesComeOnTheSessionsStream(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := sessionRig(t, modernServer(fullModern, acknowledges))
		c, other := r.greets("2025-11-25", `{}`), r.greets("2025-06-18", `{}`)
		p := r.pool.process()
		s, o := c.open("GET", ""), other.open("GET", "")
		s.comment()
		for _, uri := range []string{"a:1", "a:2", "a:1"} {
			c.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":5,"method":"resources/subscribe","params":{"uri":%q}}`, uri)).wantJSON(t, `{"jsonrpc":"2.0","id":5,"result":{}}`)
		}
		lists := p.subscriptionOf("toolsListChanged")
		p.says(lists, notifyToolsChanged, "")
		const tools = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{}}}`
		s.want(tools)
		o.want(tools)
		p.says(p.subscriptionOf("a:1"), notifyResourceUpdated, `,"uri":"a:1/sub"`)
		s.want(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"_meta":{},"uri":"a:1/sub"}}`)

		// One stream at a time: the newer one takes over.
		s2 := c.open("GET", "")
		if got := s.next(); got != "" {
			t.Errorf("the first stream goes on with %s", got)
		}
		p.says(lists, notifyPromptsChanged, "")
		const prompts = `{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{"_meta":{}}}`
		s2.want(prompts)
		o.want(prompts)

		// What comes while no stream is open is told once when one is.
		s2.leave()
		settle()
		for range 3 {
			p.says(lists, notifyResourcesChanged, "")
			p.says(p.subscriptionOf("a:2"), notifyResourceUpdated, `,"uri":"a:2"`)
		}
		for range 3 {
			o.next()
		}
		settle()
		c.post(`{"jsonrpc":"2.0","id":5,"method":"resources/unsubscribe","params":{"uri":"a:1"}}`).wantJSON(t, `{"jsonrpc":"2.0","id":5,"result":{}}`)
		if q := p.expect("notifications/cancelled"); string(q.Params.RequestID) != p.subscriptionOf("a:1") {
			t.Errorf("cancelled was %s", q.Params.RequestID)
		}
		s3 := c.open("GET", "")
		s3.want(`{"jsonrpc":"2.0","method":"notifications/resources/list_changed","params":{"_meta":{}}}`)
		s3.want(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"_meta":{},"uri":"a:2"}}`)

		// A new process is subscribed to again, and the client told to read again.
		p.die()
		settle()
		r.up()
		seen := s3.next() + s3.next() + s3.next() + s3.next()
		for _, want := range []string{"tools/list_changed", "prompts/list_changed", "resources/list_changed", `"uri":"a:2"`} {
			if !strings.Contains(seen, want) {
				t.Errorf("after the restart came %s, without %s", seen, want)
			}
		}
		c.send("DELETE", "")
		other.send("DELETE", "")
		r.atRest()
	})
}

func TestASubscriptionIsRefusedWithTheServersReason(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := sessionRig(t, modernServer(fullModern, func(p *process, q request, line string) bool {
			switch {
			case q.Method != methodListen:
				return false
			case strings.Contains(line, "forbidden:"):
				p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no such resource"}}`, q.ID)
			case strings.Contains(line, "still:"):
				p.say(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"notifications":{}}}`, q.ID)
				p.answer(q.ID, `{"resultType":"complete"}`)
			case strings.Contains(line, "silent:"):
			default:
				return acknowledges(p, q, line)
			}
			return true
		}))
		c := r.greets("2025-11-25", `{}`)
		subscribe := func(uri string) reply {
			return c.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":5,"method":"resources/subscribe","params":{"uri":%q}}`, uri))
		}
		subscribe("forbidden:1").wantError(t, 200, codeInvalidParams, "5", "no such resource")
		subscribe("").wantError(t, 200, codeInvalidParams, "5", "uri")
		subscribe("still:1").wantError(t, 200, codeInvalidRequest, "5", "does not tell")
		subscribe("silent:1").wantError(t, 504, CodeTimeout, "5", "acknowledge")
		subscribe("fine:1").wantJSON(t, `{"jsonrpc":"2.0","id":5,"result":{}}`)
		r.atRestBut(1)
	})
}

// atRestBut is atRest where sessions hold subscriptions.
func (r *rig) atRestBut(subscriptions int) {
	r.t.Helper()
	settle()
	if n := r.upstream.clientSubscriptions(); n != subscriptions {
		r.t.Errorf("%d subscriptions are counted, want %d", n, subscriptions)
	}
}

func TestAReaderThatIsTooSlowLosesItsStreamAndLearnsWhatChanged(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := sessionRig(t, modernServer(fullModern, acknowledges), func(o *rigOptions) {
			o.limits = Limits{StreamBufferBytes: 64 << 10}
		})
		c, other := r.greets("2025-11-25", `{}`), r.greets("2025-11-25", `{}`)
		p := r.pool.process()
		s, o := c.open("GET", ""), other.open("GET", "")
		s.comment() // and reads nothing more
		lists := p.subscriptionOf("toolsListChanged")
		padding := strings.Repeat("x", 16<<10)
		for range 100 {
			p.says(lists, notifyToolsChanged, `,"padding":"`+padding+`"`)
			if got := o.next(); !strings.Contains(got, notifyToolsChanged) {
				t.Fatalf("the other client got %.100s", got)
			}
		}
		s.leave()
		settle()
		if got := c.open("GET", "").next(); !strings.Contains(got, notifyToolsChanged) {
			t.Errorf("the next stream begins with %.100s", got)
		}
	})
}

func TestABatchIsAnsweredInTheOneRevisionThatHasThem(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := sessionRig(t, modernServer(fullModern, acknowledgesAndEchoes))
		r.greets("2025-06-18", `{}`).post(`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`).wantError(t, 400, codeInvalidRequest, "", "batch")
		c := r.greets("2025-03-26", `{}`)
		p := r.pool.process()
		if rep := c.post(`[{"jsonrpc":"2.0","method":"notifications/roots/list_changed"},{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}]`); rep.status != 202 {
			t.Errorf("status %d: %s", rep.status, rep.body)
		}
		rep := c.post("[ {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"},\n {\"jsonrpc\":\"2.0\",\"id\":\"b\",\"method\":\"tools/call\",\"params\":{\"name\":\"t\"}}," +
			`{"jsonrpc":"2.0","id":3,"method":"server/discover"},{"jsonrpc":"2.0","method":"notifications/initialized"}]`)
		if rep.status != 200 || rep.header.Get("Content-Type") != "application/json" || !strings.HasPrefix(rep.body, "[") {
			t.Fatalf("status %d: %s", rep.status, rep.body)
		}
		for _, part := range []string{`{"jsonrpc":"2.0","id":1,"result":{}}`, `"id":"b"`, `"name":"t"`, `"id":3`, `-32601`} {
			if !strings.Contains(rep.body, part) {
				t.Errorf("%s lacks %s", rep.body, part)
			}
		}
		before := len(p.lines())
		for body, says := range map[string]string{
			`[]`:  "empty",
			`[1]`: "object",
			`[[{"jsonrpc":"2.0","id":1,"method":"ping"}]]`:                                                                       "batch",
			`[{"jsonrpc":"2.0","id":1,"method":"tools/list"},{"id":1}]`:                                                          "2.0",
			`[` + strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"ping"},`, 100) + `{"jsonrpc":"2.0","id":1,"method":"ping"}]`: "100",
		} {
			c.post(body).wantError(t, 400, codeInvalidRequest, "", says)
		}
		c.post(`[{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26"}},{"jsonrpc":"2.0","id":2,"method":"ping"}]`)
		if after := len(p.lines()); after != before {
			t.Errorf("the server got %q", p.lines()[before:])
		}
		r.atRest()
	})
}
