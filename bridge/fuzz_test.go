package bridge

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpd/bridge/jsonrpc"
	"mcpd/security"
)

// direct hands a request to the endpoint without a connection in between.
func (r *rig) direct(h http.Header, body []byte) *httptest.ResponseRecorder {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ctx = security.WithPrincipal(ctx, &security.Principal{ID: "p1"})
	req := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body)).WithContext(ctx)
	req.Header = h
	rec := httptest.NewRecorder()
	r.endpoint.Handler("s").ServeHTTP(rec, req)
	return rec
}

// answersIn takes an answer apart into its messages, each of which has to be valid.
func answersIn(t testing.TB, rec *httptest.ResponseRecorder) []jsonrpc.Message {
	t.Helper()
	var texts []string
	switch ct := rec.Header().Get("Content-Type"); ct {
	case "application/json":
		texts = []string{rec.Body.String()}
		if want := rec.Header().Get("Content-Length"); (want != "" || rec.Body.Len() > countedUpTo) && want != fmt.Sprint(rec.Body.Len()) {
			t.Errorf("Content-Length %s of %d bytes", want, rec.Body.Len())
		}
	case "text/event-stream":
		texts = reply{body: rec.Body.String()}.events()
		for line := range strings.SplitSeq(rec.Body.String(), "\n") {
			if line != "" && line != ":" && line != "event: message" && !strings.HasPrefix(line, "data: ") || strings.Contains(line, "\r") {
				t.Errorf("an event stream has the line %q", line)
			}
		}
	case "":
		if rec.Body.Len() != 0 {
			t.Errorf("a body without a type: %q", rec.Body)
		}
	default:
		t.Errorf("Content-Type %q", ct)
	}
	var all []jsonrpc.Message
	for _, text := range texts {
		var m jsonrpc.Message
		if err := jsonrpc.Scan([]byte(text), &m); err != nil {
			t.Errorf("a client got %q: %v", text, err)
		}
		if strings.Contains(text, `"id":null`) && m.Kind == jsonrpc.Error && !m.ID.Present() {
			t.Errorf("an error has a null id: %s", text)
		}
		all = append(all, m)
	}
	return all
}

// FuzzEndpointBody sends any body with any headers. The server must get
// exactly one valid line for what is accepted, with an id of mcpd's own, and
// nothing for what is refused.
func FuzzEndpointBody(f *testing.F) {
	modern := func(method, params string) string { return modernBody(`"i"`, method, params) }
	for _, body := range []string{
		modern("tools/list", ""), modern("tools/call", `"name":"n","arguments":{"v":"x"}`), modern("vendor/x", `"a":[1.0,{}]`),
		modern("vendor/x", metaWith(`"progressToken":1.0,"k":{}`)), modern("subscriptions/listen", `"notifications":{"toolsListChanged":true,"x":[1]}`),
		modern("ping", ""), initializeBody("2025-06-18"), `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"progressToken":"p"}}}`, `{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":[]}}`,
		`{"jsonrpc":"2.0","method":"vendor/n","params":{"_meta":null}}`, `[]`, ``, `{"jsonrpc":"2.0","id":null}`, "{\"jsonrpc\":\"2.0\",\n\"id\":1,\r\"method\":\"x\"}",
	} {
		for _, version := range []string{"2026-07-28", "2025-06-18", ""} {
			f.Add([]byte(body), version, "tools/call", "n", true)
			f.Add([]byte(body), version, "vendor/x", "", false)
		}
	}
	var (
		mu    sync.Mutex
		lines []string
	)
	react := func(p *process, q request, line string) bool {
		mu.Lock()
		lines = append(lines, line)
		mu.Unlock()
		if q.ID != nil && q.Method != "" {
			p.answer(q.ID, `{"resultType":"complete","v":1.0}`)
		}
		return true
	}
	tb := &scope{TB: f}
	f.Cleanup(tb.close)
	rigs := []*rig{
		newRig(tb, rigOptions{react: modernServer(`{}`, react), quiet: true}),
		newRig(tb, rigOptions{react: legacyServer("2025-06-18", `{}`, react), quiet: true}),
	}
	for _, r := range rigs {
		r.up()
	}
	f.Fuzz(func(t *testing.T, body []byte, version, method, name string, mirror bool) {
		var sent jsonrpc.Message
		scanned := jsonrpc.Scan(body, &sent)
		for _, r := range rigs {
			h := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
			if mirror && scanned == nil { // else nearly nothing gets through
				method, _ = jsonrpc.Unquote(body, sent.Method.Value)
				name, _ = jsonrpc.Unquote(body, sent.Param.Name.Value)
			}
			for k, v := range map[string]string{headerProtocolVersion: version, headerMethod: method, headerName: name} {
				if v != "" {
					h[k] = []string{v}
				}
			}
			if r == rigs[1] && jsonrpc.EqualString(body, sent.Method.Value, methodListen) {
				continue // mcpd itself answers it, and only when its client leaves
			}
			mu.Lock()
			lines = nil
			mu.Unlock()
			rec := r.direct(h, body)
			if scanned == nil && sent.Kind == jsonrpc.Notification && rec.Code == http.StatusAccepted {
				// What follows it on the pipe shows that it is through.
				r.direct(http.Header{"Content-Type": {"application/json"}}, []byte(`{"jsonrpc":"2.0","id":1,"method":"fence"}`))
			}
			answers := answersIn(t, rec)
			mu.Lock()
			got := append([]string(nil), lines...)
			mu.Unlock()
			checkLines(t, got, body, scanned == nil, &sent, rec)
			if rec.Code != http.StatusAccepted && len(answers) == 0 {
				t.Errorf("no answer with status %d to %q", rec.Code, body)
			}
			if scanned == nil && sent.Kind == jsonrpc.Request && !strings.Contains(rec.Body.String(), string(sent.ID.Of(body))) {
				t.Errorf("the answer to %q is without its id: %s", body, rec.Body)
			}
			if s := r.upstream.Stats(); s.InFlight != 0 || s.Listeners != 0 {
				t.Errorf("left behind: %+v", s)
			}
		}
	})
}

func checkLines(t *testing.T, lines []string, body []byte, valid bool, sent *jsonrpc.Message, rec *httptest.ResponseRecorder) {
	t.Helper()
	var own []string
	for _, line := range lines {
		var m jsonrpc.Message
		if err := jsonrpc.Scan([]byte(line), &m); err != nil || m.HasNewline {
			t.Errorf("the server got %q: %v", line, err)
			continue
		}
		if m.Kind == jsonrpc.Request {
			if n, ok := jsonrpc.Integer(m.ID.Of([]byte(line))); !ok || n < 1 {
				t.Errorf("the server got an id that is not mcpd's: %s", line)
			}
			if method, _ := jsonrpc.Unquote([]byte(line), m.Method.Value); method == "fence" && string(body) != line {
				continue
			}
		}
		if jsonrpc.EqualString([]byte(line), m.Method.Value, notifyCancelled) {
			continue
		}
		own = append(own, line)
	}
	switch {
	case !valid && len(own) > 0:
		t.Errorf("%q was refused, but the server got %q", body, own)
	case rec.Code >= 400 && len(own) > 0:
		t.Errorf("status %d to %q, but the server got %q", rec.Code, body, own)
	case len(own) > 1:
		t.Errorf("one message became %q", own)
	case len(own) == 1:
		var m jsonrpc.Message
		_ = jsonrpc.Scan([]byte(own[0]), &m)
		was, _ := jsonrpc.Unquote(body, sent.Method.Value)
		is, _ := jsonrpc.Unquote([]byte(own[0]), m.Method.Value)
		if was != is || m.Kind != sent.Kind || !sameValue(sent.Param.Arguments.Of(body), m.Param.Arguments.Of([]byte(own[0]))) {
			t.Errorf("%q became %s", body, own[0])
		}
	}
}

// sameValue compares raw JSON but for line breaks.
func sameValue(a, b []byte) bool {
	flat := func(raw []byte) string { return strings.NewReplacer("\n", " ", "\r", " ").Replace(string(raw)) }
	return flat(a) == flat(b)
}

// FuzzChildLine lets a server write any bytes before it answers. Nothing of it
// may break the conversation, and what reaches the client is valid, carries
// the client's own id and token, and ends with exactly one answer.
func FuzzChildLine(f *testing.F) {
	for _, line := range []string{
		"", "junk", "{", `{"jsonrpc":"2.0","id":ID,"result":{}}`, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"m"}}`,
		`{"jsonrpc":"2.0","id":ID,"result":NaN}`, `{"id":ID,"result":{}}`, `[{"jsonrpc":"2.0","id":ID,"result":{}}]`, "\xEF\xBB\xBF{}\r",
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":ID,"progress":1}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"_meta":{"progressToken":1},"progressToken":"ID"}}`,
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":{"progressToken":1}}}`,
		"{\"jsonrpc\":\"2.0\",\r\"method\":\"notifications/message\",\"params\":{\"level\":\"error\"}}",
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":ID}}`,
		`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":ID}}}`,
		`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":"x","method":"sampling/createMessage","params":{}}`,
		`{"jsonrpc":"2.0","id":ID,"result":{"_meta":{},"resultType":"input_required"}}` + "\n" + `{"jsonrpc":"2.0","id":ID,"result":{}}`,
		`{"jsonrpc":"2.0","id":ID,"result":{"_meta":5,"ttlMs":null}}`, `{"jsonrpc":"2.0","result":1e,"id":ID}`, strings.Repeat("[", 2000),
	} {
		f.Add([]byte(line))
	}
	var (
		mu   sync.Mutex
		line []byte
	)
	react := func(p *process, q request, _ string) bool {
		if q.Method == methodSetLevel {
			p.answer(q.ID, `{}`)
		}
		if q.Method == methodToolsList {
			mu.Lock()
			text := bytes.ReplaceAll(line, []byte("ID"), q.ID)
			mu.Unlock()
			_, _ = p.stdout.Write(append(text, '\n'))
			p.answer(q.ID, `{"resultType":"complete"}`)
		}
		return true
	}
	// A request is given up rather than hanging, and a client of each era asks.
	tb := &scope{TB: f}
	f.Cleanup(tb.close)
	rigs := []*rig{
		newRig(tb, rigOptions{react: modernServer(`{}`, react), quiet: true, limits: Limits{MaxMessageBytes: 1 << 20}}),
		newRig(tb, rigOptions{react: legacyServer("2025-06-18", fullLegacy, react), quiet: true, limits: Limits{MaxMessageBytes: 1 << 20}}),
	}
	for _, r := range rigs {
		r.up()
	}
	f.Fuzz(func(t *testing.T, fuzzed []byte) {
		mu.Lock()
		line = fuzzed
		mu.Unlock()
		for _, r := range rigs {
			conn := r.pool.conn
			for _, modern := range []bool{true, false} {
				h := http.Header{"Content-Type": {"application/json"}}
				body := `{"jsonrpc":"2.0","id":"me","method":"tools/list","params":{"_meta":{"progressToken":"my token"}}}`
				if modern {
					h[headerProtocolVersion], h[headerMethod] = []string{version20260728}, []string{"tools/list"}
					body = modernBody(`"me"`, "tools/list", metaWith(`"progressToken":"my token","io.modelcontextprotocol/logLevel":"debug"`))
				}
				rec := r.direct(h, []byte(body))
				messages := answersIn(t, rec)
				for i, m := range messages {
					last := i == len(messages)-1
					isAnswer := m.Kind == jsonrpc.Result || m.Kind == jsonrpc.Error
					if last != isAnswer || m.Kind == jsonrpc.Request {
						t.Errorf("message %d of %d is a %v in %q", i, len(messages), m.Kind, rec.Body)
					}
				}
				if len(messages) == 0 || !strings.Contains(rec.Body.String(), `"id":"me"`) {
					t.Errorf("status %d, no answer: %q", rec.Code, rec.Body)
				}
			}
			if isDone(conn) {
				t.Errorf("the conversation ended: %v", conn.Err())
			}
			if calls := conn.Load().Calls; calls > 1 { // mcpd's own setLevel may be under way
				t.Errorf("%d requests are pending", calls)
			}
		}
	})
}
