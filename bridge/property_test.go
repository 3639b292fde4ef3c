package bridge

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// scope is a testing.TB whose cleanups run when the scope ends.
type scope struct {
	testing.TB
	cleanups []func()
}

func (s *scope) Helper() {} // a fuzz target may not call that of testing.F

func (s *scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *scope) close() {
	for _, f := range slices.Backward(s.cleanups) {
		f()
	}
}

// owed is a request that a process has to answer.
type owed struct {
	p *process
	q request
	n string // which client's request it is
}

// world is a daemon with one server, and what its clients and processes did.
type world struct {
	t *rapid.T
	r *rig

	calls     []*clientCall
	listeners []*clientListener
	owed      []owed
	ghosts    []owed // cancelled, or answered already
	subs      map[string]owed
	seen      map[*process]int // how much of its inbox was taken
	sent      int
}

type clientCall struct {
	*call
	n, id, token, method string
	left                 bool
}

type clientListener struct {
	*call
	id, filter string
	left       bool
	wants      []string // the changes that it has to be told
}

// look takes in what the processes got.
func (w *world) look() {
	settle()
	p := w.r.pool.process()
	if p == nil {
		return
	}
	p.mu.Lock()
	lines := p.all[w.seen[p]:]
	w.seen[p] = len(p.all)
	p.mu.Unlock()
	for _, line := range lines {
		q := parse(w.r.t, line)
		switch q.Method {
		case methodDiscover:
		case notifyCancelled:
			for i, o := range w.owed {
				if o.p == p && string(o.q.ID) == string(q.Params.RequestID) {
					w.ghosts = append(w.ghosts, o)
					w.owed = slices.Delete(w.owed, i, i+1)
					break
				}
			}
			for filter, o := range w.subs {
				if o.p == p && string(o.q.ID) == string(q.Params.RequestID) {
					delete(w.subs, filter)
				}
			}
		case methodListen:
			p.ack(q.ID, string(q.Params.Notifications))
			w.subs[string(q.Params.Notifications)] = owed{p: p, q: q}
			settle()
		default:
			w.owed = append(w.owed, owed{p: p, q: q, n: string(q.Params.Arguments)})
		}
	}
}

func pick[T any](w *world, label string, from []T) (T, bool) {
	if len(from) == 0 {
		var zero T
		return zero, false
	}
	return from[rapid.IntRange(0, len(from)-1).Draw(w.t, label)], true
}

func (w *world) act() {
	switch rapid.SampledFrom([]string{
		"call", "call", "call", "answer", "answer", "answer", "progress", "ghost", "leave",
		"listen", "change", "change", "unlisten", "die", "replace",
	}).Draw(w.t, "action") {
	case "call":
		w.r.as(rapid.SampledFrom([]string{"p1", "p2"}).Draw(w.t, "principal"))
		c := &clientCall{
			n:      fmt.Sprint(len(w.calls)),
			id:     rapid.SampledFrom([]string{`1`, `"1"`, `1.0`, `2`, `"a"`}).Draw(w.t, "id"),
			token:  rapid.SampledFrom([]string{``, `1`, `"1"`, `2`, `3`}).Draw(w.t, "token"),
			method: rapid.SampledFrom([]string{"vendor/x", "tools/list", "tools/call"}).Draw(w.t, "method"),
		}
		params := `"name":"n","arguments":` + c.n
		if c.token != "" {
			params += `,` + metaWith(`"progressToken":`+c.token)
		}
		name := ""
		if c.method == methodToolsCall {
			name = "n"
		}
		c.call = w.r.begin(modernHeaders(c.method, name), modernBody(c.id, c.method, params))
		w.calls = append(w.calls, c)
	case "answer":
		if o, ok := pick(w, "which", w.owed); ok {
			o.p.answer(o.q.ID, `{"for":`+o.n+`}`)
			w.owed = slices.DeleteFunc(w.owed, func(x owed) bool { return x.p == o.p && string(x.q.ID) == string(o.q.ID) })
			w.ghosts = append(w.ghosts, o)
		}
	case "progress":
		if o, ok := pick(w, "which", w.owed); ok {
			token := o.q.token()
			if token == "" {
				token = string(o.q.ID)
			}
			o.p.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"for":%s}}`, token, o.n)
		}
	case "ghost": // late, double, and of nobody
		if o, ok := pick(w, "which", w.ghosts); ok {
			o.p.answer(o.q.ID, `{"for":"a ghost"}`)
			o.p.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"for":"a ghost"}}`, o.q.ID)
			o.p.answer([]byte("99999"), `{"for":"a ghost"}`)
			o.p.say(`{"jsonrpc":"2.0","id":%s,"result":NaN}`, o.q.ID)
		}
	case "leave":
		if c, ok := pick(w, "which", w.calls); ok && !c.left {
			select {
			case <-c.done:
			default:
				c.leave()
				c.left = true
			}
		}
	case "listen":
		filter := rapid.SampledFrom([]string{
			`{"toolsListChanged":true}`, `{"toolsListChanged":true,"promptsListChanged":true}`, `{"toolsListChanged":true,"resourceSubscriptions":["a"]}`,
		}).Draw(w.t, "filter")
		id := rapid.SampledFrom([]string{`1`, `"1"`, `2.0`}).Draw(w.t, "id")
		w.listeners = append(w.listeners, &clientListener{call: w.r.beginListen(id, filter), id: id, filter: filter})
	case "change":
		l, ok := pick(w, "which", w.listeners)
		if !ok {
			return
		}
		if o, ok := w.subs[l.filter]; ok && o.p == w.r.pool.process() {
			w.sent++
			o.p.tell(o.q.ID, notifyToolsChanged, fmt.Sprintf(`"n":"%d",`, w.sent))
			for _, l := range w.listeners {
				if !l.left && l.filter == string(o.q.Params.Notifications) {
					l.wants = append(l.wants, fmt.Sprint(w.sent))
				}
			}
		}
	case "unlisten":
		if l, ok := pick(w, "which", w.listeners); ok && !l.left {
			l.leave()
			l.left = true
		}
	case "die":
		if rapid.IntRange(0, 2).Draw(w.t, "really") == 0 {
			if p := w.r.pool.process(); p != nil {
				p.die()
				w.owed, w.ghosts = nil, nil
				clear(w.subs)
				settle()
				w.r.up()
			}
		}
	case "replace":
		if p := w.r.pool.process(); p != nil && rapid.IntRange(0, 2).Draw(w.t, "really") == 0 {
			w.look()
			old, err := w.r.pool.replace(w.r.t.Context())
			if err != nil {
				w.t.Fatal(err)
			}
			// What the old one owes it answers; then it is closed.
			for _, o := range w.owed {
				o.p.answer(o.q.ID, `{"for":`+o.n+`}`)
			}
			if err := old.Drain(w.r.t.Context()); err != nil {
				w.t.Fatal(err)
			}
			settle()
			old.Close(nil)
			w.owed, w.ghosts = nil, nil
			clear(w.subs)
		}
	}
	w.look()
}

// TestEveryClientGetsExactlyItsOwnAnswerOrAnExplicitError drives clients and
// processes in random order: equal ids and progress tokens, late and double
// answers, disconnects, crashes, replacements.
func TestEveryClientGetsExactlyItsOwnAnswerOrAnExplicitError(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) { // t has a Deadline, which a bubble has not
			sc := &scope{TB: t}
			defer sc.close()
			w := &world{
				t: rt, subs: map[string]owed{}, seen: map[*process]int{},
				r: newRig(sc, rigOptions{react: modernServer(`{}`, nil), quiet: true}),
			}
			w.r.up()
			for range rapid.IntRange(1, 60).Draw(rt, "steps") {
				w.act()
			}
			// In the end everything is answered, and everybody leaves.
			for len(w.owed) > 0 {
				for _, o := range w.owed {
					o.p.answer(o.q.ID, `{"for":`+o.n+`}`)
				}
				w.owed = nil
				w.look()
			}
			for _, l := range w.listeners {
				if !l.left {
					l.leave()
				}
				w.checkListener(l)
			}
			for _, c := range w.calls {
				<-c.done
				w.checkCall(c)
			}
			w.r.atRest()
			if n := w.r.upstream.Stats().UpstreamSubscriptions; n != 0 {
				rt.Errorf("%d subscriptions are left at the server", n)
			}
			if t.Failed() {
				rt.FailNow()
			}
		})
	})
}

func (w *world) checkCall(c *clientCall) {
	messages := c.got.events()
	if len(messages) == 0 && c.got.body != "" {
		messages = []string{c.got.body}
	}
	finals := 0
	for _, text := range messages {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				ProgressToken, For json.RawMessage
			}
			Result struct {
				For     json.RawMessage
				IsError bool
			}
			Error *struct{ Code int }
		}
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			w.t.Fatalf("request %s got %q: %v", c.n, text, err)
		}
		switch {
		case m.Method != "":
			if string(m.Params.For) != c.n || string(m.Params.ProgressToken) != c.token {
				w.t.Errorf("request %s with token %s got %s", c.n, c.token, text)
			}
			continue
		case string(m.ID) != c.id:
			w.t.Errorf("request %s with id %s got %s", c.n, c.id, text)
		case m.Error == nil && !m.Result.IsError && string(m.Result.For) != c.n:
			w.t.Errorf("request %s got the answer of another: %s", c.n, text)
		case m.Result.IsError && c.method != methodToolsCall:
			w.t.Errorf("request %s got a tool result: %s", c.n, text)
		}
		finals++
	}
	switch {
	case finals == 1 && c.got.err == nil:
	case c.left && finals <= 1:
	default:
		w.t.Errorf("request %s ended with %d answers, %v: %q", c.n, finals, c.got.err, c.got.body)
	}
}

func (w *world) checkListener(l *clientListener) {
	var got []string
	for i, text := range l.got.events() {
		var m struct {
			Method string
			Params struct {
				N    string
				Meta map[string]json.RawMessage `json:"_meta"`
			}
		}
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			w.t.Fatalf("a listener got %q: %v", text, err)
		}
		if (i == 0) != (m.Method == notifyAcknowledged) || string(m.Params.Meta[metaSubscriptionID]) != l.id {
			w.t.Errorf("message %d to the listener with id %s is %s", i, l.id, text)
		}
		if m.Params.N != "" {
			got = append(got, m.Params.N)
		}
	}
	if !slices.Equal(got, l.wants) {
		w.t.Errorf("the listener of %s got the changes %s, want %s", l.filter, strings.Join(got, " "), strings.Join(l.wants, " "))
	}
}
