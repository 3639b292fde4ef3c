package bridge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"mcpd/security"
)

func TestBytesThatNeedNoChangeTravelUnchanged(t *testing.T) {
	r := newRig(t, rigOptions{react: modernServer(`{}`, echo), loopback: true})
	params := `{"zeta":1.50,"a":[1e2, 0.10],"name":"t","arguments":{"text":"é\u00e9 \"q\"","n":12345678901234567890},` + modernMeta + `}`
	rep := r.post(modernHeaders("vendor/x", ""), `{ "jsonrpc":"2.0","id":"a\u0062" ,"extra":[{}], "method":"vendor/x","params":`+params+`}`)
	if rep.status != http.StatusOK || rep.header.Get("Content-Type") != "application/json" {
		t.Fatalf("status %d: %s", rep.status, rep.body)
	}
	if !strings.Contains(rep.body, `"id":"a\u0062"`) {
		t.Errorf("the id came back in another spelling: %s", rep.body)
	}
	lines := r.pool.process().lines()
	if want := `{ "jsonrpc":"2.0","id":2 ,"extra":[{}], "method":"vendor/x","params":` + params + `}`; lines[1] != want {
		t.Errorf("server's stdin:\n got %s\nwant %s", lines[1], want)
	}
}

func TestAPrettyPrintedBodyReachesTheServerAsOneLine(t *testing.T) {
	r := newRig(t, rigOptions{react: modernServer(`{}`, echo), loopback: true})
	rep := r.post(modernHeaders("vendor/x", ""), strings.ReplaceAll(
		"{\n\t\"jsonrpc\": \"2.0\",\r\n\t\"id\": 1, \"method\": \"vendor/x\",\n \"params\": {\n"+modernMeta+",\n\"text\":\"a\\nb\"}\n}\n", "\t", "\t"))
	if rep.status != http.StatusOK {
		t.Fatalf("status %d: %s", rep.status, rep.body)
	}
	if lines := r.pool.process().lines(); len(lines) != 2 || strings.ContainsAny(lines[1], "\r\n") || !strings.Contains(lines[1], `"text":"a\nb"`) {
		t.Errorf("server's stdin: %q", lines)
	}
}

func TestEveryIDComesBackAsItWasSent(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, echo)})
		for _, id := range []string{`1`, `0`, `-7`, `1.0`, `1e2`, `"1"`, `""`, `"ü\u00fc\/"`, `123456789012345678901234567890`} {
			rep := r.modern(id, "vendor/x", "")
			if rep.status != http.StatusOK || !strings.HasPrefix(rep.body, `{"jsonrpc":"2.0","id":`+id+`,"result"`) {
				t.Errorf("id %s: status %d: %s", id, rep.status, rep.body)
			}
			rep = r.modern(id, "ping", "")
			if !strings.HasPrefix(rep.body, `{"jsonrpc":"2.0","id":`+id+`,"error"`) {
				t.Errorf("id %s in an error: %s", id, rep.body)
			}
		}
		r.atRest()
	})
}

// untouched fails when the server saw anything but its greeting.
func untouched(t *testing.T, r *rig) {
	t.Helper()
	if p := r.pool.process(); p != nil {
		p.quiet()
	}
}

func TestABodyThatIsNoRequestIsRefusedAndTheServerSeesNothing(t *testing.T) {
	request := modernBody("7", "vendor/x", "")
	for name, c := range map[string]struct {
		body   string
		status int
		code   int
		id     string
		says   string
	}{
		"a batch of requests":           {`[` + request + `]`, 400, codeInvalidRequest, "", "batch"},
		"an empty batch":                {`[]`, 400, codeInvalidRequest, "", "batch"},
		"a result":                      {`{"jsonrpc":"2.0","id":7,"result":{}}`, 400, codeInvalidRequest, "", "response"},
		"an error":                      {`{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"m"}}`, 400, codeInvalidRequest, "", "response"},
		"result and error":              {`{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1,"message":"m"}}`, 400, codeInvalidRequest, "", ""},
		"no JSON":                       {`hello`, 400, codeParse, "", "JSON"},
		"an empty body":                 {``, 400, codeParse, "", "JSON"},
		"white space":                   {" \r\n", 400, codeParse, "", "JSON"},
		"half a request":                {request[:len(request)-1], 400, codeParse, "", "JSON"},
		"two requests":                  {request + request, 400, codeParse, "", "JSON"},
		"a byte order mark":             {"\xEF\xBB\xBF" + request, 400, codeParse, "", "JSON"},
		"invalid UTF-8":                 {strings.Replace(request, "vendor/x", "vendor/\xff", 1), 400, codeParse, "", "JSON"},
		"half a surrogate pair":         {strings.Replace(request, "vendor/x", `vendor/\ud800`, 1), 400, codeParse, "", "JSON"},
		"a string":                      {`"hello"`, 400, codeInvalidRequest, "", "object"},
		"null":                          {`null`, 400, codeInvalidRequest, "", "object"},
		"a null id":                     {strings.Replace(request, `"id":7`, `"id":null`, 1), 400, codeInvalidRequest, "", "id"},
		"a fraction as id":              {strings.Replace(request, `"id":7`, `"id":7.5`, 1), 400, codeInvalidRequest, "", "id"},
		"an object as id":               {strings.Replace(request, `"id":7`, `"id":{}`, 1), 400, codeInvalidRequest, "", "id"},
		"no jsonrpc member":             {strings.Replace(request, `"jsonrpc":"2.0",`, ``, 1), 400, codeInvalidRequest, "7", "jsonrpc"},
		"JSON-RPC 1.0":                  {strings.Replace(request, `"2.0"`, `"1.0"`, 1), 400, codeInvalidRequest, "7", "jsonrpc"},
		"params that are an array":      {`{"jsonrpc":"2.0","id":7,"method":"vendor/x","params":[]}`, 400, codeInvalidRequest, "7", "params"},
		"a method that is no string":    {`{"jsonrpc":"2.0","id":7,"method":1}`, 400, codeInvalidRequest, "7", "method"},
		"the method twice":              {strings.Replace(request, `"id":7`, `"id":7,"method":"tools/call"`, 1), 400, codeInvalidRequest, "7", "method"},
		"the method twice, once hidden": {strings.Replace(request, `"id":7`, `"id":7,"m\u0065thod":"tools/call"`, 1), 400, codeInvalidRequest, "7", "method"},
		"the id twice":                  {strings.Replace(request, `"id":7`, `"id":7,"id":8`, 1), 400, codeInvalidRequest, "", "id"},
		"a name twice in params":        {modernBody("7", "tools/call", `"name":"a","name":"b"`), 400, codeInvalidRequest, "7", "name"},
		"a version twice in _meta":      {strings.Replace(request, `"_meta":{`, `"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-06-18",`, 1), 400, codeInvalidRequest, "7", "protocolVersion"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
				r.up()
				rep := r.post(modernHeaders("vendor/x", ""), c.body)
				rep.wantError(t, c.status, c.code, c.id, c.says)
				if strings.Contains(rep.body, `"id":null`) {
					t.Errorf("an unknown id is left out, not null: %s", rep.body)
				}
				untouched(t, r)
				r.atRest()
			})
		})
	}
}

func TestWhatTheHeadersOfARequestRuleOut(t *testing.T) {
	ok := modernHeaders("vendor/x", "")
	for name, c := range map[string]struct {
		h      headers
		status int
		code   int
	}{
		"Accept of neither type":            {ok.with("Accept", "text/html, image/*"), 406, CodeNotAcceptable},
		"Accept that refuses both":          {ok.with("Accept", "application/json;q=0, text/event-stream;q=0.000"), 406, CodeNotAcceptable},
		"Accept that refuses both of all":   {ok.with("Accept", "*/*, application/json;q=0, text/event-stream; q=0"), 406, CodeNotAcceptable},
		"no Content-Type":                   {ok.with("Content-Type", ""), 415, CodeMediaType},
		"text/plain, which needs no CORS":   {ok.with("Content-Type", "text/plain"), 415, CodeMediaType},
		"a form":                            {ok.with("Content-Type", "application/x-www-form-urlencoded"), 415, CodeMediaType},
		"a longer media type":               {ok.with("Content-Type", "application/jsonx"), 415, CodeMediaType},
		"another charset":                   {ok.with("Content-Type", "application/json; charset=utf-16"), 415, CodeMediaType},
		"another charset, later and quoted": {ok.with("Content-Type", `application/json; v=1; Charset="ISO-8859-1"`), 415, CodeMediaType},
		"UTF-8, quoted":                     {ok.with("Content-Type", `application/json;charset="UTF-8"`), 200, 0},
		"a compressed body":                 {ok.with("Content-Encoding", "gzip"), 415, CodeMediaType},
		"any Accept":                        {ok.with("Accept", "*/*"), 200, 0},
		"no Accept":                         {ok.with("Accept", ""), 200, 0},
		"JSON alone":                        {ok.with("Accept", "application/json"), 200, 0},
		"a range of JSON":                   {ok.with("Accept", "application/*;q=0.1"), 200, 0},
		"JSON with a charset, in capitals":  {ok.with("Content-Type", "Application/JSON; charset=utf-8"), 200, 0},
		"a session id and a last event id":  {ok.with("Mcp-Session-Id", "abc").with("Last-Event-ID", "5"), 200, 0},
		"identity, which is no compression": {ok.with("Content-Encoding", "identity"), 200, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				react := modernServer(`{}`, echo)
				if c.code != 0 {
					react = modernServer(`{}`, nil)
				}
				r := newRig(t, rigOptions{react: react})
				r.up()
				rep := r.post(c.h, modernBody("7", "vendor/x", ""))
				if c.code != 0 {
					rep.wantError(t, c.status, c.code, "")
					untouched(t, r)
				} else if rep.status != c.status {
					t.Errorf("status %d: %s", rep.status, rep.body)
				}
				if rep.header.Get("Mcp-Session-Id") != "" {
					t.Error("a session id was minted")
				}
				r.atRest()
			})
		})
	}
}

func TestAClientThatTakesOnlyEventStreamsGetsOne(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, echo)})
		rep := r.post(modernHeaders("vendor/x", "").with("Accept", "text/event-stream"), modernBody("7", "vendor/x", ""))
		if ct := rep.header.Get("Content-Type"); ct != "text/event-stream" || len(rep.events()) != 1 {
			t.Errorf("Content-Type %q: %q", ct, rep.body)
		}
	})
}

func TestABodyOverTheLimitIsRefusedWhetherItSaysSoOrNot(t *testing.T) {
	for _, announced := range []bool{true, false} {
		t.Run(fmt.Sprintf("length announced %v", announced), func(t *testing.T) {
			r := newRig(t, rigOptions{react: modernServer(`{}`, echo), maxBody: 300, loopback: true})
			r.up()
			post := func(size int) reply {
				body := modernBody("7", "vendor/x", `"pad":""`)
				body = strings.Replace(body, `"pad":"`, `"pad":"`+strings.Repeat("x", size-len(body)), 1)
				req := r.request(t.Context(), modernHeaders("vendor/x", ""), body)
				if !announced {
					req.ContentLength = -1
				}
				rep := r.do(req)
				if rep.err != nil {
					t.Fatal(rep.err)
				}
				return rep
			}
			if rep := post(300); rep.status != http.StatusOK {
				t.Errorf("at the limit: status %d: %s", rep.status, rep.body)
			}
			post(301).wantError(t, 413, CodeTooLarge, "", "300")
			post(100_000).wantError(t, 413, CodeTooLarge, "", "300")
			if n := len(r.pool.process().lines()); n != 2 {
				t.Errorf("the server got %d lines, want its greeting and one request", n)
			}
		})
	}
}

func TestAClientThatStopsInTheMiddleOfItsBodyLosesItsConnectionAfterAMinute(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		body, w := newHalfBody(`{"jsonrpc":`)
		defer w()
		req := r.request(t.Context(), modernHeaders("vendor/x", ""), "")
		req.Body, req.ContentLength = body, 1000
		begin := time.Now()
		rep := r.do(req)
		if rep.err == nil {
			rep.wantError(t, 400, codeInvalidRequest, "", "body")
		}
		if waited := time.Since(begin); waited != bodyReadTimeout {
			t.Errorf("it took %v", waited)
		}
	})
}

// newHalfBody gives a body that never ends before stop is called.
func newHalfBody(start string) (b *halfBody, stop func()) {
	b = &halfBody{start: start, stopped: make(chan struct{})}
	return b, func() { close(b.stopped) }
}

type halfBody struct {
	start   string
	stopped chan struct{}
}

func (b *halfBody) Read(p []byte) (int, error) {
	if b.start != "" {
		n := copy(p, b.start)
		b.start = b.start[n:]
		return n, nil
	}
	<-b.stopped
	return 0, errors.New("stopped")
}

func (b *halfBody) Close() error { return nil }

func TestAnUnknownServerIsAnsweredWithTheNamesThatThePrincipalMayUse(t *testing.T) {
	r := newRig(t, rigOptions{react: modernServer(`{}`, nil), loopback: true})
	other := NewUpstream(UpstreamOptions{Name: "other"})
	secret := NewUpstream(UpstreamOptions{Name: "secret"})
	r.endpoint.SetUpstreams(map[string]*Upstream{"s": r.upstream, "other": other, "secret": secret})
	ask := func() reply {
		req := r.request(t.Context(), modernHeaders("tools/list", ""), modernBody("7", "tools/list", ""))
		req.URL.Path = "/nope"
		return r.do(req)
	}
	ask().wantError(t, 404, CodeUnknownServer, "7", `"nope"`, "other, s, secret")

	r.mu.Lock()
	r.principal = &security.Principal{ID: "p2", Servers: []string{"s", "other"}}
	r.mu.Unlock()
	rep := ask()
	rep.wantError(t, 404, CodeUnknownServer, "7", "other, s")
	if strings.Contains(rep.body, "secret") {
		t.Errorf("a server that the principal may not use is named: %s", rep.body)
	}

	r.mu.Lock()
	r.principal = &security.Principal{ID: "p3", Servers: []string{}}
	r.mu.Unlock()
	if rep := ask(); strings.Contains(rep.body, "secret") || strings.Contains(rep.body, "other,") {
		t.Errorf("a server that the principal may not use is named: %s", rep.body)
	}

	r.mu.Lock()
	r.principal = nil
	r.mu.Unlock()
	ask().wantError(t, 401, codeInvalidRequest, "")
}

// startingError is what a supervising side says of a server that is not up.
type startingError struct{ after time.Duration }

func (e startingError) Error() string             { return "it exited with code 3: no such module" }
func (e startingError) RetryDelay() time.Duration { return e.after }

func TestAServerThatIsNotUpIs503WithRetryAfterAndItsReason(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		retry string
		says  string
	}{
		"backing off":         {startingError{2500 * time.Millisecond}, "3", "no such module"},
		"no time known":       {startingError{}, "1", "no such module"},
		"not ready in time":   {context.DeadlineExceeded, "1", "not ready in time"},
		"wrapped by a caller": {fmt.Errorf("acquire: %w", startingError{time.Second}), "1", "no such module"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
				r.pool.refuse = c.err
				for what, rep := range map[string]reply{
					"a request":       r.modern("7", "tools/list", ""),
					"a listen":        r.modern("7", "subscriptions/listen", `"notifications":{}`),
					"an old client":   r.post(headers{}, `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`),
					"an old greeting": r.post(headers{}, `{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`),
				} {
					rep.wantError(t, 503, CodeUnavailable, "7", c.says)
					if got := rep.header.Get("Retry-After"); got != c.retry {
						t.Errorf("%s: Retry-After %q, want %q", what, got, c.retry)
					}
				}
				r.atRest()
			})
		})
	}
}

func TestARequestToAnUpstreamThatIsNotBoundOrClosedIs503(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		r.endpoint.SetUpstreams(map[string]*Upstream{"s": NewUpstream(UpstreamOptions{Name: "s"})})
		r.modern("7", "tools/list", "").wantError(t, 503, CodeUnavailable, "7", "not set up")
		r.endpoint.SetUpstreams(map[string]*Upstream{"s": r.upstream})
		r.upstream.Close()
		r.modern("7", "tools/list", "").wantError(t, 503, CodeUnavailable, "7", "stopped")
		r.modern("7", "subscriptions/listen", `"notifications":{}`).wantError(t, 503, CodeUnavailable, "7", "stopped")
		r.atRest()
	})
}

func TestNotificationsOfClients(t *testing.T) {
	for name, c := range map[string]struct {
		body     string
		status   int
		upstream string // what the server gets, "" for nothing
	}{
		"initialized":              {`{"jsonrpc":"2.0","method":"notifications/initialized"}`, 202, ""},
		"roots changed":            {`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`, 202, ""},
		"cancelled, of nothing":    {`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, 202, ""},
		"cancelled, modern":        {`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,` + modernMeta + `}}`, 202, ""},
		"one of a vendor":          {`{"jsonrpc":"2.0","method":"vendor/n","params":{"a":1.0,` + modernMeta + `}}`, 202, `{"jsonrpc":"2.0","method":"vendor/n","params":{"a":1.0,` + modernMeta + `}}`},
		"one that servers send":    {`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, 400, ""},
		"progress":                 {`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":1}}`, 400, ""},
		"a subscription's message": {`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}`, 400, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
				p := r.up()
				rep := r.post(headers{}, c.body)
				switch c.status {
				case http.StatusAccepted:
					if rep.status != c.status || rep.body != "" || rep.header.Get("Content-Type") != "" {
						t.Errorf("status %d, body %q", rep.status, rep.body)
					}
				default:
					rep.wantError(t, c.status, codeInvalidRequest, "")
				}
				if c.upstream != "" {
					if _, line := p.next(); line != c.upstream {
						t.Errorf("the server got %s", line)
					}
				}
				p.quiet()
				r.atRest()
			})
		})
	}
}

func TestANotificationIsNotKeptForAServerThatIsDown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		rep := r.post(headers{}, `{"jsonrpc":"2.0","method":"vendor/n"}`)
		rep.wantError(t, 503, CodeUnavailable, "")
	})
}

func TestErrorsOfTheServerTravelWithTheStatusOfTheirCode(t *testing.T) {
	for code, status := range map[string]int{
		"-32601": 404, "-32020": 400, "-32021": 400, "-32022": 400,
		"-32602": 200, "-32603": 200, "-32000": 200, "-32002": 200, "-32700": 200, "1": 200, "-31503": 200,
	} {
		t.Run(code, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t, rigOptions{react: modernServer(`{}`, func(p *process, q request, _ string) bool {
					p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":%s,"message":"so it is","data":{"k":[1.0]}},"x":1}`, q.ID, code)
					return true
				})})
				rep := r.modern(`"a"`, "vendor/x", "")
				if want := `{"jsonrpc":"2.0","id":"a","error":{"code":` + code + `,"message":"so it is","data":{"k":[1.0]}},"x":1}`; rep.body != want || rep.status != status {
					t.Errorf("status %d: %s", rep.status, rep.body)
				}
				r.atRest()
			})
		})
	}
}

func TestMethodsThatModernRevisionsRemovedAreUnknown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		p := r.up()
		for _, method := range []string{
			"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe",
			"tasks/list", "tasks/result", "roots/list", "sampling/createMessage", "elicitation/create",
		} {
			r.modern("7", method, "").wantError(t, 404, codeMethodNotFound, "7", method)
		}
		p.quiet()
		r.atRest()
	})
}

func TestTheBoundsOnRequestsInFlight(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil), limits: Limits{MaxInFlight: 3, MaxInFlightPerPrincipal: 2, MaxListeners: 1}})
		p := r.up()
		a, b := r.beginModern("1", "vendor/x", ""), r.beginModern("2", "vendor/x", "")
		qa, qb := p.expect("vendor/x"), p.expect("vendor/x")
		r.modern("3", "vendor/x", "").wantError(t, 503, CodeUnavailable, "3", "max_in_flight_per_principal")
		r.as("p2")
		c := r.beginModern("4", "vendor/x", "")
		qc := p.expect("vendor/x")
		rep := r.modern("5", "vendor/x", "")
		rep.wantError(t, 503, CodeUnavailable, "5", "max_in_flight)")
		if rep.header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		for _, q := range []request{qa, qb, qc} {
			p.answer(q.ID, `{}`)
		}
		for _, c := range []*call{a, b, c} {
			c.wait()
		}
		r.atRest()

		l := r.begin(modernHeaders("subscriptions/listen", ""), modernBody("6", "subscriptions/listen", `"notifications":{}`))
		p.expect("subscriptions/listen")
		r.modern("7", "subscriptions/listen", `"notifications":{}`).wantError(t, 503, CodeUnavailable, "7", "max_listeners")
		l.leave()
		p.expect("notifications/cancelled")
		p.quiet()
		r.atRest()
	})
}
