package bridge

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func initializeBody(version string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{"roots":{}},"clientInfo":{"name":"c","version":"1"}}}`, version)
}

func TestInitializeIsAnsweredWithTheVersionThatBothSidesKnow(t *testing.T) {
	for name, c := range map[string]struct {
		react   reaction
		wanted  string
		h       headers
		version string
	}{
		"a version that is known":         {modernServer(`{}`, nil), "2025-03-26", headers{}, "2025-03-26"},
		"the oldest":                      {modernServer(`{}`, nil), "2024-11-05", headers{}, "2024-11-05"},
		"one that nobody knows":           {modernServer(`{}`, nil), "1999-01-01", headers{}, "2025-11-25"},
		"a modern one, which has none":    {modernServer(`{}`, nil), "2026-07-28", headers{}, "2025-11-25"},
		"a modern one in the header too":  {modernServer(`{}`, nil), "2025-06-18", headers{"MCP-Protocol-Version": "2026-07-28"}, "2025-06-18"},
		"a newer one than the server":     {legacyServer("2025-03-26", `{}`, nil), "2025-11-25", headers{}, "2025-03-26"},
		"an older one than the server":    {legacyServer("2025-11-25", `{}`, nil), "2025-03-26", headers{}, "2025-03-26"},
		"an unknown one of an old server": {legacyServer("2024-11-05", `{}`, nil), "2040-01-01", headers{}, "2024-11-05"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t, rigOptions{react: c.react})
				p := r.up()
				rep := r.post(c.h, initializeBody(c.wanted))
				if rep.status != 200 || !strings.HasPrefix(rep.body, `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"`+c.version+`",`) {
					t.Errorf("status %d: %s", rep.status, rep.body)
				}
				if rep.header.Get("Mcp-Session-Id") != "" {
					t.Error("a session id was minted")
				}
				p.quiet() // the server was initialized long ago
				r.atRest()
			})
		})
	}
}

func TestALegacyClientIsShownOnlyWhatWorksWithoutASession(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: legacyServer("2025-06-18", fullLegacy, nil)})
		r.post(headers{}, initializeBody("2025-06-18")).wantJSON(t, `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18",
			"capabilities":{"tools":{},"prompts":{},"resources":{},"logging":{},"completions":{},"experimental":{"x":{}}},
			"serverInfo":{"name":"old","version":"0.9"},"instructions":"be kind"}}`)
	})
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: func(p *process, q request, _ string) bool {
			p.answer(q.ID, `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":null,"extensions":{"x":{}}},"instructions":7}`)
			return true
		}})
		r.post(headers{}, initializeBody("2025-06-18")).wantJSON(t, `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18",
			"capabilities":{},"serverInfo":{"name":"s","version":""}}}`)
	})
}

func TestWhatALegacyClientGetsWithoutTheServer(t *testing.T) {
	for name, c := range map[string]struct {
		method, params string
		code           int
		says           string
	}{
		"ping":                  {"ping", ``, 0, ""},
		"a log level":           {"logging/setLevel", `"level":"debug"`, 0, ""},
		"a log level of none":   {"logging/setLevel", `"level":"loud"`, codeInvalidParams, "level"},
		"no log level":          {"logging/setLevel", ``, codeInvalidParams, "level"},
		"subscribe":             {"resources/subscribe", `"uri":"u"`, codeMethodNotFound, "subscriptions/listen"},
		"unsubscribe":           {"resources/unsubscribe", `"uri":"u"`, codeMethodNotFound, "subscriptions/listen"},
		"listen":                {"subscriptions/listen", `"notifications":{}`, codeMethodNotFound, "2026-07-28"},
		"discover":              {"server/discover", ``, codeMethodNotFound, "2026-07-28"},
		"initialize in ruins":   {"initialize", ``, codeInvalidParams, "protocolVersion"},
		"a progress token in {": {"tools/list", `"_meta":{"progressToken":{}}`, codeInvalidParams, "progressToken"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
				p := r.up()
				for _, h := range []headers{{}, {"MCP-Protocol-Version": "2025-03-26"}} {
					rep := r.post(h, fmt.Sprintf(`{"jsonrpc":"2.0","id":"7","method":%q,"params":{%s}}`, c.method, c.params))
					if c.code == 0 {
						rep.wantJSON(t, `{"jsonrpc":"2.0","id":"7","result":{}}`)
					} else {
						rep.wantError(t, 200, c.code, `"7"`, c.says)
					}
					rep = r.post(h.with("Accept", "text/event-stream"), fmt.Sprintf(`{"jsonrpc":"2.0","id":"7","method":%q,"params":{%s}}`, c.method, c.params))
					if ct := rep.header.Get("Content-Type"); ct != "text/event-stream" || len(rep.events()) != 1 {
						t.Errorf("to a reader of streams: Content-Type %q: %s", ct, rep.body)
					}
				}
				p.quiet()
				r.atRest()
			})
		})
	}
}

func TestRequestsOfALegacyClientGetModernMetadataForAModernServer(t *testing.T) {
	const own = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/logLevel":"info"`
	for name, c := range map[string]struct{ rest, want string }{
		"without params":        {``, `,"params":{"_meta":{` + own + `}}`},
		"with empty params":     {`,"params":{}`, `,"params":{"_meta":{` + own + `}}`},
		"with params":           {`,"params":{"cursor":"1.0"}`, `,"params":{"_meta":{` + own + `},"cursor":"1.0"}`},
		"with empty metadata":   {`,"params":{"_meta":{}}`, `,"params":{"_meta":{` + own + `}}`},
		"with metadata":         {`,"params":{"a":1,"_meta":{"k":1.0,"progressToken":"x"}}`, `,"params":{"a":1,"_meta":{` + own + `,"k":1.0,"progressToken":2}}`},
		"with capabilities":     {`,"params":{"_meta":{"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"io.modelcontextprotocol/logLevel":"debug"}}`, `,"params":{"_meta":{` + own + `}}`},
		"with metadata, null":   {`,"params":{"_meta":null}`, `,"params":{"_meta":{` + own + `}}`},
		"with a token and them": {`,"params":{"_meta":{"io.modelcontextprotocol/clientCapabilities":{},"progressToken":5}}`, `,"params":{"_meta":{` + own + `,"progressToken":2}}`},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
				p := r.up()
				call := r.begin(headers{}, `{"jsonrpc":"2.0","id":9,"method":"vendor/x"`+c.rest+`}`)
				q, line := p.next()
				sameJSON(t, line, `{"jsonrpc":"2.0","id":2,"method":"vendor/x"`+c.want+`}`)
				p.answer(q.ID, `{"resultType":"complete"}`)
				call.wait().wantJSON(t, `{"jsonrpc":"2.0","id":9,"result":{"resultType":"complete"}}`)
				r.atRest()
			})
		})
	}
}

func TestErrorsAreStatus200ToALegacyClient(t *testing.T) {
	for _, code := range []string{"-32601", "-32602", "-32020", "-32021", "-32022", "1"} {
		inBubble(t, func(t *testing.T) {
			r := newRig(t, rigOptions{react: modernServer(`{}`, func(p *process, q request, _ string) bool {
				p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":%s,"message":"m"}}`, q.ID, code)
				return true
			})})
			rep := r.legacy("1", "vendor/x", "").wait()
			if rep.status != 200 || rep.body != `{"jsonrpc":"2.0","id":1,"error":{"code":`+code+`,"message":"m"}}` {
				t.Errorf("status %d: %s", rep.status, rep.body)
			}
		})
	}
}

func TestAQuestionOfTheServerIsAClearErrorToALegacyClient(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, func(p *process, q request, _ string) bool {
			p.answer(q.ID, `{"resultType":"input_required","inputRequests":{},"requestState":"sealed"}`)
			return true
		})})
		rep := r.legacy("1", "tools/call", `"name":"n"`).wait()
		rep.wantError(t, 200, codeInvalidRequest, "1", "needs input", "2026-07-28")
		if strings.Contains(rep.body, "sealed") {
			t.Errorf("the state leaked: %s", rep.body)
		}
		// A modern client gets it as it is.
		r.modern("1", "vendor/x", "").wantJSON(t, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{},"requestState":"sealed"}}`)
		r.atRest()
	})
}

func TestALostToolCallOfALegacyClientIsAResultOfItsOwnRevision(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		p := r.up()
		call := r.legacy("1", "tools/call", `"name":"pay"`)
		p.expect("tools/call")
		p.die()
		rep := call.wait()
		if rep.status != 200 || strings.Contains(rep.body, "resultType") || !strings.Contains(rep.body, `"isError":true`) || !strings.Contains(rep.body, "pay") {
			t.Errorf("status %d: %s", rep.status, rep.body)
		}
	})
}

func TestALegacyClientCancelsByAnIDThatOnlyItCanHave(t *testing.T) {
	const mine, other = `"0d9bf4a2-5c3e-4d8a-9a51"`, `"1d9bf4a2-5c3e-4d8a-9a51"`
	cancel := func(r *rig, id string) {
		r.t.Helper()
		if rep := r.post(headers{"MCP-Protocol-Version": "2025-06-18"}, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`); rep.status != 202 {
			r.t.Errorf("status %d: %s", rep.status, rep.body)
		}
	}
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		p := r.up()
		call := r.legacy(mine, "tools/call", `"name":"slow"`)
		q := p.expect("tools/call")
		// Other ids, other types of the id, and other principals do nothing.
		cancel(r, other)
		cancel(r, string(q.ID))
		r.as("p2")
		cancel(r, mine)
		r.as("p1")
		p.quiet()
		cancel(r, mine)
		if got := p.expect(notifyCancelled); string(got.Params.RequestID) != string(q.ID) {
			t.Errorf("cancelled %s, want %s", got.Params.RequestID, q.ID)
		}
		call.wait().wantError(t, 200, CodeCancelled, mine, "cancelled")
		if n := r.upstream.Stats().Failures; n != 0 {
			t.Errorf("%d failures are counted", n)
		}
		cancel(r, mine)
		p.quiet()
		r.atRest()
	})
	inBubble(t, func(t *testing.T) { // a number may be another client's
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		p := r.up()
		a := r.legacy(`1`, "vendor/x", ``)
		q := p.expect("vendor/x")
		cancel(r, `1`)
		p.quiet()
		p.answer(q.ID, `{}`)
		a.wait()
		r.atRest()
	})
}

func TestALogLevelThatALegacyClientSetHoldsForItsPrincipal(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		p := r.up()
		level := func() string {
			call := r.legacy("1", "vendor/x", "")
			q := p.expect("vendor/x")
			p.answer(q.ID, `{}`)
			call.wait()
			return string(q.Params.Meta[metaLogLevel])
		}
		if got := level(); got != `"info"` {
			t.Errorf("without one: %s", got)
		}
		r.legacy("2", "logging/setLevel", `"level":"error"`).wait()
		if got := level(); got != `"error"` {
			t.Errorf("after error: %s", got)
		}
		r.as("p2")
		if got := level(); got != `"info"` {
			t.Errorf("of another principal: %s", got)
		}
	})
}

func TestALegacyClientIsKeptAliveAndTimedOutLikeAnyOther(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil), limits: Limits{RequestTimeout: 20 * time.Second}})
		r.up()
		rep := r.legacy("1", "vendor/x", "").wait()
		rep.wantError(t, 200, CodeTimeout, "1", "request_timeout")
		if !strings.HasPrefix(rep.body, ":\n\n") {
			t.Errorf("no comment came first: %q", rep.body)
		}
		r.atRest()
	})
}
