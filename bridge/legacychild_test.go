package bridge

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const fullLegacy = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"logging":{},"completions":{},"tasks":{"list":{}},"experimental":{"x":{}}}`

// oldInfo is the serverInfo member that mcpd adds to results of a legacyServer.
const oldInfo = `"io.modelcontextprotocol/serverInfo":{"name":"old","version":"0.9"}`

func TestResultsOfALegacyServerBecomeModern(t *testing.T) {
	for name, c := range map[string]struct{ method, params, result, want string }{
		"a tool's":             {"tools/call", `"name":"n"`, `{"content":[],"n":1.0}`, `{"resultType":"complete","_meta":{` + oldInfo + `},"content":[],"n":1.0}`},
		"a prompt's":           {"prompts/get", `"name":"n"`, `{}`, `{"resultType":"complete","_meta":{` + oldInfo + `}}`},
		"a tool list":          {"tools/list", ``, `{"tools":[]}`, `{"resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":{` + oldInfo + `},"tools":[]}`},
		"a prompt list":        {"prompts/list", ``, `{"prompts":[]}`, `{"resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":{` + oldInfo + `},"prompts":[]}`},
		"a resource list":      {"resources/list", ``, `{}`, `{"resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":{` + oldInfo + `}}`},
		"a template list":      {"resources/templates/list", ``, `{}`, `{"resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":{` + oldInfo + `}}`},
		"a resource":           {"resources/read", `"uri":"u"`, `{}`, `{"resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":{` + oldInfo + `}}`},
		"a completion":         {"completion/complete", ``, `{}`, `{"resultType":"complete","_meta":{` + oldInfo + `}}`},
		"of a vendor":          {"vendor/x", ``, `{}`, `{"resultType":"complete","_meta":{` + oldInfo + `}}`},
		"with metadata":        {"vendor/x", ``, `{"a":1,"_meta":{"k":[1.0]}}`, `{"resultType":"complete","a":1,"_meta":{` + oldInfo + `,"k":[1.0]}}`},
		"with empty metadata":  {"vendor/x", ``, `{"_meta":{ }}`, `{"resultType":"complete","_meta":{` + oldInfo + ` }}`},
		"with all of it":       {"tools/list", ``, `{"resultType":"x","ttlMs":7,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"me"}}}`, `{"resultType":"x","ttlMs":7,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"me"}}}`},
		"with some of it":      {"tools/list", ``, `{"ttlMs":7}`, `{"resultType":"complete","cacheScope":"private","_meta":{` + oldInfo + `},"ttlMs":7}`},
		"that is no object":    {"vendor/x", ``, `[1.0]`, `[1.0]`},
		"with metadata, null":  {"vendor/x", ``, `{"_meta":null}`, `{"resultType":"complete","_meta":null}`},
		"with white space":     {"vendor/x", ``, `{ "a" : 1 }`, `{"resultType":"complete","_meta":{` + oldInfo + `}, "a" : 1 }`},
		"with nothing but air": {"vendor/x", ``, `{ }`, `{"resultType":"complete","_meta":{` + oldInfo + `} }`},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t, rigOptions{react: legacyServer("2025-06-18", `{}`, func(p *process, q request, _ string) bool {
					p.answer(q.ID, c.result)
					return true
				})})
				rep := r.modern(`"i"`, c.method, c.params)
				if want := `{"jsonrpc":"2.0","id":"i","result":` + c.want + `}`; rep.status != 200 || rep.body != want {
					t.Errorf("status %d\n got %s\nwant %s", rep.status, rep.body, want)
				}
				r.atRest()
			})
		})
	}
}

func TestErrorsOfALegacyServerBecomeModern(t *testing.T) {
	for _, c := range []struct {
		code, want string
		status     int
	}{
		{"-32002", "-32602", 200},
		{"-32601", "-32601", 404},
		{"-32602", "-32602", 200},
		{"-32020", "-32020", 200},
		{"-32022", "-32022", 200},
		{"-32042", "-32042", 200},
		{"5", "5", 200},
	} {
		inBubble(t, func(t *testing.T) {
			r := newRig(t, rigOptions{react: legacyServer("2025-06-18", `{}`, func(p *process, q request, _ string) bool {
				p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":%s,"message":"m","data":{"uri":"u"}}}`, q.ID, c.code)
				return true
			})})
			rep := r.modern("1", "resources/read", `"uri":"u"`)
			if want := `{"jsonrpc":"2.0","id":1,"error":{"code":` + c.want + `,"message":"m","data":{"uri":"u"}}}`; rep.status != c.status || rep.body != want {
				t.Errorf("%s: status %d: %s", c.code, rep.status, rep.body)
			}
		})
	}
}

func TestRequestsLoseTheirModernMetadataOnTheWayToALegacyServer(t *testing.T) {
	own := `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/logLevel":"error"`
	for name, c := range map[string]struct{ meta, want string }{
		"all of it":             {own, `{"_meta":{},"a":1.0}`},
		"but no foreign keys":   {`"k":1.0,` + own + `,"io.modelcontextprotocol/other":2`, `{"_meta":{"k":1.0,"io.modelcontextprotocol/other":2},"a":1.0}`},
		"and keep the progress": {own + `,"progressToken":"t"`, `{"_meta":{"progressToken":3},"a":1.0}`},
		"with foreign in front": {`"k":1,` + own, `{"_meta":{"k":1},"a":1.0}`},
		"with foreign in back":  {own + `, "k":1`, `{"_meta":{"k":1},"a":1.0}`},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t, rigOptions{react: legacyServer("2025-06-18", `{}`, nil)})
				p := r.up()
				call := r.begin(modernHeaders("vendor/x", ""), `{"jsonrpc":"2.0","id":9,"method":"vendor/x","params":{"_meta":{`+c.meta+`},"a":1.0}}`)
				q, line := p.next()
				sameJSON(t, line, `{"jsonrpc":"2.0","id":3,"method":"vendor/x","params":`+c.want+`}`)
				if !strings.Contains(line, "1.0") {
					t.Errorf("a number changed: %s", line)
				}
				p.answer(q.ID, `{}`)
				call.wait()
				// The same for a notification.
				r.post(headers{}, `{"jsonrpc":"2.0","method":"vendor/n","params":{`+modernMeta+`,"a":1}}`)
				_, line = p.next()
				sameJSON(t, line, `{"jsonrpc":"2.0","method":"vendor/n","params":{"_meta":{},"a":1}}`)
				r.atRest()
			})
		})
	}
}

func TestDiscoverIsAnsweredFromALegacyServersHandshake(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: legacyServer("2025-06-18", fullLegacy, nil)})
		p := r.up()
		r.modern(`"d"`, methodDiscover, "").wantJSON(t, `{"jsonrpc":"2.0","id":"d","result":{"resultType":"complete",
			"supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],
			"capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"logging":{},"completions":{},"experimental":{"x":{}}},
			"instructions":"be kind","ttlMs":0,"cacheScope":"private","_meta":{`+oldInfo+`}}}`)
		p.quiet()
		r.atRest()
	})
}

func TestACarriageReturnInAServersInfoDoesNotBreakAStream(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: greeted(`error {"code":1,"message":"m"}`, "{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{},\"serverInfo\":{\r\"name\":\"x\",\r\"version\":\"1\"}}")})
		p := r.up()
		call := r.beginModern("1", "vendor/x", metaWith(`"progressToken":1`))
		q := p.expect("vendor/x")
		p.progress(q.token(), 1)
		p.say("{\"jsonrpc\":\"2.0\",\r\"id\":%s,\"result\":{}}", q.ID)
		rep := call.wait()
		if strings.Contains(rep.body, "\r") || len(rep.events()) != 2 {
			t.Errorf("the stream is %q", rep.body)
		}
	})
}

func TestALegacyServersChangesReachTheListenersThatAskedForThem(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: legacyServer("2025-06-18", fullLegacy, nil)})
		p := r.up()
		tools := r.listen(`"t"`, toolsOnly)
		tools.want(ackFor(`"t"`, toolsOnly))
		call := r.beginListen(`2`, everything)
		for range 2 {
			q := p.expect(methodResourcesSubscribe)
			if len(q.Params.Meta) != 0 {
				t.Errorf("subscribe carries %s", q.Params.Meta)
			}
			p.answer(q.ID, `{}`)
		}
		settle()
		p.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		p.say(`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{"_meta":{"k":1}}}`)
		p.say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///a"}}`)
		p.say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///b/sub"}}`)
		for _, uri := range []string{"file:///ab", "file:///", "file:///c", ""} {
			p.say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":%q}}`, uri)
		}
		p.say(`{"jsonrpc":"2.0","method":"notifications/resources/updated"}`)
		p.say(`{"jsonrpc":"2.0","method":"vendor/changed"}`)
		settle()
		tools.want(changeFor(`"t"`, notifyToolsChanged, ""))
		r.upstream.Close()
		tools.want(resultFor(`"t"`))
		got := call.wait().events()
		want := []string{
			ackFor("2", everything),
			changeFor("2", notifyToolsChanged, ""),
			fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{"_meta":{"k":1,%s:2}}}`, subID),
			changeFor("2", notifyResourceUpdated, `"uri":"file:///a",`),
			changeFor("2", notifyResourceUpdated, `"uri":"file:///b/sub",`),
			resultFor("2"),
		}
		if len(got) != len(want) {
			t.Fatalf("got %q\nwant %q", got, want)
		}
		for i := range want {
			sameJSON(t, got[i], want[i])
		}
		p.expect(methodResourcesUnsubscribe)
		p.expect(methodResourcesUnsubscribe)
		p.quiet()
	})
}

func TestALegacyServerGrantsWhatItsCapabilitiesSayAndItsAnswersAllow(t *testing.T) {
	for name, c := range map[string]struct {
		capabilities string
		subscribe    func(p *process, q request)
		want         string
	}{
		"nothing":  {`{}`, nil, `{}`},
		"no flags": {`{"tools":{},"prompts":{},"resources":{}}`, nil, `{}`},
		"tools":    {`{"tools":{"listChanged":true},"resources":{"listChanged":false,"subscribe":false}}`, nil, toolsOnly},
		"a URI that it refuses": {`{"resources":{"subscribe":true}}`, func(p *process, q request) {
			p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32002,"message":"m"}}`, q.ID)
		}, `{}`},
		"a URI, and silence":        {`{"resources":{"subscribe":true}}`, func(*process, request) {}, `{}`},
		"capabilities of odd types": {`{"tools":true,"prompts":[],"resources":{"listChanged":1}}`, nil, `{}`},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t, rigOptions{react: legacyServer("2025-06-18", c.capabilities, nil)})
				p := r.up()
				call := r.beginListen("1", `{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["file:///a"]}`)
				if c.subscribe != nil {
					c.subscribe(p, p.expect(methodResourcesSubscribe))
				}
				settle()
				if name == "a URI, and silence" {
					p.expectEventually(notifyCancelled)
				}
				settle()
				r.upstream.Close()
				got := call.wait().events()
				sameJSON(t, got[0], ackFor("1", c.want))
				p.quiet()
				r.atRest()
			})
		})
	}
}

func TestALegacySubscriptionToAURIIsCountedAcrossListeners(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var events []string
		r := newRig(t, rigOptions{react: legacyServer("2025-06-18", `{"resources":{"subscribe":true}}`, func(p *process, q request, _ string) bool {
			if uri, ok := strings.CutPrefix(q.Method, "resources/"); ok {
				events = append(events, uri+" "+q.Params.URI)
				p.answer(q.ID, `{}`)
			}
			return true
		})})
		r.up()
		a := r.listen("1", `{"resourceSubscriptions":["u:1","u:2"]}`)
		b := r.listen("2", `{"resourceSubscriptions":["u:2","u:3"]}`)
		c := r.listen("3", `{"resourceSubscriptions":["u:2","u:3"]}`)
		for _, s := range []*stream{a, b, c} {
			s.next()
		}
		settle()
		if n := r.upstream.Stats().UpstreamSubscriptions; n != 3 {
			t.Errorf("%d URIs are held", n)
		}
		a.leave()
		settle()
		b.leave()
		settle()
		c.leave()
		settle()
		d := r.listen("4", `{"resourceSubscriptions":["u:2"]}`)
		d.next()
		settle()
		// In no special order where nothing depends on it.
		slices.Sort(events[:3])
		slices.Sort(events[4:6])
		want := "subscribe u:1,subscribe u:2,subscribe u:3,unsubscribe u:1,unsubscribe u:2,unsubscribe u:3,subscribe u:2"
		if got := strings.Join(events, ","); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		d.leave()
		r.atRest()
		if n := r.upstream.Stats().UpstreamSubscriptions; n != 0 {
			t.Errorf("%d URIs are still held", n)
		}
	})
}

func TestAListenerOfALegacyServerThatLeavesAtOnceLeavesNoSubscriptionBehind(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: legacyServer("2025-06-18", `{"resources":{"subscribe":true}}`, nil)})
		p := r.up()
		call := r.beginListen("1", oneURI)
		q := p.expect(methodResourcesSubscribe)
		call.leave()
		again := r.beginListen("2", oneURI)
		settle()
		p.answer(q.ID, `{}`)
		settle()
		r.upstream.subs.mu.Lock()
		n := len(r.upstream.subs.groups)
		r.upstream.subs.mu.Unlock()
		if n != 1 {
			t.Errorf("%d groups", n)
		}
		again.leave()
		p.answer(p.expect(methodResourcesUnsubscribe).ID, `{}`)
		p.quiet()
		r.atRest()
		if n := r.upstream.Stats().UpstreamSubscriptions; n != 0 {
			t.Errorf("%d URIs are still held", n)
		}
	})
}

func TestAListenerToAResourceAndToOneBelowItHearsOnceFromALegacyServer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: legacyServer("2025-06-18", fullLegacy, func(p *process, q request, _ string) bool {
			if q.ID != nil {
				p.answer(q.ID, `{}`)
			}
			return false
		})})
		p := r.up()
		call := r.beginListen("1", `{"resourceSubscriptions":["x:/d","x:/d/f"]}`)
		settle()
		p.say(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:/d/f"}}`)
		settle()
		r.upstream.Close()
		got := call.wait().events()
		if len(got) != 3 {
			t.Fatalf("got %q", got)
		}
		sameJSON(t, got[1], changeFor("1", notifyResourceUpdated, `"uri":"x:/d/f",`))
		r.atRest()
	})
}

func TestARestartOfALegacyServerSubscribesAgainAndTellsToReadAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: legacyServer("2025-06-18", fullLegacy, func(p *process, q request, _ string) bool {
			if q.ID != nil {
				p.answer(q.ID, `{}`)
			}
			return false
		})})
		p := r.up()
		s := r.listen("1", everything)
		s.want(ackFor("1", everything))
		p.die()
		settle()
		p2 := r.up()
		p2.expect(methodResourcesSubscribe)
		p2.expect(methodResourcesSubscribe)
		// Lists and resources are told of as soon as each is subscribed again.
		var got []string
		for range 5 {
			got = append(got, canonical(t, s.next()))
		}
		want := []string{
			changeFor("1", notifyToolsChanged, ""),
			changeFor("1", notifyPromptsChanged, ""),
			changeFor("1", notifyResourcesChanged, ""),
			changeFor("1", notifyResourceUpdated, `"uri":"file:///a",`),
			changeFor("1", notifyResourceUpdated, `"uri":"file:///b",`),
		}
		for _, w := range want {
			if !slices.Contains(got, canonical(t, w)) {
				t.Errorf("got %q, which lacks %s", got, w)
			}
		}
		s.leave()
		r.atRest()
	})
}

func TestALogLevelBecomesSetLevelAndIsOnlyEverMadeMoreVerbose(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: legacyServer("2025-06-18", fullLegacy, nil)})
		p := r.up()
		for _, c := range []struct{ level, set string }{
			{"error", "error"}, {"emergency", ""}, {"info", "info"}, {"warning", ""}, {"debug", "debug"}, {"info", ""}, {"", ""},
		} {
			params := ""
			if c.level != "" {
				params = metaWith(`"io.modelcontextprotocol/logLevel":"` + c.level + `"`)
			}
			call := r.beginModern("1", "vendor/x", params)
			if c.set != "" {
				q := p.expect(methodSetLevel)
				if q.Params.Level != c.set {
					t.Errorf("%s: level %q", c.level, q.Params.Level)
				}
				p.answer(q.ID, `{}`)
			}
			q := p.expect("vendor/x")
			p.logMessage("info", "hello")
			p.answer(q.ID, `{}`)
			rep := call.wait()
			if got, want := strings.Contains(rep.body, "hello"), c.level == "info" || c.level == "debug"; got != want {
				t.Errorf("%s: got %s", c.level, rep.body)
			}
		}
		p.quiet()
		r.atRest()
	})
}

func TestALegacyServerWithoutLoggingIsNeverToldALevel(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: legacyServer("2025-06-18", `{}`, nil)})
		p := r.up()
		call := r.beginModern("1", "vendor/x", metaWith(`"io.modelcontextprotocol/logLevel":"debug"`))
		p.answer(p.expect("vendor/x").ID, `{}`)
		call.wait()
		p.quiet()
	})
}

// expectEventually takes lines until one of the method comes.
func (p *process) expectEventually(method string) request {
	p.t.Helper()
	for {
		if q, _ := p.next(); q.Method == method {
			return q
		}
	}
}

func (r *rig) legacy(id, method, params string) *call {
	r.t.Helper()
	return r.begin(headers{"MCP-Protocol-Version": "2025-06-18"}, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s}}`, id, method, params))
}

func TestBetweenALegacyClientAndALegacyServerBytesTravelUnchanged(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: legacyServer("2025-06-18", fullLegacy, nil)})
		p := r.up()
		call := r.legacy(`"a"`, "tools/call", `"name":"n", "arguments":{"x":1.0},"_meta":{"progressToken":"p","k":[1e1]}`)
		q, line := p.next()
		if want := `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"n", "arguments":{"x":1.0},"_meta":{"progressToken":3,"k":[1e1]}}}`; line != want {
			t.Errorf("the server got %s\nwant %s", line, want)
		}
		p.progress(q.token(), 1)
		p.logMessage("info", "only one asks")
		p.answer(q.ID, `{"content":[],"x":1.0}`)
		got := call.wait().events()
		if len(got) != 3 || !strings.Contains(got[0], `"progressToken":"p"`) || !strings.Contains(got[1], "only one asks") ||
			got[2] != `{"jsonrpc":"2.0","id":"a","result":{"content":[],"x":1.0}}` {
			t.Errorf("got %q", got)
		}
		errs := r.legacy(`1`, "resources/read", `"uri":"u"`)
		q = p.expect("resources/read")
		p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32002,"message":"m"}}`, q.ID)
		if rep := errs.wait(); rep.status != 200 || rep.body != `{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"m"}}` {
			t.Errorf("status %d: %s", rep.status, rep.body)
		}
		p.quiet()
		r.atRest()
	})
}
