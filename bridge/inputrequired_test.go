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

// answerPing is a server that shows signs of life.
func answerPing(more reaction) reaction {
	return func(p *process, r request, line string) bool {
		if r.Method == methodPing {
			p.answer(r.ID, `{}`)
			return true
		}
		return more != nil && more(p, r, line)
	}
}

// curious makes a rig with a legacy server that may ask.
func curious(t *testing.T, o rigOptions) *rig {
	t.Helper()
	o.asks = true
	if o.react == nil {
		o.react = legacyServer("2025-11-25", `{"tools":{},"prompts":{},"resources":{}}`, answerPing(listTools(`[]`, nil)))
	}
	return newRig(t, o)
}

const (
	allCapabilities = `{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{},"context":{}},"roots":{}}`
	bookK           = `"name":"book","arguments":{"title":"Dune"}`
	nameForm        = `{"message":"Your name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}`
	accepted2       = `{"action":"accept","content":{"name":"Paul"}}`
)

// able adds to params the metadata of a client with these capabilities.
func able(params, capabilities string) string {
	if params != "" {
		params += ","
	}
	return params + strings.Replace(modernMeta, `Capabilities":{}`, `Capabilities":`+capabilities, 1)
}

func (p *process) ask(id, method, params string) {
	if params != "" {
		params = `,"params":` + params
	}
	p.say(`{"jsonrpc":"2.0","id":%s,"method":%q%s}`, id, method, params)
}

// inputRequired is what these tests read of such a result.
type inputRequired struct {
	ID     json.RawMessage
	Result struct {
		ResultType    string
		InputRequests map[string]struct {
			Method string
			Params json.RawMessage
		}
		RequestState string
	}
}

func (rep reply) inputRequired(t testing.TB) inputRequired {
	t.Helper()
	body := rep.body
	if all := rep.events(); len(all) > 0 {
		body = all[len(all)-1]
	}
	var r inputRequired
	if err := json.Unmarshal([]byte(body), &r); err != nil || rep.status != 200 || r.Result.ResultType != "input_required" || r.Result.RequestState == "" {
		t.Fatalf("no input_required result: %d %s", rep.status, rep.body)
	}
	return r
}

// answering are params with answers; state is what the result had.
func answering(params, responses, state string) string {
	return able(params+`,"inputResponses":`+responses+`,"requestState":"`+state+`"`, allCapabilities)
}

// wantReply checks the next line that the server got.
func (p *process) wantReply(want string) {
	p.t.Helper()
	_, line := p.next()
	sameJSON(p.t, line, want)
}

func TestAQuestionOfALegacyServerIsAnsweredThroughAnInputRequiredResult(t *testing.T) {
	for name, limits := range map[string]Limits{"auto": {}, "serialize": {Interactive: InteractiveSerialize}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := curious(t, rigOptions{limits: limits})
				p := r.up()
				first := r.beginModern("1", "tools/call", able(bookK, allCapabilities))
				q := p.expect("tools/call")
				p.ask(`"s-1"`, methodElicit, `{"_meta":{"progressToken":3},"message":"Your name?","requestedSchema":{"type":"object"},"elicitationId":"e"}`)
				rep := first.wait()
				asked := rep.inputRequired(t)
				rep.wantJSON(t, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required","inputRequests":{"q1":{"method":"elicitation/create",`+
					`"params":{"message":"Your name?","requestedSchema":{"type":"object"}}}},"requestState":"`+asked.Result.RequestState+
					`","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"old","version":"0.9"}}}}`)
				if s := r.upstream.Stats(); s.Questions != 1 || s.InFlight != 1 {
					t.Errorf("%d questions, %d in flight, want one of each", s.Questions, s.InFlight)
				}
				p.quiet()

				<-time.After(9 * time.Minute) // the user thinks
				second := r.beginModern(`"two"`, "tools/call", answering(bookK, `{"q1":`+accepted2+`,"q99":{}}`, asked.Result.RequestState))
				p.wantReply(`{"jsonrpc":"2.0","id":"s-1","result":` + accepted2 + `}`)
				// Another one in a row, of another kind, answered after a long while too.
				p.ask(`7`, methodSample, `{"messages":[],"maxTokens":5,"includeContext":"thisServer"}`)
				asked = second.wait().inputRequired(t)
				if got := asked.Result.InputRequests["q2"]; got.Method != methodSample || canonical(t, string(got.Params)) != `{"includeContext":"thisServer","maxTokens":5,"messages":[]}` {
					t.Errorf("the second question is %+v", got)
				}
				<-time.After(9 * time.Minute)
				third := r.beginModern(`3`, "tools/call", answering(bookK, `{"q2":{"role":"assistant","content":{"type":"text","text":"x"},"model":"m"}}`, asked.Result.RequestState))
				p.wantReply(`{"jsonrpc":"2.0","id":7,"result":{"role":"assistant","content":{"type":"text","text":"x"},"model":"m"}}`)
				p.answer(q.ID, `{"content":[]}`)
				third.wait().wantJSON(t, `{"jsonrpc":"2.0","id":3,"result":{"resultType":"complete","content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"old","version":"0.9"}}}}`)
				p.quiet()
				r.atRest()
			})
		})
	}
}

func TestSeveralQuestionsAtOnceAreShownAtOnceAndMissingAnswersAreAskedForAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := curious(t, rigOptions{})
		p := r.up()
		first := r.beginModern("1", "prompts/get", able(`"name":"p"`, allCapabilities))
		q := p.expect("prompts/get")
		p.ask(`1`, methodElicit, nameForm)
		p.ask(`2`, methodRoots, "")
		p.ask(`3`, methodElicit, `{"mode":"url","message":"m","url":"https://example.com","elicitationId":"e"}`)
		asked := first.wait().inputRequired(t)
		if n := len(asked.Result.InputRequests); n != 3 {
			t.Fatalf("%d questions at once, want 3: %+v", n, asked)
		}
		if got := asked.Result.InputRequests["q3"]; string(got.Params) != `{"mode":"url","message":"m","url":"https://example.com"}` {
			t.Errorf("the URL question is %s", got.Params)
		}
		if got := asked.Result.InputRequests["q2"]; got.Method != methodRoots || got.Params != nil {
			t.Errorf("the question for roots is %+v", got)
		}
		p.quiet()
		second := r.beginModern("2", "prompts/get", answering(`"name":"p"`, `{"q2":{"roots":[{"uri":"file:///x"}]}}`, asked.Result.RequestState))
		p.wantReply(`{"jsonrpc":"2.0","id":2,"result":{"roots":[{"uri":"file:///x"}]}}`)
		again := second.wait().inputRequired(t)
		if len(again.Result.InputRequests) != 2 || again.Result.InputRequests["q1"].Method == "" || again.Result.InputRequests["q3"].Method == "" {
			t.Fatalf("q1 and q3 are missing: %+v", again)
		}
		third := r.beginModern("3", "prompts/get", answering(`"name":"p"`, `{"q1":{"action":"decline"},"q3":{"action":"cancel"}}`, again.Result.RequestState))
		p.wantReply(`{"jsonrpc":"2.0","id":1,"result":{"action":"decline"}}`)
		p.wantReply(`{"jsonrpc":"2.0","id":3,"result":{"action":"cancel"}}`)
		p.answer(q.ID, `{"messages":[]}`)
		if rep := third.wait(); !strings.Contains(rep.body, `"messages":[]`) {
			t.Errorf("got %s", rep.body)
		}
		r.atRest()
	})
}

func TestAClientThatDeclaredNoSuchCapabilityIsNotAsked(t *testing.T) {
	for name, test := range map[string]struct{ capabilities, method, params, want string }{
		"no elicitation":    {`{"sampling":{}}`, methodElicit, nameForm, `{"elicitation":{}}`},
		"forms only":        {`{"elicitation":{}}`, methodElicit, `{"mode":"url","message":"m","url":"u"}`, `{"elicitation":{"url":{}}}`},
		"URLs only":         {`{"elicitation":{"url":{}}}`, methodElicit, nameForm, `{"elicitation":{}}`},
		"null is none":      {`{"elicitation":null}`, methodElicit, nameForm, `{"elicitation":{}}`},
		"no sampling":       {`{"elicitation":{}}`, methodSample, `{"messages":[]}`, `{"sampling":{}}`},
		"sampling no tools": {`{"sampling":{}}`, methodSample, `{"messages":[],"tools":[]}`, `{"sampling":{"tools":{}}}`},
		"no roots":          {`{}`, methodRoots, ``, `{"roots":{}}`},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := curious(t, rigOptions{})
				p := r.up()
				c := r.beginModern("1", "tools/call", able(bookK, test.capabilities))
				q := p.expect("tools/call")
				p.ask(`"s"`, test.method, test.params)
				rep := c.wait()
				rep.wantError(t, 400, codeMissingCapability, "1", "did not declare")
				if !strings.Contains(rep.body, `"data":{"requiredCapabilities":`+test.want+`}`) {
					t.Errorf("want %s in %s", test.want, rep.body)
				}
				if test.method == methodElicit {
					p.wantReply(`{"jsonrpc":"2.0","id":"s","result":{"action":"cancel"}}`)
				} else if _, line := p.next(); !strings.Contains(line, `"id":"s","error":{"code":-31409`) {
					t.Errorf("the server got %s", line)
				}
				if got := p.expect(notifyCancelled); string(got.Params.RequestID) != string(q.ID) {
					t.Errorf("%s was cancelled, want %s", got.Params.RequestID, q.ID)
				}
				r.atRest()
			})
		})
	}
}

func TestContextIsNotAskedOfAClientThatCannotGiveIt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := curious(t, rigOptions{})
		p := r.up()
		c := r.beginModern("1", "tools/call", able(bookK, `{"sampling":{}}`))
		p.expect("tools/call")
		p.ask(`1`, methodSample, `{"messages":[],"includeContext":"allServers","maxTokens":1}`)
		if got := c.wait().inputRequired(t).Result.InputRequests["q1"]; string(got.Params) != `{"messages":[],"maxTokens":1}` {
			t.Errorf("got %s", got.Params)
		}
	})
}

func TestOnlyTheRightClientCanAnswerAndOnlyOnceAndInTime(t *testing.T) {
	const answer = `{"q1":` + accepted2 + `}`
	for name, test := range map[string]struct {
		change func(r *rig, state string) (method, params string)
		words  string
	}{
		"another principal": {func(r *rig, state string) (string, string) {
			r.as("p2")
			return "tools/call", answering(bookK, answer, state)
		}, "not one of this server for this user"},
		"a changed state": {func(_ *rig, state string) (string, string) {
			changed := []byte(state)
			changed[len(changed)/2] ^= 1
			return "tools/call", answering(bookK, answer, string(changed))
		}, "was changed"},
		"a shortened state": {func(_ *rig, state string) (string, string) {
			return "tools/call", answering(bookK, answer, state[:len(state)-2])
		}, "was changed"},
		"a state of another make": {func(*rig, string) (string, string) {
			return "tools/call", answering(bookK, answer, "eyJhIjoxfQ")
		}, "not one of this server"},
		"no state": {func(*rig, string) (string, string) {
			return "tools/call", able(bookK+`,"inputResponses":`+answer, allCapabilities)
		}, "requestState is missing"},
		"other arguments": {func(_ *rig, state string) (string, string) {
			return "tools/call", answering(`"name":"book","arguments":{"title":"Emma"}`, answer, state)
		}, "another request"},
		"another tool": {func(_ *rig, state string) (string, string) {
			return "tools/call", answering(`"name":"sell","arguments":{"title":"Dune"}`, answer, state)
		}, "another request"},
		"another method": {func(_ *rig, state string) (string, string) {
			return "prompts/get", answering(bookK, answer, state)
		}, "another request"},
		"too late": {func(_ *rig, state string) (string, string) {
			<-time.After(10 * time.Minute)
			return "tools/call", answering(bookK, answer, state)
		}, "expired"},
		"responses that are no object": {func(_ *rig, state string) (string, string) {
			return "tools/call", answering(bookK, `[]`, state)
		}, "must be an object"},
		"an answer that is no object": {func(_ *rig, state string) (string, string) {
			return "tools/call", answering(bookK, `{"q1":"yes"}`, state)
		}, "not an object"},
		"an answer without an action": {func(_ *rig, state string) (string, string) {
			return "tools/call", answering(bookK, `{"q1":{"content":{}}}`, state)
		}, "action must be"},
		"an unknown action": {func(_ *rig, state string) (string, string) {
			return "tools/call", answering(bookK, `{"q1":{"action":"yes"}}`, state)
		}, "action must be"},
		"content that is no object": {func(_ *rig, state string) (string, string) {
			return "tools/call", answering(bookK, `{"q1":{"action":"accept","content":[]}}`, state)
		}, "content must be"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := curious(t, rigOptions{})
				p := r.up()
				first := r.beginModern("1", "tools/call", able(bookK, allCapabilities))
				q := p.expect("tools/call")
				p.ask(`9`, methodElicit, nameForm)
				state := first.wait().inputRequired(t).Result.RequestState
				method, params := test.change(r, state)
				r.modern("2", method, params).wantError(t, 400, codeInvalidParams, "2", test.words)
				if name == "too late" {
					p.wantReply(`{"jsonrpc":"2.0","id":9,"result":{"action":"cancel"}}`)
					p.expect(notifyCancelled)
					p.quiet()
					r.atRest()
					return
				}
				p.quiet() // nothing of it came to the server, and the right answer still does
				r.as("p1")
				right := r.beginModern("3", "tools/call", answering(`"arguments" : {"title":"\u0044une"}, "name":"book"`, answer, state))
				p.wantReply(`{"jsonrpc":"2.0","id":9,"result":` + accepted2 + `}`)
				r.modern("4", "tools/call", answering(bookK, answer, state)).wantError(t, 400, codeInvalidParams, "4", "used before")
				p.answer(q.ID, `{"content":[]}`)
				if rep := right.wait(); rep.status != 200 || !strings.Contains(rep.body, `"content":[]`) {
					t.Errorf("got %d %s", rep.status, rep.body)
				}
				r.modern("5", "tools/call", answering(bookK, answer, state)).wantError(t, 400, codeInvalidParams, "5", "used before")
				p.quiet()
				r.atRest()
			})
		})
	}
}

func TestAnswersOfTheWrongShapeNeverReachTheServer(t *testing.T) {
	for answer, test := range map[string]struct{ method, params string }{
		`{"role":"x","content":{},"model":"m"}`:       {methodSample, `{"messages":[]}`},
		`{"role":"user","content":"t","model":"m"}`:   {methodSample, `{"messages":[]}`},
		`{"role":"assistant","content":{}}`:           {methodSample, `{"messages":[]}`},
		`{"role":"assistant","content":{},"model":1}`: {methodSample, `{"messages":[]}`},
		`{"roots":{}}`:             {methodRoots, ``},
		`{"roots":[1]}`:            {methodRoots, ``},
		`{"roots":[{"name":"x"}]}`: {methodRoots, ``},
		`{}`:                       {methodRoots, ``},
	} {
		t.Run(answer, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := curious(t, rigOptions{})
				p := r.up()
				first := r.beginModern("1", "tools/call", able(bookK, allCapabilities))
				p.expect("tools/call")
				p.ask(`9`, test.method, test.params)
				state := first.wait().inputRequired(t).Result.RequestState
				r.modern("2", "tools/call", answering(bookK, `{"q1":`+answer+`}`, state)).wantError(t, 400, codeInvalidParams, "2", "is no answer to")
				p.quiet()
			})
		})
	}
}

func TestAQuestionThatCannotBeAttributedIsRefusedToTheServer(t *testing.T) {
	for name, test := range map[string]struct {
		before func(r *rig, p *process)
		words  string
	}{
		"no request in flight": {func(*rig, *process) {}, "no client has a request in flight"},
		"two requests in flight": {func(r *rig, p *process) {
			r.beginModern("1", "tools/call", able(bookK, allCapabilities))
			p.expect("tools/call")
			r.as("p2")
			r.beginModern("2", "tools/call", able(bookK, allCapabilities))
			p.expect("tools/call")
		}, "which of 2 requests"},
		"one in flight and one parked": {func(r *rig, p *process) {
			c := r.beginModern("1", "tools/call", able(bookK, allCapabilities))
			p.expect("tools/call")
			p.ask(`0`, methodElicit, nameForm)
			c.wait().inputRequired(t)
			r.beginModern("2", "tools/call", able(bookK, allCapabilities))
			p.expect("tools/call")
		}, "which of 2 requests"},
		"one in flight and one given up": {func(r *rig, p *process) {
			c := r.beginModern("1", "tools/call", able(bookK, allCapabilities))
			p.expect("tools/call")
			c.leave()
			p.expect(notifyCancelled)
			r.beginModern("2", "tools/call", able(bookK, allCapabilities))
			p.expect("tools/call")
		}, "which of 2 requests"},
		"a legacy client": {func(r *rig, p *process) {
			r.begin(headers{"MCP-Protocol-Version": "2025-11-25"}, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{`+bookK+`}}`)
			p.expect("tools/call")
		}, "cannot be asked"},
		"a method that may not ask": {func(r *rig, p *process) {
			r.beginModern("1", "completion/complete", able(`"ref":{}`, allCapabilities))
			p.expect("completion/complete")
		}, "cannot be asked"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := curious(t, rigOptions{})
				p := r.up()
				test.before(r, p)
				p.ask(`"x"`, methodElicit, nameForm)
				_, line := p.next()
				if !strings.Contains(line, `"id":"x","error":{"code":-31409`) || !strings.Contains(line, test.words) {
					t.Errorf("the server got %s, want %q", line, test.words)
				}
				p.quiet()
			})
		})
	}
}

func TestAServerAsksNothingWhereThatIsSwitchedOff(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := curious(t, rigOptions{limits: Limits{Interactive: InteractiveOff}})
		p := r.up()
		for _, line := range p.lines() {
			if strings.Contains(line, `"method":"initialize"`) && !strings.Contains(line, `"capabilities":{}`) {
				t.Errorf("the server was greeted with %s", line)
			}
		}
		r.beginModern("1", "tools/call", able(bookK, allCapabilities))
		p.expect("tools/call")
		p.ask(`1`, methodElicit, nameForm)
		if _, line := p.next(); !strings.Contains(line, `"id":1,"error":{"code":-32601`) {
			t.Errorf("the server got %s", line)
		}
	})
}

func TestAServerIsToldWhenTheClientDoesNotComeBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := curious(t, rigOptions{limits: Limits{QuestionTimeout: time.Minute}})
		p := r.up()
		first := r.beginModern("1", "tools/call", able(bookK, allCapabilities))
		q := p.expect("tools/call")
		p.ask(`1`, methodElicit, nameForm)
		p.ask(`2`, methodSample, `{"messages":[]}`)
		first.wait().inputRequired(t)
		<-time.After(59 * time.Second)
		p.quiet()
		<-time.After(time.Second)
		got := map[string]bool{}
		for range 2 {
			_, line := p.next()
			got[line] = true
		}
		if !got[`{"jsonrpc":"2.0","id":1,"result":{"action":"cancel"}}`] {
			t.Errorf("the server got %v", got)
		}
		if c := p.expect(notifyCancelled); string(c.Params.RequestID) != string(q.ID) || !strings.Contains(c.Params.Reason, "question_timeout (1m0s)") {
			t.Errorf("%+v", c.Params)
		}
		p.quiet()
		r.atRest()
	})
}

func TestWhatHappensToAParkedRequestIsToldToTheClientThatComesBack(t *testing.T) {
	park := func(t *testing.T, r *rig) (p *process, q request, state string) {
		t.Helper()
		p = r.up()
		first := r.beginModern("1", "tools/call", able(bookK, allCapabilities))
		q = p.expect("tools/call")
		p.ask(`9`, methodElicit, nameForm)
		return p, q, first.wait().inputRequired(t).Result.RequestState
	}
	const answer = `{"q1":` + accepted2 + `}`
	t.Run("its process died", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			r := curious(t, rigOptions{})
			p, _, state := park(t, r)
			p.die()
			synctest.Wait()
			if s := r.upstream.Stats(); s.InFlight != 0 {
				t.Errorf("a lost request holds a slot")
			}
			r.modern("2", "tools/call", answering(bookK, answer, state)).wantOutcome(t, "unknown", "uncertain", `"book"`, "process ended")
			r.atRest()
		})
	})
	t.Run("the server went on without the answer", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			r := curious(t, rigOptions{})
			p, q, state := park(t, r)
			p.answer(q.ID, `{"content":[],"n":5}`)
			synctest.Wait()
			if rep := r.modern("2", "tools/call", answering(bookK, answer, state)); !strings.Contains(rep.body, `"n":5`) {
				t.Errorf("got %s", rep.body)
			}
			p.quiet() // the late answer is not the server's any more
			r.atRest()
		})
	})
	t.Run("the server took the question back", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			r := curious(t, rigOptions{})
			p, q, state := park(t, r)
			p.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}`)
			synctest.Wait()
			c := r.beginModern("2", "tools/call", answering(bookK, answer, state))
			p.quiet()
			p.answer(q.ID, `{"n":6}`)
			if rep := c.wait(); !strings.Contains(rep.body, `"n":6`) {
				t.Errorf("got %s", rep.body)
			}
			r.atRest()
		})
	})
	t.Run("mcpd was stopped", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			r := curious(t, rigOptions{})
			p, _, state := park(t, r)
			r.upstream.Close()
			p.wantReply(`{"jsonrpc":"2.0","id":9,"result":{"action":"cancel"}}`)
			p.expect(notifyCancelled)
			r.modern("2", "tools/call", answering(bookK, answer, state)).wantError(t, 400, codeInvalidParams, "2")
			r.atRest()
			// The next mcpd has the same key.
			r = curious(t, rigOptions{})
			r.modern("2", "tools/call", answering(bookK, answer, state)).wantOutcome(t, "unknown", "renewed while")
			r.up().quiet()
		})
	})
	t.Run("the client leaves again", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			r := curious(t, rigOptions{})
			p, _, state := park(t, r)
			c := r.beginModern("2", "tools/call", answering(bookK, answer, state))
			p.wantReply(`{"jsonrpc":"2.0","id":9,"result":` + accepted2 + `}`)
			c.leave()
			p.expect(notifyCancelled)
			r.atRest()
		})
	})
}

func TestAQuestionTakenBackAtOnceIsNeverShown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := curious(t, rigOptions{})
		p := r.up()
		c := r.beginModern("1", "tools/call", able(bookK, allCapabilities))
		q := p.expect("tools/call")
		p.ask(`9`, methodElicit, nameForm)
		p.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}`)
		<-time.After(time.Minute)
		p.answer(q.ID, `{"n":1}`)
		if rep := c.wait(); !strings.Contains(rep.body, `"n":1`) {
			t.Errorf("got %s", rep.body)
		}
		r.atRest()
	})
}

func TestProgressFollowsTheClientThatAnswered(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := curious(t, rigOptions{})
		p := r.up()
		withToken := func(params, token string) string {
			return strings.Replace(params, `"_meta":{`, `"_meta":{"progressToken":`+token+`,`, 1)
		}
		first := r.beginModern("1", "tools/call", withToken(able(bookK, allCapabilities), `"a"`))
		q := p.expect("tools/call")
		p.progress(q.token(), 1)
		p.ask(`9`, methodElicit, nameForm)
		rep := first.wait()
		if !strings.Contains(rep.body, `"progressToken":"a"`) {
			t.Errorf("no progress in %s", rep.body)
		}
		asked := rep.inputRequired(t)
		p.progress(q.token(), 2) // nobody is there
		synctest.Wait()
		second := r.beginModern("2", "tools/call", withToken(answering(bookK, `{"q1":`+accepted2+`}`, asked.Result.RequestState), `"b"`))
		p.wantReply(`{"jsonrpc":"2.0","id":9,"result":` + accepted2 + `}`)
		p.progress(q.token(), 3)
		p.answer(q.ID, `{"n":1}`)
		rep = second.wait()
		if all := rep.events(); len(all) != 2 || !strings.Contains(all[0], `"progressToken":"b","progress":3`) {
			t.Errorf("got %s", rep.body)
		}
		r.atRest()
	})
}

func TestTheTimeOfAQuestionIsNotTheServers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := curious(t, rigOptions{limits: Limits{RequestTimeout: time.Minute, MaxRequestTime: 2 * time.Minute, QuestionTimeout: time.Hour}})
		p := r.up()
		c := r.beginModern("1", "tools/call", able(bookK, allCapabilities))
		p.expect("tools/call")
		for i := range 3 {
			<-time.After(30 * time.Second)
			p.ask(fmt.Sprint(i), methodElicit, nameForm)
			asked := c.wait().inputRequired(t)
			<-time.After(50 * time.Minute)
			c = r.beginModern("1", "tools/call", answering(bookK, fmt.Sprintf(`{"q%d":%s}`, i+1, accepted2), asked.Result.RequestState))
			p.wantReply(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%s}`, i, accepted2))
		}
		<-time.After(31 * time.Second)
		c.wait().wantOutcome(t, "unknown", "max_request_time")
		p.expect(notifyCancelled)
		r.atRest()
	})
}

func TestQuestionsOfOneUserAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := curious(t, rigOptions{limits: Limits{Interactive: InteractiveSerialize, RequestTimeout: time.Minute}})
		p := r.up()
		r.upstream.askings.byPrincipal["p1"] = mostParked
		c := r.beginModern("1", "tools/call", able(bookK, allCapabilities))
		q := p.expect("tools/call")
		p.ask(`9`, methodElicit, nameForm)
		if _, line := p.next(); !strings.Contains(line, `"id":9,"error":{"code":-31409`) || !strings.Contains(line, "32 requests of this client's user") {
			t.Errorf("the server got %s", line)
		}
		p.answer(q.ID, `{"n":1}`)
		if rep := c.wait(); !strings.Contains(rep.body, `"n":1`) {
			t.Errorf("got %s", rep.body)
		}
		delete(r.upstream.askings.byPrincipal, "p1")
		r.atRest()
	})
}

func TestRequestsTakeTurnsWhereTheServerIsToKnowWhoIsAsked(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := curious(t, rigOptions{limits: Limits{Interactive: InteractiveSerialize, RequestTimeout: time.Minute}})
		p := r.up()
		first := r.beginModern("1", "tools/call", able(bookK, allCapabilities))
		q1 := p.expect("tools/call")
		r.as("p2")
		second := r.beginModern("2", "tools/call", able(bookK, allCapabilities))
		p.quiet()
		p.ask(`9`, methodElicit, nameForm)
		asked := first.wait().inputRequired(t)
		p.quiet() // the first is still the one whose turn it is
		r.as("p1")
		again := r.beginModern("1", "tools/call", answering(bookK, `{"q1":`+accepted2+`}`, asked.Result.RequestState))
		p.wantReply(`{"jsonrpc":"2.0","id":9,"result":` + accepted2 + `}`)
		p.answer(q1.ID, `{"n":1}`)
		again.wait()
		q2 := p.expect("tools/call")
		third := r.beginModern("3", "tools/call", able(bookK, allCapabilities))
		<-time.After(30 * time.Second)
		p.progress(q2.token(), 1)
		<-time.After(31 * time.Second)
		second.wait().wantOutcome(t, "unknown", "request_timeout")
		p.expect(notifyCancelled)
		third.leave()
		r.atRest()
	})
	t.Run("one that waits too long is told why", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			r := curious(t, rigOptions{limits: Limits{Interactive: InteractiveSerialize, RequestTimeout: time.Minute, QuestionTimeout: time.Hour}})
			p := r.up()
			first := r.beginModern("1", "tools/call", able(bookK, allCapabilities))
			p.expect("tools/call")
			p.ask(`9`, methodElicit, nameForm)
			first.wait().inputRequired(t)
			r.modern("2", "tools/call", able(bookK, allCapabilities)).wantError(t, 503, CodeUnavailable, "2", "one request at a time")
			p.quiet()
		})
	})
	t.Run("each of many clients is asked its own question", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			react := func(p *process, q request, _ string) bool {
				switch {
				case q.Method == methodToolsCall:
					p.say(`{"jsonrpc":"2.0","id":%s,"method":"elicitation/create","params":{"message":%s,"requestedSchema":{}}}`, q.ID, q.Params.Arguments)
				case q.Method == "" && q.Result != nil:
					p.answer(q.ID, `{"got":`+string(q.Result)+`}`)
				}
				return true
			}
			r := curious(t, rigOptions{
				limits: Limits{Interactive: InteractiveSerialize},
				react:  legacyServer("2025-06-18", `{}`, answerPing(listTools(`[]`, react))),
			})
			r.up()
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					params := fmt.Sprintf(`"name":"book","arguments":{"n":%d}`, i)
					asked := r.modern("1", "tools/call", able(params, allCapabilities)).inputRequired(t)
					var question struct{ Message struct{ N int } }
					if err := json.Unmarshal(asked.Result.InputRequests["q1"].Params, &question); err != nil || question.Message.N != i {
						t.Errorf("client %d was asked %+v", i, asked.Result.InputRequests)
					}
					rep := r.modern("2", "tools/call", answering(params, fmt.Sprintf(`{"q1":{"action":"accept","content":{"n":%d}}}`, i), asked.Result.RequestState))
					if !strings.Contains(rep.body, fmt.Sprintf(`"got":{"action":"accept","content":{"n":%d}}`, i)) {
						t.Errorf("client %d got %s", i, rep.body)
					}
				})
			}
			wg.Wait()
			r.atRest()
		})
	})
}

func TestAKeyedCallIsAskedAndRunsOnce(t *testing.T) {
	legacy := func() reaction {
		return legacyServer("2025-11-25", `{"tools":{}}`, answerPing(listTools(`[]`, nil)))
	}
	const answer = `{"q1":` + accepted2 + `}`
	t.Run("two clients wait and one answers", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			r := keyed(t, "", rigOptions{asks: true, react: legacy()})
			p := r.up()
			first := r.beginModern("1", "tools/call", able(holdK, allCapabilities))
			q := p.expect("tools/call")
			second := r.beginModern("2", "tools/call", able(holdK, allCapabilities))
			synctest.Wait()
			p.ask(`9`, methodElicit, nameForm)
			asked := first.wait().inputRequired(t)
			second.wait().inputRequired(t)
			// One that comes later is asked at once.
			r.modern("3", "tools/call", able(holdK, allCapabilities)).inputRequired(t)
			r.modern("3", "tools/call", able(holdK, `{}`)).wantError(t, 400, codeMissingCapability, "3", "elicitation")
			<-time.After(9 * time.Minute)
			p.quiet()
			r.modern("4", "tools/call", answering(`"name":"hold","arguments":{"title":"Emma","key":"k"}`, answer, asked.Result.RequestState)).
				wantError(t, 400, codeInvalidParams, "4", "another request")
			r.modern("4", "tools/call", answering(holdK, `{"q1":1}`, asked.Result.RequestState)).wantError(t, 400, codeInvalidParams, "4")
			p.quiet()
			third := r.beginModern("5", "tools/call", strings.Replace(answering(holdK, answer, asked.Result.RequestState), `"_meta":{`, `"_meta":{"progressToken":"x",`, 1))
			p.wantReply(`{"jsonrpc":"2.0","id":9,"result":` + accepted2 + `}`)
			fourth := r.beginModern("6", "tools/call", answering(holdK, answer, asked.Result.RequestState))
			synctest.Wait()
			p.answer(q.ID, `{"n":1}`)
			const meta = `"_meta":{"mcpd/replayed":true,"io.modelcontextprotocol/serverInfo":{"name":"old","version":"0.9"}}`
			third.wait().wantJSON(t, `{"jsonrpc":"2.0","id":5,"result":{"resultType":"complete","n":1,`+meta+`}}`)
			fourth.wait().wantJSON(t, `{"jsonrpc":"2.0","id":6,"result":{"resultType":"complete","n":1,`+meta+`}}`)
			r.modern("7", "tools/call", answering(holdK, answer, asked.Result.RequestState)).
				wantJSON(t, `{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","n":1,`+meta+`}}`)
			p.quiet()
			r.atRest()
		})
	})
	t.Run("nobody comes back", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			r := keyed(t, "", rigOptions{asks: true, react: legacy(), limits: Limits{RequestTimeout: 30 * time.Second, QuestionTimeout: time.Minute}})
			p := r.up()
			first := r.beginModern("1", "tools/call", able(holdK, allCapabilities))
			q := p.expect("tools/call")
			p.ask(`9`, methodElicit, nameForm)
			asked := first.wait().inputRequired(t)
			<-time.After(time.Minute - gatherTime)
			p.wantReply(`{"jsonrpc":"2.0","id":9,"result":{"action":"cancel"}}`)
			p.answer(q.ID, `{"n":2}`)
			synctest.Wait()
			if rep := r.modern("2", "tools/call", able(holdK, allCapabilities)); !strings.Contains(rep.body, `"n":2`) {
				t.Errorf("got %s", rep.body)
			}
			r.modern("3", "tools/call", answering(holdK, answer, asked.Result.RequestState)).wantError(t, 400, codeInvalidParams, "3", "expired")
			p.quiet()
			r.atRest()
		})
	})
	t.Run("the client cannot be asked", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			r := keyed(t, "", rigOptions{asks: true, react: legacy()})
			p := r.up()
			first := r.beginModern("1", "tools/call", able(holdK, `{"sampling":{}}`))
			q := p.expect("tools/call")
			p.ask(`9`, methodElicit, nameForm)
			if _, line := p.next(); !strings.Contains(line, `"id":9,"error":{"code":-31409`) || !strings.Contains(line, "elicitation.form") {
				t.Errorf("the server got %s", line)
			}
			p.answer(q.ID, `{"n":3}`)
			if rep := first.wait(); !strings.Contains(rep.body, `"n":3`) {
				t.Errorf("got %s", rep.body)
			}
			r.atRest()
		})
	})
	t.Run("its process dies while it is asked", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			r := keyed(t, "", rigOptions{asks: true, react: legacy()})
			p := r.up()
			first := r.beginModern("1", "tools/call", able(holdK, allCapabilities))
			p.expect("tools/call")
			p.ask(`9`, methodElicit, nameForm)
			asked := first.wait().inputRequired(t)
			p.die()
			synctest.Wait()
			r.modern("2", "tools/call", answering(holdK, answer, asked.Result.RequestState)).wantOutcome(t, "unknown")
			r.atRest()
		})
	})
	t.Run("mcpd stops while it is asked", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			r := keyed(t, "", rigOptions{asks: true, react: legacy()})
			p := r.up()
			first := r.beginModern("1", "tools/call", able(holdK, allCapabilities))
			q := p.expect("tools/call")
			p.ask(`9`, methodElicit, nameForm)
			first.wait().inputRequired(t)
			r.upstream.Close()
			p.wantReply(`{"jsonrpc":"2.0","id":9,"result":{"action":"cancel"}}`)
			p.answer(q.ID, `{"n":4}`)
			synctest.Wait()
			r.atRest()
		})
	})
	t.Run("an injected key stays mcpd's own", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			r := keyed(t, "", rigOptions{asks: true, react: legacy()})
			p := r.up()
			const send = `"name":"send","arguments":{"to":"x","idempotency_key":"k"}`
			first := r.beginModern("1", "tools/call", able(send, allCapabilities))
			p.expect("tools/call")
			p.ask(`9`, methodElicit, nameForm)
			state := first.wait().inputRequired(t).Result.RequestState
			// The state is worth nothing without the key, and the server sees neither.
			r.modern("2", "tools/call", answering(`"name":"send","arguments":{"to":"x"}`, answer, state)).wantError(t, 400, codeInvalidParams, "2", "idempotency key")
			p.quiet()
		})
	})
}

func TestAModernServerSeesItsOwnStateByteForByte(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{asks: true, react: modernServer(`{}`, listTools(`[]`, echo))})
		for _, state := range []string{"mcpd1.abc", "x"} {
			rep := r.modern("1", "tools/call", answering(bookK, `{"q1": {"action":"accept"}}`, state))
			if !strings.Contains(rep.body, `"inputResponses":{"q1": {"action":"accept"}},"requestState":"`+state+`"`) {
				t.Errorf("got %s", rep.body)
			}
		}
	})
}
