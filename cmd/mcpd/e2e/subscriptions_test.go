package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func decode(t *testing.T, text string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("%.300q: %v", text, err)
	}
}

// quiet shows that nothing more has come on a stream: a change that the listener did ask for is the next thing it gets.
func (s *stream) quiet(d *daemon, name, id string) {
	s.t.Helper()
	d.tool(name, "change", `{"kind":"tools"}`)
	s.expect(changed(id, "tools"))
}

func TestTwoListenersThreeChangesOnePipe(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	const one = `"resourceSubscriptions":["fixture:///a"],"toolsListChanged":true`
	const two = `"resourceSubscriptions":["fixture:///b"],"promptsListChanged":true`
	a := d.listen("s", `"same"`, one, one)
	b := d.listen("s", `"same"`, two, two)
	d.tool("s", "update", `{"uri":"fixture:///a"}`)
	d.tool("s", "update", `{"uri":"fixture:///b"}`)
	d.tool("s", "change", `{"kind":"prompts"}`)
	a.expect(updated(`"same"`, "fixture:///a"))
	b.expect(updated(`"same"`, "fixture:///b"))
	b.expect(changed(`"same"`, "prompts"))
	a.quiet(d, "s", `"same"`)
	d.tool("s", "change", `{"kind":"prompts"}`)
	b.expect(changed(`"same"`, "prompts"))
}

func TestOnlyTheGrantedSubsetIsAcknowledgedAndSent(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", []string{"-grant", "tools,uris"})}})
	s := d.listen("s", "3", `"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["fixture:///a"]`,
		`"toolsListChanged":true,"resourceSubscriptions":["fixture:///a"]`)
	d.tool("s", "change", `{"kind":"prompts"}`)
	d.tool("s", "update", `{"uri":"fixture:///a"}`)
	s.expect(updated("3", "fixture:///a"))
	s.quiet(d, "s", "3")
}

func TestNothingIsSentThatNobodySubscribedTo(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	s := d.listen("s", "1", `"toolsListChanged":true`, `"toolsListChanged":true`)
	d.tool("s", "update", `{"uri":"fixture:///a"}`)
	d.tool("s", "update", `{"uri":"fixture:///a","stray":true}`) // the child breaks the rule; mcpd does not
	d.tool("s", "change", `{"kind":"prompts"}`)
	s.quiet(d, "s", "1")
}

func TestAnUpdateOfASubResourceReachesTheListenerOfItsParent(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	const a = `"toolsListChanged":true,"resourceSubscriptions":["fixture:///a"]`
	const b = `"toolsListChanged":true,"resourceSubscriptions":["fixture:///b"]`
	parent := d.listen("s", "1", a, a)
	other := d.listen("s", "2", b, b)
	d.tool("s", "update", `{"uri":"fixture:///a","as":"fixture:///a/part"}`)
	parent.expect(updated("1", "fixture:///a/part"))
	other.quiet(d, "s", "2")
}

func TestListenersShareTheirUpstreamSubscriptions(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	own := d.stats("s").Listeners // all changes of lists, for whoever listens, mcpd itself included
	const filter = `"toolsListChanged":true,"resourceSubscriptions":["fixture:///a","fixture:///b"]`
	const reordered = `"resourceSubscriptions":["fixture:///b","fixture:///a"],"toolsListChanged":true`
	streams := []*stream{d.open(d.post("s", modern("0", "subscriptions/listen", `"notifications":{`+reordered+`}`, "")))}
	streams[0].next()
	for i := 1; i < 10; i++ {
		s := d.open(d.post("s", modern(fmt.Sprint(i), "subscriptions/listen", `"notifications":{`+filter+`}`, "")))
		s.next()
		streams = append(streams, s)
	}
	if n := d.stats("s").Listeners - own; n != 2 {
		t.Errorf("the child has %d more subscriptions by these listeners, want 2: one for each resource", n)
	}
	d.tool("s", "update", `{"uri":"fixture:///b"}`)
	for i, s := range streams {
		s.expect(updated(fmt.Sprint(i), "fixture:///b"))
	}
	for _, s := range streams[1:] {
		s.close()
	}
	streams[0].quiet(d, "s", "0")
	streams[0].close()
	d.tool("s", "await", fmt.Sprintf(`{"kind":"listeners","count":%d}`, own))
}

func TestClosedStreamsLeaveNoUpstreamSubscription(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	own := d.stats("s").Listeners
	for i := range 50 {
		filter := fmt.Sprintf(`"resourceSubscriptions":["fixture:///%d"]`, i)
		d.listen("s", fmt.Sprint(i), filter, filter).close()
	}
	d.tool("s", "await", fmt.Sprintf(`{"kind":"listeners","count":%d}`, own))
	if s := d.status("s"); s.Subscriptions != own || s.Listeners != 0 {
		t.Errorf("status %+v", s)
	}
	if n := len(d.stats("s").Cancelled); n != 50 {
		t.Errorf("%d cancellations reached the child, want 50", n)
	}
}

func TestAListenThatTheServerEndsGetsItsResult(t *testing.T) {
	for _, how := range []string{"result", "cancelled"} {
		t.Run("by "+how, func(t *testing.T) {
			d := start(t, setup{servers: []string{server("s", nil)}})
			a := d.listen("s", `"a"`, `"toolsListChanged":true`, `"toolsListChanged":true`)
			b := d.listen("s", "2", `"promptsListChanged":true`, `"promptsListChanged":true`)
			d.tool("s", "end_listen", `{"kind":"`+how+`"}`)
			a.expectResult(`"a"`)
			a.end()
			b.expectResult("2")
			b.end()
		})
	}
}

func TestOpenStreamsEndWithTheirResultWhenTheDaemonStops(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil), server("old", []string{"-era", "legacy"})}})
	a := d.listen("s", `"a"`, `"toolsListChanged":true`, `"toolsListChanged":true`)
	b := d.listen("s", "2", `"toolsListChanged":true`, `"toolsListChanged":true`)
	c := d.listen("old", "3", `"toolsListChanged":true`, `"toolsListChanged":true`)
	d.stop()
	a.expectResult(`"a"`)
	a.end()
	b.expectResult("2")
	b.end()
	c.expectResult("3")
	c.end()
}

func TestAfterARestartListenersStayAndAreToldToReadAgain(t *testing.T) {
	for _, era := range []string{"modern", "legacy"} {
		t.Run(era, func(t *testing.T) {
			d := start(t, setup{servers: []string{server("s", []string{"-era", era})}})
			const all = `"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["fixture:///a","fixture:///b"]`
			full := d.listen("s", `"full"`, all, all)
			small := d.listen("s", "2", `"toolsListChanged":true`, `"toolsListChanged":true`)
			kill(t, d.stats("s").PID)

			want := map[string]bool{
				changed(`"full"`, "tools"): true, changed(`"full"`, "prompts"): true, changed(`"full"`, "resources"): true,
				updated(`"full"`, "fixture:///a"): true, updated(`"full"`, "fixture:///b"): true,
			}
			for len(want) > 0 {
				got := normal(t, full.nextText())
				found := false
				for w := range want {
					if normal(t, w) == got {
						delete(want, w)
						found = true
					}
				}
				if !found {
					t.Fatalf("unexpected %s; still expected: %v", got, want)
				}
			}
			small.expect(changed("2", "tools"))

			// The new process has the subscriptions: what changes now arrives as before.
			d.tool("s", "update", `{"uri":"fixture:///b"}`)
			full.expect(updated(`"full"`, "fixture:///b"))
			d.tool("s", "change", `{"kind":"tools"}`)
			full.expect(changed(`"full"`, "tools"))
			small.expect(changed("2", "tools"))
		})
	}
}

// normal writes JSON in one form, so that texts can be compared.
func normal(t *testing.T, text string) string {
	t.Helper()
	var v any
	decode(t, text, &v)
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestALegacyChildIsSubscribedOncePerURIHoweverManyListen(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", []string{"-era", "legacy"})}})
	const a = `"resourceSubscriptions":["fixture:///a"]`
	const ab = `"toolsListChanged":true,"resourceSubscriptions":["fixture:///a","fixture:///b"]`
	one, two := d.listen("s", "1", a, a), d.listen("s", "2", ab, ab)
	if watched := d.stats("s").Watched; len(watched) != 2 {
		t.Errorf("the child has the subscriptions %v", watched)
	}
	d.tool("s", "update", `{"uri":"fixture:///a"}`)
	one.expect(updated("1", "fixture:///a"))
	two.expect(updated("2", "fixture:///a"))
	two.close()
	d.tool("s", "await", `{"kind":"watched","count":1}`)
	d.tool("s", "update", `{"uri":"fixture:///a"}`)
	one.expect(updated("1", "fixture:///a"))
	one.close()
	d.tool("s", "await", `{"kind":"watched","count":0}`)
}

func TestEventsOfAStreamAreFlushedOneByOne(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	s := d.listen("s", "1", `"toolsListChanged":true`, `"toolsListChanged":true`)
	if ct := s.header.Get("Content-Type"); !strings.HasPrefix(ct, "text/event-stream") {
		t.Errorf("Content-Type %q", ct)
	}
	for range 20 {
		s.quiet(d, "s", "1")
	}
}

func TestEveryListenerHearsOfAChangeThoughTheServerTellsOnlyItsNewestSubscription(t *testing.T) {
	// The Go SDK keeps one subscription of each kind for a connection, the newest, and forgets it when any of them ends.
	d := start(t, setup{servers: []string{table("sdk", sdkServer(t), nil)}})
	trigger := func() { d.tool("sdk", "test_trigger_tool_change", "{}") }
	const both = `"toolsListChanged":true,"promptsListChanged":true`
	one := d.listen("sdk", "1", `"toolsListChanged":true`, `"toolsListChanged":true`)
	two := d.listen("sdk", "2", both, both)
	three := d.listen("sdk", "3", both, both)
	trigger()
	one.expect(changed("1", "tools"))
	two.expect(changed("2", "tools"))
	three.expect(changed("3", "tools"))
	three.close()
	trigger()
	one.expect(changed("1", "tools"))
	two.expect(changed("2", "tools"))
	two.close()
	trigger()
	one.expect(changed("1", "tools"))
}
