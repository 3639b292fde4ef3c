package bridge

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const (
	askName = `{"method":"elicitation/create","params":{"mode":"form","message":"Your name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}}`
	askURL  = `{"method":"elicitation/create","params":{"mode":"url","message":"Sign in","url":"https://example.com/"}}`
	askLLM  = `{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":10}}`
	askTool = `{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":10,"tools":[]}}`
	askRoot = `{"method":"roots/list"}`

	callBody = `{"jsonrpc":"2.0","id":"c1","method":"tools/call","params":{"name":"ask","arguments":{"n":1}}}`
)

// asks makes the server's answer that needs input.
func asks(members string) string { return `{"resultType":"input_required",` + members + `}` }

func TestAServersQuestionsGoToTheClientAndItsAnswersBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := sessionRig(t, modernServer(fullModern, acknowledges))
		c := r.greets("2025-11-25", allAbilities)
		p := r.pool.process()
		s := make(chan *stream, 1)
		go func() { s <- c.open("POST", callBody) }()
		q := p.expect("tools/call")
		p.answer(q.ID, asks(`"inputRequests":{"who":`+askName+`,"\u0061i":`+askLLM+`,"where":`+askRoot+`,"web":`+askURL+`},"requestState":"opaque=="`))
		st := <-s
		st.want(`{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"mode":"form","message":"Your name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}}`)
		st.want(`{"jsonrpc":"2.0","id":2,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":10}}`)
		st.want(`{"jsonrpc":"2.0","id":3,"method":"roots/list"}`)
		st.want(`{"jsonrpc":"2.0","id":4,"method":"elicitation/create","params":{"elicitationId":"4","mode":"url","message":"Sign in","url":"https://example.com/"}}`)
		p.quiet()
		for i, result := range []string{`{"action":"accept","content":{"name":"Ada \u00e9"}}`, `{"role":"assistant","content":{"type":"text","text":"x"},"model":"m"}`, `{"roots":[]}`, `{"action":"accept"}`} {
			if rep := c.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%s}`, i+1, result)); rep.status != 202 || rep.body != "" {
				t.Fatalf("status %d: %s", rep.status, rep.body)
			}
		}
		q, line := p.next()
		for _, part := range []string{
			`"who":{"action":"accept","content":{"name":"Ada \u00e9"}}`, `"\u0061i":{"role":"assistant"`, `"where":{"roots":[]}`, `"web":{"action":"accept"}`,
			`"requestState":"opaque=="`, `"arguments":{"n":1}`, `"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{},"url":{}}`,
		} {
			if !strings.Contains(line, part) {
				t.Errorf("%s lacks %s", line, part)
			}
		}
		// It may ask again; what it was told before is not repeated.
		p.answer(q.ID, asks(`"inputRequests":{"more":`+askName+`}`))
		if got := st.next(); !strings.Contains(got, `"id":5`) {
			t.Errorf("got %s", got)
		}
		c.post(`{"jsonrpc":"2.0","id":"5","result":{"action":"decline"}}`)
		q, line = p.next()
		if !strings.Contains(line, `"inputResponses":{"more":{"action":"decline"}}`) || strings.Contains(line, "requestState") || strings.Contains(line, "who") {
			t.Errorf("the server got %s", line)
		}
		p.answer(q.ID, `{"resultType":"complete","content":[{"type":"text","text":"hello Ada"}]}`)
		st.want(`{"jsonrpc":"2.0","id":"c1","result":{"content":[{"type":"text","text":"hello Ada"}]}}`)
		if got := st.next(); got != "" {
			t.Errorf("the stream goes on with %s", got)
		}
		r.atRest()
	})
}

func TestAServerThatOnlyWantsToBeAskedAgainIsAskedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		left := 3
		r := sessionRig(t, modernServer(fullModern, func(p *process, q request, line string) bool {
			if q.Method != "tools/call" {
				return acknowledges(p, q, line)
			}
			if left--; left < 0 {
				p.answer(q.ID, `{"resultType":"complete","content":[]}`)
			} else {
				p.answer(q.ID, asks(fmt.Sprintf(`"requestState":"s%d"`, left)))
			}
			return true
		}))
		c := r.greets("2025-11-25", `{}`)
		c.post(callBody).wantJSON(t, `{"jsonrpc":"2.0","id":"c1","result":{"content":[]}}`)
		left = 1 << 30
		c.post(callBody).wantError(t, 200, codeInvalidRequest, `"c1"`, "more than 100 times")
		r.atRest()
	})
}

func TestAClientIsAskedOnlyWhatItDeclared(t *testing.T) {
	for name, c := range map[string]struct{ capabilities, question, lacks string }{
		"no elicitation":           {`{}`, askName, "elicitation"},
		"no sampling":              {`{"elicitation":{}}`, askLLM, "sampling"},
		"no roots":                 {`{"elicitation":{},"sampling":{}}`, askRoot, "roots"},
		"forms alone by an {}":     {`{"elicitation":{}}`, askURL, "elicitation.url"},
		"URLs alone":               {`{"elicitation":{"url":{}}}`, askName, "elicitation"},
		"sampling without tools":   {`{"elicitation":{},"sampling":{}}`, askTool, "sampling.tools"},
		"something unknown":        {allAbilities, `{"method":"shell/run","params":{}}`, "no client knows"},
		"no method":                {allAbilities, `{}`, "without saying what"},
		"names twice in a message": {allAbilities, `{"method":"elicitation/create","params":{"mode":"form","mode":"url","url":"x","url":"y","name":1,"name":2}}`, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := sessionRig(t, modernServer(fullModern, acknowledges))
				client := r.greets("2025-11-25", c.capabilities)
				work := client.begin(callBody)
				p := r.pool.process()
				q := p.expect("tools/call")
				p.answer(q.ID, asks(`"inputRequests":{"fine":`+askName+`,"bad":`+c.question+`}`))
				rep := work.wait()
				if len(rep.events()) > 1 {
					t.Errorf("the client was asked: %s", rep.body)
				}
				rep.wantError(t, rep.status, codeOf(rep), `"c1"`, c.lacks)
				p.quiet()
				r.atRest()
			})
		})
	}
}

func codeOf(rep reply) int {
	if rep.status == 502 {
		return CodeServerFault
	}
	return codeMissingCapability
}

func TestAClientThatDoesNotAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		question string
		answer   func(c *legacyClient, w *stream) // what the client does in place of answering
		server   string                           // what the server is told; "" for nothing
		client   []string                         // what the client's error says
		leaves   bool
	}{
		"is silent to elicitation": {askName, func(*legacyClient, *stream) {}, `"q":{"action":"cancel"}`, nil, false},
		"is silent to sampling":    {askLLM, func(*legacyClient, *stream) {}, "", []string{"sampling/createMessage", "question_timeout (10s)"}, false},
		"answers elicitation with an error": {askName, func(c *legacyClient, _ *stream) {
			c.post(`{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no dialog"}}`)
		}, `"q":{"action":"cancel"}`, nil, false},
		"answers sampling with an error": {askLLM, func(c *legacyClient, _ *stream) {
			c.post(`{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"User rejected sampling request"}}`)
		}, "", []string{"User rejected sampling request"}, false},
		"answers with what is no object": {askRoot, func(c *legacyClient, _ *stream) {
			c.post(`{"jsonrpc":"2.0","id":1,"result":[]}`)
		}, "", []string{"it is not an object"}, false},
		"disconnects before elicitation is answered": {askName, func(_ *legacyClient, w *stream) { w.leave() }, `"q":{"action":"cancel"}`, nil, true},
		"disconnects before sampling is answered":    {askLLM, func(_ *legacyClient, w *stream) { w.leave() }, "", nil, true},
		"cancels the call": {askName, func(c *legacyClient, _ *stream) {
			c.post(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"c1"}}`)
		}, "", []string{"cancelled"}, false},
		"deletes the session": {askName, func(c *legacyClient, _ *stream) { c.send("DELETE", "") }, "", []string{"ended the session"}, false},
		"answers in another session": {askName, func(c *legacyClient, _ *stream) {
			c.r.greets("2025-11-25", allAbilities).post(`{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}`).wantError(c.r.t, 400, codeInvalidRequest, "")
			c.r.as("p2")
			c.post(`{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}`).wantError(c.r.t, 404, CodeUnknownSession, "")
			c.r.as("p1")
			c.post(`{"jsonrpc":"2.0","id":2,"result":{"action":"accept"}}`).wantError(c.r.t, 400, codeInvalidRequest, "")
		}, `"q":{"action":"cancel"}`, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := sessionRig(t, modernServer(fullModern, acknowledges), func(o *rigOptions) { o.limits.QuestionTimeout = 10 * time.Second })
				client := r.greets("2025-11-25", allAbilities)
				p := r.pool.process()
				st := make(chan *stream, 1)
				go func() { st <- client.open("POST", callBody) }()
				q := p.expect("tools/call")
				p.answer(q.ID, asks(`"inputRequests":{"q":`+c.question+`}`))
				w := <-st
				if got := w.next(); !strings.Contains(got, `"id":1,"method":`) {
					t.Fatalf("the client was asked %s", got)
				}
				c.answer(client, w)
				if c.server != "" {
					q, line := p.next()
					if !strings.Contains(line, `"inputResponses":{`+c.server+`}`) {
						t.Errorf("the server got %s", line)
					}
					p.answer(q.ID, `{"resultType":"complete","content":[]}`)
				}
				if !c.leaves {
					last := w.next()
					if strings.Contains(last, "notifications/cancelled") {
						if !strings.Contains(last, `"requestId":1`) {
							t.Errorf("cancelled was %s", last)
						}
						last = w.next()
					}
					for _, part := range append(c.client, `"c1"`) {
						if !strings.Contains(last, part) {
							t.Errorf("%s does not say %q", last, part)
						}
					}
				}
				settle()
				p.quiet()
				// Whatever it says now is late, and of no consequence.
				if rep := client.post(`{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}`); rep.status != 202 && name != "deletes the session" {
					t.Errorf("a late answer: status %d %s", rep.status, rep.body)
				}
				p.quiet()
				r.atRest()
			})
		})
	}
}

func TestAClientWithoutEventsCannotBeAsked(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := sessionRig(t, modernServer(fullModern, acknowledges))
		c := r.greets("2025-11-25", allAbilities)
		p := r.pool.process()
		req := c.request(t.Context(), "POST", callBody)
		req.Header.Set("Accept", "application/json")
		done := make(chan reply, 1)
		go func() { done <- r.do(req) }()
		q := p.expect("tools/call")
		p.answer(q.ID, asks(`"inputRequests":{"q":`+askName+`}`))
		rep := <-done
		rep.wantError(t, 200, codeInvalidRequest, `"c1"`, "text/event-stream")
		r.atRest()
	})
}

func TestQuestionsInABatchComeOnItsStream(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := sessionRig(t, modernServer(fullModern, acknowledges))
		c := r.greets("2025-03-26", `{"sampling":{}}`)
		p := r.pool.process()
		st := make(chan *stream, 1)
		go func() { st <- c.open("POST", `[`+callBody+`,{"jsonrpc":"2.0","id":"c2","method":"ping"}]`) }()
		q := p.expect("tools/call")
		p.answer(q.ID, asks(`"inputRequests":{"q":`+askLLM+`}`))
		w := <-st
		seen := w.next() + w.next() // in either order
		if !strings.Contains(seen, `{"jsonrpc":"2.0","id":"c2","result":{}}`) || !strings.Contains(seen, `"id":1,"method":"sampling/createMessage"`) {
			t.Fatalf("the stream begins with %s", seen)
		}
		if rep := c.post(`[{"jsonrpc":"2.0","id":1,"result":{"role":"assistant","content":{},"model":"m"}}]`); rep.status != 202 {
			t.Errorf("status %d: %s", rep.status, rep.body)
		}
		q = p.expect("tools/call")
		p.answer(q.ID, `{"resultType":"complete","content":[]}`)
		w.want(`{"jsonrpc":"2.0","id":"c1","result":{"content":[]}}`)
		if got := w.next(); got != "" {
			t.Errorf("the stream goes on with %s", got)
		}
		r.atRest()
	})
}

func TestStoppingEndsStreamsAndQuestionsButNoCalls(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := sessionRig(t, modernServer(fullModern, acknowledges))
		c := r.greets("2025-11-25", allAbilities)
		p := r.pool.process()
		get := c.open("GET", "")
		st := make(chan *stream, 1)
		go func() { st <- c.open("POST", callBody) }()
		q := p.expect("tools/call")
		p.answer(q.ID, asks(`"inputRequests":{"q":`+askName+`}`))
		w := <-st
		w.next()
		slow := c.begin(`{"jsonrpc":"2.0","id":"c2","method":"tools/call","params":{"name":"slow"}}`)
		working := p.expect("tools/call")
		r.upstream.Close()
		if got := get.next(); got != "" {
			t.Errorf("the stream goes on with %s", got)
		}
		if got := w.next(); !strings.Contains(got, "notifications/cancelled") {
			t.Errorf("the question is not taken back: %s", got)
		}
		if got := w.next(); !strings.Contains(got, "being stopped") {
			t.Errorf("the call that has to ask ends with %s", got)
		}
		p.answer(working.ID, `{"resultType":"complete","content":[]}`)
		slow.wait().wantJSON(t, `{"jsonrpc":"2.0","id":"c2","result":{"content":[]}}`)
		(&legacyClient{r: r}).post(initializeBody("2025-11-25")).wantError(t, 503, CodeUnavailable, "0", "being stopped")
		r.atRest()
	})
}

func TestALegacyServersQuestionsReachALegacyClient(t *testing.T) {
	for name, limits := range map[string]Limits{"auto": {}, "serialize": {Interactive: InteractiveSerialize}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				limits.QuestionTimeout = 10 * time.Second
				r := curious(t, rigOptions{limits: limits, sessions: SessionPolicy{Enabled: true}})
				c := r.greets("2025-11-25", allAbilities)
				p := r.pool.process()
				call := func() (*stream, request) {
					st := make(chan *stream, 1)
					go func() { st <- c.open("POST", callBody) }()
					q := p.expect("tools/call")
					p.ask(`"e1"`, methodElicit, nameForm)
					p.ask(`"s1"`, methodSample, `{"messages":[],"maxTokens":10}`)
					return <-st, q
				}
				post := func(id int, rest string) {
					if rep := c.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,%s}`, id, rest)); rep.status != 202 {
						t.Fatalf("status %d: %s", rep.status, rep.body)
					}
				}
				const sampled = `"result":{"role":"assistant","content":{"type":"text","text":"x"},"model":"m"}`

				// Both are answered, and the same call at the server goes on.
				w, q := call()
				w.want(`{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":` + nameForm + `}`)
				w.want(`{"jsonrpc":"2.0","id":2,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":10}}`)
				post(2, sampled)
				post(1, `"result":`+accepted2)
				p.wantReply(`{"jsonrpc":"2.0","id":"e1","result":` + accepted2 + `}`)
				p.wantReply(`{"jsonrpc":"2.0","id":"s1",` + sampled + `}`)
				p.say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, q.ID)
				w.want(`{"jsonrpc":"2.0","id":"c1","result":{"content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"old","version":"0.9"}}}}`)

				// A refusal is told to the server, which goes on without.
				w, q = call()
				_ = w.next() + w.next()
				post(4, `"error":{"code":-1,"message":"User rejected sampling request"}`)
				post(3, `"result":{"action":"decline"}`)
				refused, line := p.next()
				if string(refused.ID) != `"s1"` || !strings.Contains(line, "User rejected sampling request") {
					t.Errorf("the server got %s", line)
				}
				p.wantReply(`{"jsonrpc":"2.0","id":"e1","result":{"action":"decline"}}`)
				p.say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[],"isError":true}}`, q.ID)
				if got := w.next(); !strings.Contains(got, `"isError":true`) {
					t.Errorf("the client got %s", got)
				}

				// So is a client that says nothing.
				w, q = call()
				_ = w.next() + w.next()
				told := map[string]string{}
				for range 2 {
					one, line := p.next()
					told[string(one.ID)] = line
				}
				sameJSON(t, told[`"e1"`], `{"jsonrpc":"2.0","id":"e1","result":{"action":"cancel"}}`)
				if !strings.Contains(told[`"s1"`], "question_timeout (10s)") {
					t.Errorf("the server got %q", told)
				}
				p.say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, q.ID)
				for _, part := range []string{`"requestId":5`, `"requestId":6`, `"id":"c1"`} {
					if got := w.next(); !strings.Contains(got, part) {
						t.Errorf("the client got %s, want %s", got, part)
					}
				}

				// A client that goes with its session leaves nothing behind.
				w, q = call()
				_ = w.next() + w.next()
				c.send("DELETE", "")
				if got := w.next(); !strings.Contains(got, "ended the session") {
					t.Errorf("the client got %s", got)
				}
				settle()
				var lines string
				for range 3 {
					_, line := p.next()
					lines += line
				}
				for _, part := range []string{`"id":"e1"`, `"id":"s1"`, `"notifications/cancelled","params":{"requestId":` + string(q.ID)} {
					if !strings.Contains(lines, part) {
						t.Errorf("the server got %s, which lacks %s", lines, part)
					}
				}
				p.quiet()
				r.atRest()
			})
		})
	}
}

func TestALegacyServersQuestionThatTheClientCannotBeAsked(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := curious(t, rigOptions{sessions: SessionPolicy{Enabled: true}})
		c := r.greets("2025-03-26", `{}`)
		p := r.pool.process()
		work := c.begin(callBody)
		p.expect("tools/call")
		p.ask(`1`, methodElicit, nameForm)
		work.wait().wantError(t, 200, codeMissingCapability, `"c1"`, "elicitation")
		settle()
		if n := r.upstream.Stats().InFlight; n != 0 {
			t.Errorf("%d requests hold a slot", n)
		}
	})
}
