package bridge

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const subID = `"io.modelcontextprotocol/subscriptionId"`

// beginListen sends a subscriptions/listen with the filter.
func (r *rig) beginListen(id, filter string) *call {
	return r.beginModern(id, methodListen, `"notifications":`+filter)
}

// listen opens a stream; the server must acknowledge by itself.
func (r *rig) listen(id, filter string) *stream {
	r.t.Helper()
	return r.open(modernHeaders(methodListen, ""), modernBody(id, methodListen, `"notifications":`+filter))
}

func (p *process) ack(id json.RawMessage, filter string) {
	p.say(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{%s:%s},"notifications":%s}}`, subID, id, filter)
}

func (p *process) tell(id json.RawMessage, method, params string) {
	p.say(`{"jsonrpc":"2.0","method":%q,"params":{%s"_meta":{%s:%s}}}`, method, params, subID, id)
}

// granting acknowledges every subscription as it was asked for, and leaves the
// request in the inbox.
func granting(more reaction) reaction {
	return func(p *process, q request, line string) bool {
		if q.Method == methodListen {
			p.ack(q.ID, string(q.Params.Notifications))
		}
		return more != nil && more(p, q, line)
	}
}

func ackFor(id, filter string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{%s:%s},"notifications":%s}}`, subID, id, filter)
}

func changeFor(id, method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":{%s"_meta":{%s:%s}}}`, method, params, subID, id)
}

func resultFor(id string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","_meta":{%s:%s}}}`, id, subID, id)
}

func (s *stream) wantEnd() {
	s.t.Helper()
	if got := s.next(); got != "" {
		s.t.Fatalf("the stream goes on with %s", got)
	}
}

const (
	toolsOnly   = `{"toolsListChanged":true}`
	promptsOnly = `{"promptsListChanged":true}`
	oneURI      = `{"resourceSubscriptions":["file:///a"]}`
	everything  = `{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["file:///a","file:///b"]}`
)

// parts takes the listens that a filter is made of from the inbox, by what
// each asks for.
func (p *process) parts(n int) map[string]json.RawMessage {
	p.t.Helper()
	ids := make(map[string]json.RawMessage)
	for range n {
		q := p.expect(methodListen)
		ids[string(q.Params.Notifications)] = q.ID
	}
	return ids
}

const (
	lists = `{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true}`
	uriA  = `{"resourceSubscriptions":["file:///a"]}`
	uriB  = `{"resourceSubscriptions":["file:///b"]}`
)

func TestEachListenerIsToldExactlyWhatItAskedForUnderItsOwnID(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, granting(nil))})
		p := r.up()
		a := r.listen(`"a"`, toolsOnly)
		b := r.listen(`7.0`, everything)
		ids := p.parts(3)
		a.want(ackFor(`"a"`, toolsOnly))
		b.want(ackFor(`7.0`, everything))
		// Three changes on one pipe: one for the first, three for the second.
		p.tell(ids[lists], notifyToolsChanged, "")
		p.tell(ids[lists], notifyPromptsChanged, "")
		p.tell(ids[uriA], notifyResourceUpdated, `"uri":"file:///a",`)
		a.want(changeFor(`"a"`, notifyToolsChanged, ""))
		b.want(changeFor(`7.0`, notifyToolsChanged, ""))
		b.want(changeFor(`7.0`, notifyPromptsChanged, ""))
		b.want(changeFor(`7.0`, notifyResourceUpdated, `"uri":"file:///a",`))
		if got := r.upstream.Stats(); got.Listeners != 2 || got.UpstreamSubscriptions != 3 {
			t.Errorf("stats: %+v", got)
		}
		if got := r.pool.conn.Load(); got.Subscriptions != 2 || got.Calls != 0 {
			t.Errorf("load: %+v", got)
		}
		r.upstream.Close()
		a.want(resultFor(`"a"`)) // and nothing before it: one change, not three
		b.want(resultFor(`7.0`))
		a.wantEnd()
		b.wantEnd()
		for range 3 {
			p.expect(notifyCancelled)
		}
		p.quiet()
		r.atRest()
	})
}

func TestNothingThatWasNotAskedForOrNotGrantedIsEverSent(t *testing.T) {
	all := func(p *process, id json.RawMessage) {
		p.tell(id, notifyToolsChanged, "")
		p.tell(id, notifyPromptsChanged, "")
		p.tell(id, notifyResourcesChanged, "")
		p.tell(id, notifyResourceUpdated, `"uri":"file:///a",`)
		p.tell(id, notifyProgress, `"progressToken":1,"progress":1,`)
		p.tell(id, notifyMessage, `"level":"error","data":"x",`)
		p.tell([]byte("999"), notifyToolsChanged, "")
		p.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	}
	for name, c := range map[string]struct{ asked, granted, told, change string }{
		"asked for one":            {toolsOnly, toolsOnly, toolsOnly, notifyToolsChanged},
		"granted less":             {everything, promptsOnly, promptsOnly, notifyPromptsChanged},
		"granted more":             {toolsOnly, everything, toolsOnly, notifyToolsChanged},
		"granted something else":   {toolsOnly, promptsOnly, `{}`, ""},
		"granted nothing":          {everything, `{}`, `{}`, ""},
		"asked for nothing":        {`{}`, everything, `{}`, ""},
		"asked for false":          {`{"toolsListChanged":false,"promptsListChanged":null}`, everything, `{}`, ""},
		"a URI granted of two":     {`{"resourceSubscriptions":["file:///a","file:///b"]}`, oneURI, oneURI, notifyResourceUpdated},
		"another URI than asked":   {oneURI, `{"resourceSubscriptions":["file:///etc"]}`, `{}`, ""},
		"grant with foreign words": {toolsOnly, `{"toolsListChanged":true,"resourceSubscriptions":[],"x":1}`, toolsOnly, notifyToolsChanged},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
				p := r.up()
				call := r.beginListen("1", c.asked)
				settle()
				ids := p.parts(r.upstream.Stats().UpstreamSubscriptions)
				for _, id := range ids {
					all(p, id) // before the acknowledgement
				}
				for _, id := range ids {
					p.ack(id, c.granted)
				}
				for _, id := range ids {
					all(p, id)
					p.ack(id, everything) // once is enough
				}
				for _, id := range ids {
					p.answer(id, `{"resultType":"complete"}`)
				}
				want := []string{ackFor("1", c.told)}
				if c.change == notifyResourceUpdated {
					want = append(want, changeFor("1", c.change, `"uri":"file:///a",`))
				} else if c.change != "" {
					want = append(want, changeFor("1", c.change, ""))
				}
				got := call.wait().events()
				want = append(want, resultFor("1"))
				if len(got) != len(want) {
					t.Fatalf("got %q\nwant %q", got, want)
				}
				for i := range want {
					sameJSON(t, got[i], want[i])
				}
				r.atRest()
			})
		})
	}
}

func TestAnUpdateOfASubResourceGoesToTheSubscriptionThatItNames(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, granting(nil))})
		p := r.up()
		a := r.listen("1", `{"resourceSubscriptions":["file:///dir"]}`)
		qa := p.expect(methodListen)
		b := r.listen("1", `{"resourceSubscriptions":["file:///dir/x"]}`)
		qb := p.expect(methodListen)
		a.next()
		b.next()
		p.tell(qa.ID, notifyResourceUpdated, `"uri":"file:///dir/x",`)
		p.tell(qb.ID, notifyResourceUpdated, `"uri":"anything:else",`)
		a.want(changeFor("1", notifyResourceUpdated, `"uri":"file:///dir/x",`))
		b.want(changeFor("1", notifyResourceUpdated, `"uri":"anything:else",`))
	})
}

func TestNoListAndNoResourceIsInTwoSubscriptionsAtTheServer(t *testing.T) {
	filter := `"notifications":{"toolsListChanged":true,"resourceSubscriptions":["file:///a","file:///b"]}`
	meta := func(members string) string { return filter + "," + metaWith(members) }
	for name, c := range map[string]struct {
		second string
		more   int // subscriptions that the second listener adds
		less   int // that end with the first one
	}{
		"the same":                        {filter, 0, 0},
		"in another order":                {`"notifications":{"resourceSubscriptions":["file:///b","file:///a"],"toolsListChanged":true}`, 0, 0},
		"a URI twice":                     {`"notifications":{"resourceSubscriptions":["file:///b","file:///a","file:///b"],"toolsListChanged":true}`, 0, 0},
		"escaped":                         {`"notifications":{"resourceSubscriptions":["\u0066ile:///a","file:///b"],"toolsListChanged":true}`, 0, 0},
		"false instead of absent":         {`"notifications":{"toolsListChanged":true,"promptsListChanged":false,"resourceSubscriptions":["file:///a","file:///b"]}`, 0, 0},
		"other client info":               {meta(`"io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"}`), 0, 0},
		"other capabilities":              {filter + "," + strings.Replace(modernMeta, `Capabilities":{}`, `Capabilities":{"roots":{}}`, 1), 0, 0},
		"fewer URIs":                      {`"notifications":{"toolsListChanged":true,"resourceSubscriptions":["file:///a"]}`, 0, 1},
		"other URIs":                      {`"notifications":{"toolsListChanged":true,"resourceSubscriptions":["file:///a","file:///c"]}`, 1, 1},
		"another flag":                    {`"notifications":{"promptsListChanged":true,"toolsListChanged":true,"resourceSubscriptions":["file:///a","file:///b"]}`, 0, 0},
		"an unknown member of the filter": {`"notifications":{"toolsListChanged":true,"resourceSubscriptions":["file:///a","file:///b"],"x":1}`, 1, 3},
		"another parameter":               {filter + `,"tenant":"t1"`, 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t, rigOptions{react: modernServer(`{}`, granting(nil))})
				p := r.up()
				first := r.open(modernHeaders(methodListen, ""), modernBody("1", methodListen, filter))
				ids := p.parts(3)
				second := r.open(modernHeaders(methodListen, ""), modernBody(`"z"`, methodListen, c.second))
				first.next()
				second.next()
				added := p.parts(c.more)
				p.quiet()
				p.tell(ids[lists], notifyToolsChanged, "")
				first.want(changeFor("1", notifyToolsChanged, ""))
				if c.less < 3 {
					second.want(changeFor(`"z"`, notifyToolsChanged, ""))
				}
				first.leave()
				synctest.Wait()
				for range c.less {
					p.expect(notifyCancelled)
				}
				p.quiet()
				if c.less < 3 {
					p.tell(ids[lists], notifyToolsChanged, "")
				} else {
					for _, id := range added {
						p.tell(id, notifyToolsChanged, "")
					}
				}
				second.want(changeFor(`"z"`, notifyToolsChanged, ""))
				second.leave()
				for range 3 + c.more - c.less {
					p.expect(notifyCancelled)
				}
				p.quiet()
				r.atRest()
				if n := r.upstream.Stats().UpstreamSubscriptions; n != 0 {
					t.Errorf("%d subscriptions are held at the server", n)
				}
			})
		})
	}
}

// forgetful is a server that keeps one subscription per topic and connection,
// the newest, forgets topics of others when one of them ends, and answers what
// was cancelled. A widely used SDK is like that.
type forgetful struct {
	mu     sync.Mutex
	p      *process
	newest map[string]json.RawMessage // by list or URI
	open   map[string][]string        // the topics of each open subscription
}

const allLists = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true}}`

func (f *forgetful) react() reaction {
	return modernServer(allLists, func(p *process, q request, _ string) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.p != p {
			f.p, f.newest, f.open = p, map[string]json.RawMessage{}, map[string][]string{}
		}
		switch q.Method {
		case methodListen:
			var n struct {
				ToolsListChanged, PromptsListChanged, ResourcesListChanged bool
				ResourceSubscriptions                                      []string
			}
			_ = json.Unmarshal(q.Params.Notifications, &n)
			topics := n.ResourceSubscriptions
			for name, on := range map[string]bool{"tools": n.ToolsListChanged, "prompts": n.PromptsListChanged, "resources": n.ResourcesListChanged} {
				if on {
					topics = append(topics, name)
				}
			}
			for _, t := range topics {
				f.newest[t] = q.ID
			}
			p.ack(q.ID, string(q.Params.Notifications))
			if len(topics) == 0 {
				f.end(p, q.ID)
				return true
			}
			f.open[string(q.ID)] = topics
		case notifyCancelled:
			if _, ok := f.open[string(q.Params.RequestID)]; ok {
				f.end(p, q.Params.RequestID)
			}
		default:
			return false
		}
		return true
	})
}

func (f *forgetful) end(p *process, id json.RawMessage) {
	for _, t := range append(f.open[string(id)], "tools", "prompts", "resources") {
		delete(f.newest, t)
	}
	delete(f.open, string(id))
	p.answer(id, `{"resultType":"complete","_meta":{`+subID+`:`+string(id)+`}}`)
}

// change tells a change to whom the server remembers.
func (f *forgetful) change(topic string) {
	settle()
	f.mu.Lock()
	id := f.newest[topic]
	p := f.p
	f.mu.Unlock()
	switch {
	case id == nil:
	case strings.Contains(topic, ":"):
		p.tell(id, notifyResourceUpdated, `"uri":"`+topic+`",`)
	default:
		p.tell(id, "notifications/"+topic+"/list_changed", "")
	}
	settle()
}

func TestEveryListenerHearsOfEachChangeAlsoFromAServerThatForgets(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := &forgetful{}
		r := newRig(t, rigOptions{react: f.react(), quiet: true})
		r.up()
		tools := r.listen("1", toolsOnly)
		tools.want(ackFor("1", toolsOnly))
		hears := func() {
			t.Helper()
			f.change("tools")
			tools.want(changeFor("1", notifyToolsChanged, ""))
		}
		hears()
		both := r.listen("2", `{"toolsListChanged":true,"resourceSubscriptions":["file:///a"]}`)
		both.next()
		hears()
		both.want(changeFor("2", notifyToolsChanged, ""))
		f.change("file:///a")
		both.want(changeFor("2", notifyResourceUpdated, `"uri":"file:///a",`))
		third := r.listen("3", uriA)
		third.next()
		both.leave() // its resource is still listened to
		settle()
		hears()
		f.change("file:///a")
		third.want(changeFor("3", notifyResourceUpdated, `"uri":"file:///a",`))
		third.leave() // with the last one the server forgets the lists
		settle()
		tools.want(changeFor("1", notifyToolsChanged, "")) // who knows what was missed
		hears()
		r.upstream.Close()
		tools.want(resultFor("1"))
		r.atRest()
	})
}

func TestASubscriptionGrantedNothingEndsNoStreamThatHasOtherParts(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		p := r.up()
		both := r.beginListen("1", `{"toolsListChanged":true,"resourceSubscriptions":["file:///a"]}`)
		alone := r.beginListen("2", uriA)
		settle()
		ids := p.parts(2)
		p.ack(ids[lists], toolsOnly)
		p.ack(ids[uriA], `{}`)
		p.answer(ids[uriA], `{"resultType":"complete"}`)
		p.expect(notifyCancelled)
		p.ack(p.parts(1)[lists], toolsOnly)
		settle()
		r.upstream.Close()
		for i, want := range []string{ackFor("2", `{}`), resultFor("2")} {
			sameJSON(t, alone.wait().events()[i], want)
		}
		got := both.wait().events()
		sameJSON(t, got[0], ackFor("1", toolsOnly))
		sameJSON(t, got[len(got)-1], resultFor("1"))
		r.atRest()
	})
}

func TestListenersThatANewProcessHasNoRoomForEndAndTheOthersGoOn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, granting(nil)), limits: Limits{MaxQueueBytes: 5000}, quiet: true})
		p := r.up()
		var calls []*call
		for i := range 20 {
			calls = append(calls, r.beginListen(fmt.Sprint(i), fmt.Sprintf(`{"resourceSubscriptions":["u:%d/a","u:%d/b"]}`, i, i)))
			settle()
		}
		p.die()
		settle()
		r.up() // 40 subscriptions at once, and room for two
		settle()
		if n := r.upstream.Stats().Listeners; n == 20 {
			t.Error("there was room for all: the test tests nothing")
		}
		r.upstream.Close()
		for i, c := range calls {
			got := c.wait().events()
			sameJSON(t, got[len(got)-1], resultFor(fmt.Sprint(i)))
		}
		r.atRest()
	})
}

func TestAnUnknownFilterIsSentAsItWasWrittenAndSharedOnlyByItsLike(t *testing.T) {
	filter := `"notifications":{"x":[1.0],"toolsListChanged":true}`
	meta := func(members string) string { return filter + "," + metaWith(members) }
	for name, c := range map[string]struct {
		second string
		shared bool
	}{
		"the same":             {filter, true},
		"other client info":    {meta(`"io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"}`), true},
		"a progress token":     {meta(`"progressToken":5`), true},
		"a log level":          {meta(`"io.modelcontextprotocol/logLevel":"debug"`), true},
		"another trace":        {meta(`"traceparent":"00-x-y-01"`), true},
		"another value":        {`"notifications":{"x":[1],"toolsListChanged":true}`, false},
		"metadata of a vendor": {meta(`"com.example/tenant":"t1"`), false},
		"other capabilities":   {filter + "," + strings.Replace(modernMeta, `Capabilities":{}`, `Capabilities":{"roots":{}}`, 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t, rigOptions{react: modernServer(`{}`, granting(nil))})
				p := r.up()
				first := r.open(modernHeaders(methodListen, ""), modernBody("1", methodListen, filter))
				q := p.expect(methodListen)
				if string(q.Params.Notifications) != `{"x":[1.0],"toolsListChanged":true}` {
					t.Errorf("the server got the filter %s", q.Params.Notifications)
				}
				second := r.open(modernHeaders(methodListen, ""), modernBody(`"z"`, methodListen, c.second))
				first.want(ackFor("1", `{"x":[1.0],"toolsListChanged":true}`))
				second.next()
				if !c.shared {
					p.expect(methodListen)
				}
				p.quiet()
				p.tell(q.ID, "notifications/x", `"n":1,`)
				first.want(changeFor("1", "notifications/x", `"n":1,`))
				if c.shared {
					second.want(changeFor(`"z"`, "notifications/x", `"n":1,`))
				}
				first.leave()
				second.leave()
				r.atRest()
			})
		})
	}
}

func TestAnUnknownFilterIsSentWithoutWhatNamesOneRequest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, granting(nil))})
		p := r.up()
		r.open(modernHeaders(methodListen, ""), modernBody("1", methodListen,
			`"notifications":{"x":1},`+metaWith(`"progressToken":1,"io.modelcontextprotocol/logLevel":"debug","a":1.0`)))
		q := p.expect(methodListen)
		if len(q.Params.Meta) != 3 || string(q.Params.Meta["a"]) != "1.0" {
			t.Errorf("the server got the metadata %s", q.Params.Meta)
		}
	})
}

func TestAListenerIsAcknowledgedOnceAllPartsOfItsFilterAreSettled(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		p := r.up()
		call := r.beginListen("1", everything)
		settle()
		ids := p.parts(3)
		p.ack(ids[lists], promptsOnly)
		p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no such resource"}}`, ids[uriA])
		settle()
		p.ack(ids[uriB], uriB)
		// The lists are asked for anew, as the server may have forgotten them.
		p.expect(notifyCancelled)
		p.ack(p.parts(1)[lists], promptsOnly)
		settle()
		p.tell(ids[uriB], notifyResourceUpdated, `"uri":"file:///b",`)
		settle()
		r.upstream.Close()
		got := call.wait().events()
		want := []string{
			ackFor("1", `{"promptsListChanged":true,"resourceSubscriptions":["file:///b"]}`),
			changeFor("1", notifyResourceUpdated, `"uri":"file:///b",`),
			resultFor("1"),
		}
		if len(got) != len(want) {
			t.Fatalf("got %q", got)
		}
		for i := range want {
			sameJSON(t, got[i], want[i])
		}
		r.atRest()
	})
}

func TestAFilterThatCannotBeReadIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		p := r.up()
		many := make([]string, mostURIs+1)
		for i := range many {
			many[i] = fmt.Sprintf("%q", fmt.Sprint("u", i))
		}
		for _, params := range []string{
			``, `"notifications":[]`, `"notifications":"x"`, `"notifications":null`,
			`"notifications":{"toolsListChanged":1}`, `"notifications":{"resourceSubscriptions":"a"}`,
			`"notifications":{"resourceSubscriptions":[1]}`, `"notifications":{"resourceSubscriptions":[null]}`,
			`"notifications":{"resourceSubscriptions":[` + strings.Join(many, ",") + `]}`,
		} {
			r.modern("7", methodListen, params).wantError(t, 400, codeInvalidParams, "7", "notifications")
		}
		p.quiet()
		r.atRest()
	})
}

func TestTheServerEndsASubscription(t *testing.T) {
	for name, c := range map[string]struct {
		end    func(p *process, id json.RawMessage)
		acked  bool
		status int
		want   string // the last thing that the client gets
	}{
		"by its result": {func(p *process, id json.RawMessage) { p.answer(id, `{"resultType":"complete"}`) }, true, 200, resultFor("1")},
		"by a result with its own id in it": {func(p *process, id json.RawMessage) {
			p.answer(id, `{"resultType":"complete","_meta":{`+subID+`:`+string(id)+`}}`)
		}, true, 200, resultFor("1")},
		"by cancelling it": {func(p *process, id json.RawMessage) {
			p.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s,"reason":"bye"}}`, id)
		}, true, 200, resultFor("1")},
		"by an error": {func(p *process, id json.RawMessage) {
			p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"m"}}`, id)
		}, true, 200, resultFor("1")},
		"by an answer that is no JSON":         {func(p *process, id json.RawMessage) { p.say(`{"jsonrpc":"2.0","id":%s,"result":NaN}`, id) }, true, 200, resultFor("1")},
		"by its result before it acknowledged": {func(p *process, id json.RawMessage) { p.answer(id, `{}`) }, false, 200, resultFor("1")},
		"by an error before it acknowledged": {func(p *process, id json.RawMessage) {
			p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no such resource","data":{"uri":"a"}}}`, id)
		}, false, 200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no such resource","data":{"uri":"a"}}}`},
		"because it knows no listening": {func(p *process, id json.RawMessage) {
			p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"m"}}`, id)
		}, false, 404, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"m"}}`},
		"because of a missing capability": {func(p *process, id json.RawMessage) {
			p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32021,"message":"m"}}`, id)
		}, false, 400, `{"jsonrpc":"2.0","id":1,"error":{"code":-32021,"message":"m"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
				p := r.up()
				call := r.beginListen("1", toolsOnly)
				q := p.expect(methodListen)
				if c.acked {
					p.ack(q.ID, toolsOnly)
				}
				c.end(p, q.ID)
				rep := call.wait()
				last := rep.body
				if all := rep.events(); len(all) > 0 {
					last = all[len(all)-1]
				}
				if rep.status != c.status {
					t.Errorf("status %d", rep.status)
				}
				sameJSON(t, last, c.want)
				p.quiet()
				r.atRest()
				// The next one begins anew.
				again := r.beginListen("2", toolsOnly)
				p.expect(methodListen)
				again.leave()
				p.expect(notifyCancelled)
				r.atRest()
			})
		})
	}
}

func TestASubscriptionThatIsNeverAcknowledgedEnds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		p := r.up()
		begin := time.Now()
		rep := r.beginListen("1", toolsOnly).wait()
		rep.wantError(t, 200, CodeTimeout, "1", "acknowledge") // the stream had begun
		if d := time.Since(begin); d != controlTimeout {
			t.Errorf("it took %v", d)
		}
		p.expect(methodListen)
		p.expect(notifyCancelled)
		p.quiet()
		r.atRest()
	})
}

func TestWhenTheProcessDiesTheStreamStaysAndTellsToReadAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, func(p *process, q request, _ string) bool {
			if q.Method == methodListen && p.number == 1 {
				p.ack(q.ID, string(q.Params.Notifications))
			}
			return false
		})})
		p := r.up()
		a := r.listen(`"a"`, everything)
		a.want(ackFor(`"a"`, everything))
		b := r.listen(`2`, toolsOnly)
		b.want(ackFor(`2`, toolsOnly))
		p.parts(3)
		p.die()
		synctest.Wait()

		// One that comes while the process is down waits for the next one.
		joins := r.beginListen(`3`, toolsOnly)
		synctest.Wait()
		read := r.beginModern("9", "resources/read", `"uri":"file:///a"`)
		synctest.Wait()
		p2 := r.pool.process()
		if p2 == p {
			t.Fatal("no new process")
		}
		listens := p2.parts(3) // before anything that depends on them
		q := p2.expect("resources/read")
		p2.answer(q.ID, `{"fresh":true}`)
		read.wait()
		for _, filter := range []string{lists, uriA, uriB} {
			p2.tell(listens[filter], notifyToolsChanged, "") // not before the acknowledgement
			p2.ack(listens[filter], filter)
		}
		a.want(changeFor(`"a"`, notifyToolsChanged, ""))
		a.want(changeFor(`"a"`, notifyPromptsChanged, ""))
		a.want(changeFor(`"a"`, notifyResourcesChanged, ""))
		a.want(changeFor(`"a"`, notifyResourceUpdated, `"uri":"file:///a",`))
		a.want(changeFor(`"a"`, notifyResourceUpdated, `"uri":"file:///b",`))
		b.want(changeFor(`2`, notifyToolsChanged, ""))
		synctest.Wait()

		// And it is a subscription like before.
		for _, id := range listens {
			p2.tell(id, notifyToolsChanged, "")
		}
		a.want(changeFor(`"a"`, notifyToolsChanged, ""))
		b.want(changeFor(`2`, notifyToolsChanged, ""))
		r.upstream.Close()
		a.want(resultFor(`"a"`))
		b.want(resultFor(`2`))
		got := joins.wait().events()
		if len(got) != 3 {
			t.Fatalf("the one that joined got %q", got)
		}
		sameJSON(t, got[0], ackFor(`3`, toolsOnly)) // no need to read again
		sameJSON(t, got[1], changeFor(`3`, notifyToolsChanged, ""))
		r.atRest()
	})
}

func TestAGrantThatChangesWithTheProcessEndsTheStreamWithItsResult(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		p := r.up()
		call := r.beginListen("1", everything)
		for filter, id := range p.parts(3) {
			p.ack(id, filter)
		}
		synctest.Wait()
		p.die()
		synctest.Wait()
		p2 := r.up()
		p2.ack(p2.parts(3)[lists], toolsOnly)
		got := call.wait().events()
		if len(got) != 2 {
			t.Fatalf("got %q", got)
		}
		sameJSON(t, got[1], resultFor("1"))
		for range 3 {
			p2.expect(notifyCancelled)
		}
		p2.quiet()
		r.atRest()
	})
}

func TestANewProcessThatDoesNotAcknowledgeEndsTheStreamWithItsResult(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		p := r.up()
		call := r.beginListen("1", everything)
		for filter, id := range p.parts(3) {
			p.ack(id, filter)
		}
		synctest.Wait()
		p.die()
		synctest.Wait()
		p2 := r.up()
		p2.parts(3)
		rep := call.wait() // after controlTimeout
		got := rep.events()
		sameJSON(t, got[len(got)-1], resultFor("1"))
		r.atRest()
	})
}

func TestTheNewProcessTakesTheSubscriptionsWhileTheOldOneLives(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, granting(nil))})
		old := r.up()
		s := r.listen("1", toolsOnly)
		s.next()
		qOld := old.expect(methodListen)
		oldConn, err := r.pool.replace(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		next := r.pool.process()
		qNew := next.expect(methodListen)
		s.want(changeFor("1", notifyToolsChanged, "")) // read again: who knows what the old one missed
		if c := old.expect(notifyCancelled); string(c.Params.RequestID) != string(qOld.ID) {
			t.Errorf("cancelled %s", c.Params.RequestID)
		}
		old.tell(qOld.ID, notifyToolsChanged, "")
		old.answer(qOld.ID, `{}`)
		oldConn.Close(nil)
		synctest.Wait()
		next.tell(qNew.ID, notifyToolsChanged, `"from":"new",`)
		s.want(changeFor("1", notifyToolsChanged, `"from":"new",`))
		r.upstream.Close()
		s.want(resultFor("1"))
		s.wantEnd()
		r.atRest()
	})
}

func TestAServerWhoseQueueIsFullRefusesAListenerInsteadOfForgettingIt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil), limits: Limits{MaxQueueBytes: 3000}})
		p := r.up()
		resume := p.stall()
		first := r.beginModern("1", "vendor/x", "")
		p.expect("vendor/x")
		second := r.beginModern("2", "vendor/x", "")
		synctest.Wait()
		r.beginListen("3", toolsOnly).wait().wantError(t, 503, CodeUnavailable, "3", "does not read its input")
		resume()
		first.leave()
		second.leave()
		r.atRest()
	})
}

func TestASlowListenerIsCutOffAndTheOthersNeverNotice(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, granting(nil)), limits: Limits{StreamBufferBytes: 300 << 10}})
		p := r.up()
		slow := r.listen("1", toolsOnly)
		q := p.expect(methodListen)
		quick := r.listen("2", toolsOnly)
		quick.next()
		begin := time.Now()
		for i := range 1000 {
			p.tell(q.ID, notifyToolsChanged, fmt.Sprintf(`"n":%d,`, i))
			quick.want(changeFor("2", notifyToolsChanged, fmt.Sprintf(`"n":%d,`, i)))
		}
		if d := time.Since(begin); d != 0 {
			t.Errorf("the quick one waited %v", d)
		}
		r.upstream.subs.mu.Lock()
		for _, g := range r.upstream.subs.groups {
			for l := range g.listeners {
				l.box.mu.Lock()
				if l.box.bytes > 303<<10 {
					t.Errorf("%d bytes are queued for one listener", l.box.bytes)
				}
				l.box.mu.Unlock()
			}
		}
		r.upstream.subs.mu.Unlock()
		<-time.After(eventWriteTimeout + time.Second)
		n := 0
		for slow.next() != "" {
			n++
		}
		if n == 0 || n > 500 {
			t.Errorf("the slow one got %d events", n)
		}
		if got := r.upstream.Stats().Listeners; got != 1 {
			t.Errorf("%d listeners are counted", got)
		}
		quick.leave()
		p.expect(notifyCancelled)
		r.atRest()
	})
}

func TestAThousandListenersShareTheirSubscriptions(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, granting(nil)), quiet: true})
		p := r.up()
		const n = 1000
		streams := make([]*stream, n)
		for i := range streams {
			streams[i] = r.listen(fmt.Sprintf(`"client %d"`, i), everything)
			streams[i].next()
		}
		ids := p.parts(3)
		p.quiet()
		if s := r.upstream.Stats(); s.Listeners != n || s.UpstreamSubscriptions != 3 {
			t.Errorf("stats: %+v", s)
		}
		p.tell(ids[uriA], notifyResourceUpdated, `"uri":"file:///a",`)
		for i, s := range streams {
			s.want(changeFor(fmt.Sprintf(`"client %d"`, i), notifyResourceUpdated, `"uri":"file:///a",`))
		}
		for _, s := range streams {
			s.leave()
		}
		for range 3 {
			p.expect(notifyCancelled)
		}
		p.quiet()
		r.atRest()
	})
}

func TestManyURIsAreReReadEvenIfTheyTakeMoreThanTheStreamsBuffer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, granting(nil)), limits: Limits{StreamBufferBytes: 50 << 10}})
		p := r.up()
		var uris []string
		for i := range 200 {
			uris = append(uris, fmt.Sprintf(`"file:///%03d"`, i))
		}
		s := r.listen("1", `{"resourceSubscriptions":[`+strings.Join(uris, ",")+`]}`)
		s.next()
		p.die()
		synctest.Wait()
		r.up()
		for _, uri := range uris {
			s.want(changeFor("1", notifyResourceUpdated, `"uri":`+uri+`,`))
		}
	})
}

func TestMetadataOfANotificationThatIsNoObjectIsReplacedAndNotDoubled(t *testing.T) {
	id := []byte(`"me"`)
	for in, want := range map[string]string{
		`{"jsonrpc":"2.0","method":"x"}`:                                      `{"params":{"_meta":{` + subID + `:"me"}},"jsonrpc":"2.0","method":"x"}`,
		`{"jsonrpc":"2.0","method":"x","params":{}}`:                          `{"jsonrpc":"2.0","method":"x","params":{"_meta":{` + subID + `:"me"}}}`,
		`{"jsonrpc":"2.0","method":"x","params":{"_meta":null,"a":1}}`:        `{"jsonrpc":"2.0","method":"x","params":{"_meta":{` + subID + `:"me"},"a":1}}`,
		`{"jsonrpc":"2.0","method":"x","params":{"_meta":{"a":1}}}`:           `{"jsonrpc":"2.0","method":"x","params":{"_meta":{` + subID + `:"me","a":1}}}`,
		`{"jsonrpc":"2.0","method":"x","params":{"_meta":{` + subID + `:5}}}`: `{"jsonrpc":"2.0","method":"x","params":{"_meta":{` + subID + `:"me"}}}`,
	} {
		got := newShared([]byte(in))
		rec := &recorder{}
		rs := &response{w: rec}
		if err := rs.edited(got.data, ownIDs(got, id)); err != nil {
			t.Fatal(err)
		}
		if rec.b.String() != want {
			t.Errorf("%s\nbecame %s\nwant   %s", in, rec.b.String(), want)
		}
	}
}
