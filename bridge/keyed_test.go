package bridge

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpd/bridge/ledger"
)

// keyed makes a rig whose tools hold (with a key of its own), send (with an
// injected one) and look (read-only) have a ledger. path "" is a new one.
func keyed(t *testing.T, path string, o rigOptions) *rig {
	t.Helper()
	if path == "" {
		path = filepath.Join(t.TempDir(), "ledger.db")
	}
	if o.ledger == nil {
		o.ledger = ledger.New(ledger.Options{Path: path})
	}
	t.Cleanup(func() { _ = o.ledger.Close() })
	if o.react == nil {
		o.react = modernServer(`{"tools":{}}`, listTools(`[]`, nil))
	}
	o.retry.Tools = map[string]ToolPolicy{
		"hold": {Key: "key"}, "send": {Key: "idempotency_key", Inject: true}, "look": {ReadOnly: true},
	}
	return newRig(t, o)
}

const holdK = `"name":"hold","arguments":{"title":"Dune","key":"k"}`

// result is the part of an answer that these tests look at.
type toolResult struct {
	Result struct {
		Content []struct{ Text string }
		IsError bool
		Meta    map[string]json.RawMessage `json:"_meta"`
		N       json.RawMessage            `json:"n"`
	}
	Error *struct {
		Code    int
		Message string
	}
}

func (rep reply) tool(t *testing.T) toolResult {
	t.Helper()
	body := rep.body
	if all := rep.events(); len(all) > 0 {
		body = all[len(all)-1]
	}
	var r toolResult
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		t.Fatalf("%v in %d %s", err, rep.status, rep.body)
	}
	return r
}

func (rep reply) wantOutcome(t *testing.T, outcome string, words ...string) {
	t.Helper()
	r := rep.tool(t)
	if rep.status != 200 || !r.Result.IsError || string(r.Result.Meta[metaOutcome]) != `"`+outcome+`"` {
		t.Fatalf("outcome %s, want %q: %d %s", r.Result.Meta[metaOutcome], outcome, rep.status, rep.body)
	}
	for _, w := range words {
		if !strings.Contains(r.Result.Content[0].Text, w) {
			t.Errorf("%q is not in %q", w, r.Result.Content[0].Text)
		}
	}
}

func TestARepeatWithTheSameKeyGetsTheFirstResultAndTheServerIsNotAsked(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "ledger.db")
		book := ledger.New(ledger.Options{Path: path})
		r := keyed(t, path, rigOptions{ledger: book})
		p := r.up()
		first := r.beginModern("1", "tools/call", holdK)
		q := p.expect("tools/call")
		if got := canonical(t, string(q.Params.Arguments)); got != `{"key":"k","title":"Dune"}` {
			t.Errorf("the server got %s", got)
		}
		p.answer(q.ID, `{"resultType":"complete","n":1.0,"content":[],"_meta":{"x":1}}`)
		first.wait().wantJSON(t, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","n":1.0,"content":[],"_meta":{"x":1}}}`)
		want := `{"jsonrpc":"2.0","id":"two","result":{"resultType":"complete","n":1.0,"content":[],"_meta":{"mcpd/replayed":true,"x":1}}}`
		r.modern(`"two"`, "tools/call", holdK).wantJSON(t, want)
		r.modern(`"two"`, "tools/call", `"name":"hold","arguments": {"key" : "k", "title":"\u0044une"}`).wantJSON(t, want)
		r.modern("3", "tools/call", `"name":"hold","arguments":{"title":"Emma","key":"k"}`).wantOutcome(t, "conflict", `"key"`, `title=\"Dune\"`[:5])
		p.quiet()
		r.atRest()

		// The next mcpd knows it as well.
		if err := book.Close(); err != nil {
			t.Fatal(err)
		}
		r = keyed(t, path, rigOptions{})
		r.modern(`"two"`, "tools/call", holdK).wantJSON(t, want)
		r.up().quiet()
		// Another principal's key is another key.
		r.as("p2")
		other := r.beginModern("1", "tools/call", holdK)
		p = r.up()
		p.answer(p.expect("tools/call").ID, `{"n":2}`)
		other.wait().wantJSON(t, `{"jsonrpc":"2.0","id":1,"result":{"n":2}}`)
	})
}

func TestRepeatsThatComeWhileTheCallRunsWaitForIt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := keyed(t, "", rigOptions{})
		p := r.up()
		body := `"name":"hold","arguments":{"key":"k"},"_meta":{"progressToken":"t",` + strings.TrimPrefix(modernMeta, `"_meta":{`)
		calls := []*call{r.beginModern("0", "tools/call", body)}
		q := p.expect("tools/call")
		for i := range 5 {
			calls = append(calls, r.beginModern(fmt.Sprint(i+1), "tools/call", body))
		}
		synctest.Wait()
		<-time.After(40 * time.Second) // long enough for the streams to begin
		p.progress(q.token(), 1)
		p.answer(q.ID, `{"n":1}`)
		for i, c := range calls {
			rep := c.wait()
			all := rep.events()
			want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"n":1}}`, i)
			if i > 0 {
				want = fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"_meta":{"mcpd/replayed":true},"n":1}}`, i)
			}
			sameJSON(t, all[len(all)-1], want)
			if (i == 0) != strings.Contains(rep.body, `"progressToken":"t"`) {
				t.Errorf("call %d: progress in %s", i, rep.body)
			}
		}
		p.quiet()
		r.atRest()
	})
}

func TestAClientThatLeavesNeitherCancelsAKeyedCallNorLosesItsResult(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := keyed(t, "", rigOptions{})
		p := r.up()
		c := r.beginModern("1", "tools/call", holdK)
		q := p.expect("tools/call")
		c.leave()
		p.quiet() // no cancellation
		if n := r.upstream.Stats().InFlight; n != 1 {
			t.Errorf("%d in flight", n)
		}
		p.answer(q.ID, `{"n":1}`)
		synctest.Wait()
		if got := r.modern("2", "tools/call", holdK).tool(t).Result; string(got.N) != "1" || string(got.Meta[metaReplayed]) != "true" {
			t.Errorf("%+v", got)
		}
		r.atRest()
	})
}

func TestWhenTheProcessDiesOfAKeyedCallNobodyRunsItAgainUntilItIsSettled(t *testing.T) {
	for name, done := range map[string]bool{"it took effect": true, "it did not": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				book := ledger.New(ledger.Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
				r := keyed(t, "", rigOptions{ledger: book})
				p := r.up()
				c := r.beginModern("1", "tools/call", holdK)
				waiting := r.beginModern("2", "tools/call", holdK)
				p.expect("tools/call")
				synctest.Wait()
				p.die()
				list := func() []ledger.Record {
					l, err := book.List(ledger.Unknown, 10)
					if err != nil {
						t.Fatal(err)
					}
					return l
				}
				c.wait().wantOutcome(t, "unknown", `"hold"`, `title="Dune"`, "process ended", "mcpd ledger resolve")
				waiting.wait().wantOutcome(t, "unknown", `"hold"`, "process ended")
				entry := list()[0]
				r.modern("3", "tools/call", holdK).wantOutcome(t, "unknown", "uncertain whether that call took effect", entry.ID, "not called again")
				r.up().quiet()
				if _, err := book.Resolve(entry.ID, done); err != nil {
					t.Fatal(err)
				}
				if done {
					r.modern("4", "tools/call", holdK).wantOutcome(t, "done", "that call ended")
					r.up().quiet()
					return
				}
				again := r.beginModern("4", "tools/call", holdK)
				p = r.up()
				p.answer(p.expect("tools/call").ID, `{"n":2}`)
				if got := again.wait().tool(t).Result; string(got.N) != "2" {
					t.Errorf("%+v", got)
				}
				r.atRest()
			})
		})
	}
}

func TestAKeyedCallThatTheServerNeverSawLeavesNoTrace(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		book := ledger.New(ledger.Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
		r := keyed(t, "", rigOptions{ledger: book})
		r.pool.refuse = unavailable(time.Second, "it is not up")
		r.modern("1", "tools/call", holdK).wantError(t, 503, CodeUnavailable, "1")
		if s, _ := book.Stats(); s.Entries != 0 || s.Running != 0 {
			t.Errorf("%+v", s)
		}
		r.pool.refuse = nil
		c := r.beginModern("1", "tools/call", holdK)
		p := r.up()
		p.answer(p.expect("tools/call").ID, `{"n":1}`)
		c.wait().wantJSON(t, `{"jsonrpc":"2.0","id":1,"result":{"n":1}}`)
		r.atRest()
	})
}

func TestAnErrorOfTheServerIsRecordedToo(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := keyed(t, "", rigOptions{})
		p := r.up()
		c := r.beginModern("1", "tools/call", holdK)
		p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32050,"message":"no such book"}}`, p.expect("tools/call").ID)
		c.wait().wantJSON(t, `{"jsonrpc":"2.0","id":1,"error":{"code":-32050,"message":"no such book"}}`)
		r.modern("2", "tools/call", holdK).wantJSON(t, `{"jsonrpc":"2.0","id":2,"error":{"code":-32050,"message":"no such book"}}`)
		p.quiet()
		r.atRest()
	})
}

func TestACallThatNeedsInputGoesOnWithTheSameKey(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := keyed(t, "", rigOptions{})
		p := r.up()
		const asks = `{"resultType":"input_required","inputRequests":{},"requestState":"s"}`
		for id := range 2 { // asked twice, it asks twice
			c := r.beginModern(fmt.Sprint(id), "tools/call", holdK)
			p.answer(p.expect("tools/call").ID, asks)
			c.wait().wantJSON(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%s}`, id, asks))
		}
		answered := holdK + `,"inputResponses":{"x":{}},"requestState":"s"`
		c := r.beginModern("7", "tools/call", answered)
		q, line := p.next()
		if !strings.Contains(line, `"requestState":"s"`) {
			t.Errorf("the server got %s", line)
		}
		p.answer(q.ID, `{"n":1}`)
		c.wait().wantJSON(t, `{"jsonrpc":"2.0","id":7,"result":{"n":1}}`)
		// Whether with the answers or without: it is done.
		for _, body := range []string{answered, holdK} {
			r.modern("8", "tools/call", body).wantJSON(t, `{"jsonrpc":"2.0","id":8,"result":{"_meta":{"mcpd/replayed":true},"n":1}}`)
		}
		p.quiet()
		r.atRest()
	})
}

func TestAnInjectedKeyIsAdvertisedAndNeverReachesTheServer(t *testing.T) {
	for _, era := range []Era{EraModern, EraLegacy} {
		t.Run(string(era), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				const tools = `[{"name":"send","inputSchema":{"type":"object","properties":{"to":{"type":"string"}}}},` +
					`{"name":"hold","inputSchema":{"type":"object"}},{"name":"send","inputSchema":{"type":"object"}}]`
				react := modernServer(`{"tools":{}}`, listTools(tools, nil))
				if era == EraLegacy {
					react = legacyServer("2025-11-25", `{"tools":{}}`, listTools(tools, nil))
				}
				r := keyed(t, "", rigOptions{react: react})
				p := r.up()
				var listed struct {
					Result struct {
						Tools []struct {
							Name        string
							InputSchema struct {
								Properties map[string]struct{ Type, Description string }
								Required   []string
							}
						}
					}
				}
				rep := r.modern("1", "tools/list", "")
				if err := json.Unmarshal([]byte(rep.body), &listed); err != nil {
					t.Fatalf("%v: %s", err, rep.body)
				}
				for i, want := range []int{2, 0, 1} {
					tool := listed.Result.Tools[i]
					if len(tool.InputSchema.Properties) != want || len(tool.InputSchema.Required) != 0 {
						t.Errorf("%d: %+v", i, tool)
					}
					if want > 0 && (tool.InputSchema.Properties["idempotency_key"].Type != "string" ||
						tool.InputSchema.Properties["idempotency_key"].Description == "") {
						t.Errorf("%d: %+v", i, tool)
					}
				}
				for i, args := range []string{`{"to":"x","idempotency_key":"k"}`, `{"idempotency_key":"l"}`, `{ "idempotency_key" : "m" , "to":"y"}`} {
					c := r.beginModern("1", "tools/call", `"name":"send","arguments":`+args)
					q := p.expect("tools/call")
					if want := []string{`{"to":"x"}`, `{}`, `{"to":"y"}`}[i]; canonical(t, string(q.Params.Arguments)) != want {
						t.Errorf("the server got %s, want %s", q.Params.Arguments, want)
					}
					p.answer(q.ID, `{"n":1}`)
					c.wait()
				}
				if got := r.modern("2", "tools/call", `"name":"send","arguments":{"idempotency_key":"k","to":"x"}`).tool(t); string(got.Result.Meta[metaReplayed]) != "true" {
					t.Errorf("%+v", got)
				}
				p.quiet()
				r.atRest()
			})
		})
	}
}

func TestAKeyOfAWrongKindIsRefusedAndACallWithoutOneGoesThrough(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := keyed(t, "", rigOptions{})
		p := r.up()
		for _, key := range []string{`""`, `7`, `{}`, `true`, `"` + strings.Repeat("x", 2000) + `"`} {
			r.modern("1", "tools/call", `"name":"hold","arguments":{"key":`+key+`}`).wantError(t, 400, codeInvalidParams, "1")
		}
		r.modern("1", "tools/call", `"name":"send","arguments":{"idempotency_key":null}`).wantError(t, 400, codeInvalidParams, "1")
		r.modern("1", "tools/call", `"name":"hold","arguments":{"key":"k","a":{"b":1,"b":1}}`).wantError(t, 400, codeInvalidParams, "1")
		p.quiet()
		for _, args := range []string{`{}`, `{"key":null}`} {
			for range 2 {
				c := r.beginModern("1", "tools/call", `"name":"hold","arguments":`+args)
				p.answer(p.expect("tools/call").ID, `{"n":1}`)
				c.wait().wantJSON(t, `{"jsonrpc":"2.0","id":1,"result":{"n":1}}`)
			}
		}
		r.atRest()
	})
}

func TestWithoutALedgerThatWorksAKeyedCallIsRefusedAndOthersAreNot(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "ledger.db")
		other := ledger.New(ledger.Options{Path: path})
		if _, err := other.Begin(ledger.Call{}); err != nil {
			t.Fatal(err)
		}
		r := keyed(t, path, rigOptions{})
		p := r.up()
		rep := r.modern("1", "tools/call", holdK)
		rep.wantError(t, 503, CodeUnavailable, "1")
		if !strings.Contains(rep.body, "another process holds it") {
			t.Errorf("it says %s", rep.body)
		}
		p.quiet()
		c := r.beginModern("1", "tools/call", `"name":"other"`)
		p.answer(p.expect("tools/call").ID, `{}`)
		c.wait()
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		<-time.After(6 * time.Second)
		c = r.beginModern("1", "tools/call", holdK)
		p.answer(p.expect("tools/call").ID, `{"n":1}`)
		c.wait().wantJSON(t, `{"jsonrpc":"2.0","id":1,"result":{"n":1}}`)
	})
}

func TestAFullLedgerRefusesNewKeyedCallsAndKeepsWhatItHas(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		book := ledger.New(ledger.Options{Path: filepath.Join(t.TempDir(), "ledger.db"), Limits: ledger.Limits{MaxBytes: 560, Keep: time.Hour}})
		r := keyed(t, "", rigOptions{ledger: book})
		p := r.up()
		c := r.beginModern("1", "tools/call", holdK)
		p.answer(p.expect("tools/call").ID, `{"n":1}`)
		c.wait()
		rep := r.modern("2", "tools/call", strings.Replace(holdK, `"k"`, `"l"`, 1))
		rep.wantError(t, 503, CodeUnavailable, "2")
		if !strings.Contains(rep.body, "max_bytes") || rep.header.Get("Retry-After") == "" {
			t.Errorf("it says %s", rep.body)
		}
		p.quiet()
		if got := r.modern("3", "tools/call", holdK).tool(t); string(got.Result.Meta[metaReplayed]) != "true" {
			t.Errorf("%+v", got)
		}
		<-time.After(time.Hour)
		c = r.beginModern("1", "tools/call", strings.Replace(holdK, `"k"`, `"l"`, 1))
		p.answer(p.expect("tools/call").ID, `{"n":2}`)
		c.wait().wantJSON(t, `{"jsonrpc":"2.0","id":1,"result":{"n":2}}`)
		r.atRest()
	})
}

func TestAKeyedCallThatTimesOutIsUnknown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := keyed(t, "", rigOptions{limits: Limits{RequestTimeout: time.Second}})
		p := r.up()
		c := r.beginModern("1", "tools/call", holdK)
		p.expect("tools/call")
		c.wait().wantOutcome(t, "unknown", "request_timeout")
		p.expect("notifications/cancelled")
		r.modern("2", "tools/call", holdK).wantOutcome(t, "unknown")
		p.quiet()
		r.atRest()
	})
}

func TestAnEndingUpstreamWaitsForItsKeyedCalls(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		book := ledger.New(ledger.Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
		r := keyed(t, "", rigOptions{ledger: book})
		p := r.up()
		c := r.beginModern("1", "tools/call", holdK)
		q := p.expect("tools/call")
		c.leave()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.upstream.End(t.Context())
		}()
		<-time.After(time.Minute)
		select {
		case <-ended:
			t.Fatal("it has ended")
		default:
		}
		p.answer(q.ID, `{"n":1}`)
		<-ended
		if l, err := book.List(ledger.Done, 10); err != nil || len(l) != 1 || !l[0].HasAnswer {
			t.Errorf("%+v %v", l, err)
		}
	})
}

func TestAnEndingUpstreamRecordsTheCallsThatItGivesUpAsUnknown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		book := ledger.New(ledger.Options{Path: filepath.Join(t.TempDir(), "ledger.db")})
		r := keyed(t, "", rigOptions{ledger: book})
		p := r.up()
		c := r.beginModern("1", "tools/call", holdK)
		p.expect("tools/call")
		c.leave()
		r.upstream.End(gone())
		if s, err := book.Stats(); err != nil || s.Unknown != 1 || s.Running != 0 {
			t.Errorf("%+v %v", s, err)
		}
	})
}

func TestALegacyClientAndAReplayForTheOtherEra(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := keyed(t, "", rigOptions{react: legacyServer("2025-11-25", `{"tools":{}}`, listTools(`[]`, nil))})
		p := r.up()
		body := `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{` + holdK + `}}`
		c := r.begin(headers{"MCP-Protocol-Version": "2025-06-18"}, body)
		p.answer(p.expect("tools/call").ID, `{"n":1}`)
		if got := c.wait().tool(t); string(got.Result.N) != "1" {
			t.Errorf("%+v", got)
		}
		rep := r.modern("2", "tools/call", holdK)
		if got := rep.tool(t); string(got.Result.Meta[metaReplayed]) != "true" || !strings.Contains(rep.body, `"resultType":"complete"`) ||
			!strings.Contains(rep.body, `"name":"old"`) {
			t.Errorf("%s", rep.body)
		}
		if got := r.post(headers{"MCP-Protocol-Version": "2025-06-18"}, body).tool(t); string(got.Result.Meta[metaReplayed]) != "true" {
			t.Errorf("%+v", got)
		}
		p.quiet()
		r.atRest()
	})
}
