package bridge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// token is the progress token that a request carries upstream.
func (q request) token() string { return string(q.Params.Meta["progressToken"]) }

func (p *process) progress(token string, n int) {
	p.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"x":1.0}}`, token, n)
}

func (p *process) logMessage(level, text string) {
	p.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":%q,"data":%q}}`, level, text)
}

func TestTheAnswerIsJSONWhenItComesFirst(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		p := r.up()
		c := r.beginModern("7", "vendor/x", "")
		q := p.expect("vendor/x")
		synctest.Wait()
		p.answer(q.ID, `{"resultType":"complete","v":1.0}`)
		rep := c.wait()
		rep.wantJSON(t, `{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","v":1.0}}`)
		if rep.header.Get("Content-Length") != fmt.Sprint(len(rep.body)) {
			t.Errorf("Content-Length %q", rep.header.Get("Content-Length"))
		}
		r.atRest()
	})
}

func TestTheAnswerHasALengthWhateverItsSize(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		p := r.up()
		around := len(`{"jsonrpc":"2.0","id":7,"result":{"v":""}}`)
		for _, size := range []int{100, countedUpTo - 1, countedUpTo, countedUpTo + 1, 4 << 10, 5 << 10, 100 << 10} {
			c := r.beginModern("7", "vendor/x", "")
			p.answer(p.expect("vendor/x").ID, `{"v":"`+strings.Repeat("x", size-around)+`"}`)
			rep := c.wait()
			if rep.status != 200 || len(rep.body) != size || rep.header.Get("Content-Length") != fmt.Sprint(size) {
				t.Errorf("status %d, Content-Length %q of %d bytes, want %d", rep.status, rep.header.Get("Content-Length"), len(rep.body), size)
			}
		}
		r.atRest()
	})
}

func TestTheAnswerIsAnEventStreamWhenANotificationComesFirst(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		p := r.up()
		c := r.beginModern("7", "vendor/x", metaWith(`"progressToken":"t"`))
		q := p.expect("vendor/x")
		p.progress(q.token(), 1)
		p.answer(q.ID, `{}`)
		rep := c.wait()
		h := rep.header
		if h.Get("Content-Type") != "text/event-stream" || h.Get("Cache-Control") != "no-store" || h.Get("X-Accel-Buffering") != "no" {
			t.Errorf("headers: %v", h)
		}
		want := "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":\"t\",\"progress\":1,\"x\":1.0}}\n\n" +
			"event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n"
		if rep.status != 200 || rep.body != want {
			t.Errorf("status %d, body:\n%s\nwant:\n%s", rep.status, rep.body, want)
		}
		r.atRest()
	})
}

func TestAQuietRequestBecomesAStreamAfter15SecondsAndIsKeptAlive(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		p := r.up()
		begin := time.Now()
		s := r.open(modernHeaders("vendor/x", ""), modernBody("7", "vendor/x", ""))
		for i := 1; i <= 5; i++ {
			s.comment()
			if d := time.Since(begin); d != time.Duration(i)*15*time.Second {
				t.Errorf("comment %d came after %v", i, d)
			}
		}
		q := p.expect("vendor/x")
		// An error can no longer have a status of its own.
		p.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"m"}}`, q.ID)
		s.want(`{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"m"}}`)
		if rest := s.next(); rest != "" {
			t.Errorf("the stream goes on: %s", rest)
		}
		if s.resp.StatusCode != 200 {
			t.Errorf("status %d", s.resp.StatusCode)
		}
		r.atRest()
	})
}

func TestTheKeepAliveCountsFromTheLastEvent(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		p := r.up()
		c := make(chan time.Time, 1)
		go func() {
			q := p.expect("vendor/x")
			<-time.After(10 * time.Second)
			p.progress(q.token(), 1)
			c <- time.Now()
		}()
		s := r.open(modernHeaders("vendor/x", ""), modernBody("7", "vendor/x", metaWith(`"progressToken":1`)))
		s.next()
		at := <-c
		s.comment()
		if d := time.Since(at); d != 15*time.Second {
			t.Errorf("the comment came %v after the event", d)
		}
		s.leave()
	})
}

func TestAClientThatTakesOnlyJSONGetsNeitherStreamNorNotifications(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		p := r.up()
		c := r.begin(modernHeaders("vendor/x", "").with("Accept", "application/json"), modernBody("7", "vendor/x",
			metaWith(`"progressToken":1,"io.modelcontextprotocol/logLevel":"debug"`)))
		q := p.expect("vendor/x")
		p.progress(q.token(), 1)
		p.logMessage("error", "hm")
		<-time.After(time.Minute)
		p.answer(q.ID, `{}`)
		c.wait().wantJSON(t, `{"jsonrpc":"2.0","id":7,"result":{}}`)
		r.begin(modernHeaders("subscriptions/listen", "").with("Accept", "application/json"),
			modernBody("7", "subscriptions/listen", `"notifications":{}`)).wait().wantError(t, 406, CodeNotAcceptable, "7")
		p.quiet()
		r.atRest()
	})
}

func TestEachClientGetsItsOwnProgressUnderItsOwnToken(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		p := r.up()
		// The same token, and the same id, from clients that know nothing of
		// each other; and every type and spelling that a token may have.
		tokens := []string{`1`, `1`, `"1"`, `1.0`, `"a\u0062"`, `"2"`, `2`, `3`}
		var calls []*call
		var qs []request
		for _, token := range tokens {
			calls = append(calls, r.beginModern("1", "vendor/x", metaWith(`"progressToken":`+token)))
			qs = append(qs, p.expect("vendor/x"))
		}
		plain := r.beginModern("1", "vendor/x", "")
		plainQ := p.expect("vendor/x")
		seen := map[string]bool{}
		for i, q := range qs {
			if seen[q.token()] {
				t.Errorf("two requests have the token %s", q.token())
			}
			seen[q.token()] = true
			p.progress(q.token(), 100+i)
		}
		for _, token := range []string{`999`, `"x"`, `null`, `{}`, `-1`, string(plainQ.ID)} {
			p.progress(token, 1)
		}
		for _, q := range append(qs, plainQ) {
			p.answer(q.ID, `{}`)
			p.progress(q.token(), 5) // it has ended
		}
		for i, c := range calls {
			got := c.wait().events()
			want := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"x":1.0}}`, tokens[i], 100+i)
			if len(got) != 2 || got[0] != want {
				t.Errorf("client %d got %q, want %s and the answer", i, got, want)
			}
		}
		plain.wait().wantJSON(t, `{"jsonrpc":"2.0","id":1,"result":{}}`)
		r.atRest()
	})
}

func TestALogMessageGoesToTheOnlyRequestThatCanHaveCausedIt(t *testing.T) {
	asking := func(level string) string {
		return metaWith(`"io.modelcontextprotocol/logLevel":"` + level + `"`)
	}
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		p := r.up()
		a := r.beginModern(`"a"`, "vendor/x", asking("warning"))
		qa := p.expect("vendor/x")
		silent := r.beginModern(`"s"`, "vendor/x", "")
		qs := p.expect("vendor/x")
		p.logMessage("error", "one asks")
		p.logMessage("info", "below the level")
		p.logMessage("loud", "of no level")
		synctest.Wait()

		b := r.beginModern(`"b"`, "vendor/x", asking("debug"))
		qb := p.expect("vendor/x")
		p.logMessage("error", "two ask")
		synctest.Wait()
		p.answer(qb.ID, `{}`)
		b.wait().wantJSON(t, `{"jsonrpc":"2.0","id":"b","result":{}}`)

		p.logMessage("warning", "one asks again")
		p.answer(qa.ID, `{}`)
		p.answer(qs.ID, `{}`)
		got := a.wait().events()
		if len(got) != 3 || !strings.Contains(got[0], "one asks") || !strings.Contains(got[1], "one asks again") {
			t.Errorf("the asker got %q", got)
		}
		silent.wait().wantJSON(t, `{"jsonrpc":"2.0","id":"s","result":{}}`)

		p.logMessage("error", "nobody asks")
		p.logMessage("error", strings.Repeat("long ", 10_000))
		synctest.Wait()
		log := r.logged()
		for _, text := range []string{"below the level", "of no level", "two ask", "nobody asks"} {
			if !strings.Contains(log, text) {
				t.Errorf("the server's log lacks %q: %.200q", text, log)
			}
		}
		if strings.Contains(log, "one asks") || len(log) > 2*longestLogLine {
			t.Errorf("the server's log holds %d bytes", len(log))
		}
		r.atRest()
	})
}

func TestACancelledRequestIsTakenForAnAuthorOfLogsForAWhile(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		p := r.up()
		meta := metaWith(`"io.modelcontextprotocol/logLevel":"debug"`)
		gone := r.beginModern("1", "vendor/x", meta)
		p.expect("vendor/x")
		other := r.beginModern("2", "vendor/x", meta)
		q := p.expect("vendor/x")
		gone.leave()
		p.expect("notifications/cancelled")
		p.logMessage("error", "of the one that left")
		<-time.After(lingerAfterCancel + time.Second)
		p.logMessage("error", "of the one that stays")
		p.answer(q.ID, `{}`)
		if got := other.wait().events(); len(got) != 2 || !strings.Contains(got[0], "of the one that stays") {
			t.Errorf("got %q", got)
		}
		r.atRest()
	})
}

func TestAClientThatDisconnectsCancelsItsRequest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		p := r.up()
		c := r.beginModern("7", "tools/call", `"name":"t"`)
		q := p.expect("tools/call")
		c.leave()
		cancelled := p.expect("notifications/cancelled")
		if string(cancelled.Params.RequestID) != string(q.ID) || cancelled.Params.Reason == "" {
			t.Errorf("cancelled %s because of %q, want id %s", cancelled.Params.RequestID, cancelled.Params.Reason, q.ID)
		}
		r.atRest()
		// Whatever still comes for it is dropped.
		p.progress(string(q.ID), 1)
		p.answer(q.ID, `{"secret":"of the client that left"}`)
		other := r.beginModern("7", "vendor/x", metaWith(`"progressToken":7`))
		q2 := p.expect("vendor/x")
		p.answer(q.ID, `{"secret":"of the client that left"}`)
		p.answer([]byte("999"), `{"secret":"of nobody"}`)
		p.answer(q2.ID, `{"v":1}`)
		p.answer(q2.ID, `{"v":2}`)
		other.wait().wantJSON(t, `{"jsonrpc":"2.0","id":7,"result":{"v":1}}`)
		p.quiet()
		r.atRest()
	})
}

func TestARequestThatIsCancelledBeforeTheServerReadItIsNeverSeen(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		p := r.up()
		resume := p.stall()
		first := r.beginModern("1", "vendor/first", "")
		p.expect("vendor/first") // and now it reads no more
		stuck := r.beginModern("2", "vendor/stuck", "")
		synctest.Wait() // its line is in the pipe's write
		waiting := r.beginModern("3", "vendor/waiting", "")
		synctest.Wait()
		waiting.leave()
		stuck.leave()
		synctest.Wait()
		resume()
		q := p.expect("vendor/stuck") // it was being written
		if c := p.expect("notifications/cancelled"); string(c.Params.RequestID) != string(q.ID) {
			t.Errorf("cancelled %s, want %s", c.Params.RequestID, q.ID)
		}
		p.quiet()
		first.leave()
		p.expect("notifications/cancelled")
		r.atRest()
	})
}

func TestAServerThatStopsReadingCostsOthersAClearErrorAndBoundedMemory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const limit = 100 << 10
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil), limits: Limits{MaxQueueBytes: limit}, quiet: true})
		p := r.up()
		resume := p.stall()
		first := r.beginModern("1", "vendor/first", "")
		p.expect("vendor/first")
		var calls []*call
		for i := range 100 {
			calls = append(calls, r.beginModern(fmt.Sprint(i), "vendor/x", `"pad":"`+strings.Repeat("x", 1000)+`"`))
			synctest.Wait()
		}
		w := r.pool.conn.out
		w.mu.Lock()
		bytes, lines := w.bytes, len(w.queue)
		w.mu.Unlock()
		if bytes > limit || lines > 40 {
			t.Errorf("%d bytes in %d lines are queued", bytes, lines)
		}
		refused := 0
		for _, c := range calls {
			select {
			case <-c.done:
				refused++
				c.wait().wantError(t, 503, CodeUnavailable, c.got.body[strings.Index(c.got.body, `"id":`)+5:strings.Index(c.got.body, `,"error`)], "does not read its input")
			default:
			}
		}
		if refused < 60 {
			t.Errorf("%d were refused", refused)
		}
		// Who leaves makes room, and leaves nothing behind.
		for _, c := range calls {
			c.leave()
		}
		synctest.Wait()
		w.mu.Lock()
		if n := len(w.queue); n > 70 {
			t.Errorf("%d lines are still queued", n)
		}
		w.mu.Unlock()
		again := r.beginModern("8", "vendor/again", "")
		synctest.Wait()
		resume()
		for {
			if q, _ := p.next(); q.Method == "vendor/again" {
				p.answer(q.ID, `{}`)
				break
			}
		}
		again.wait().wantJSON(t, `{"jsonrpc":"2.0","id":8,"result":{}}`)
		first.leave()
		r.atRest()
	})
}

func TestARequestWithoutAnswerOrProgressTimesOut(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil), limits: Limits{RequestTimeout: 10 * time.Second, MaxRequestTime: 24 * time.Second}})
		p := r.up()
		begin := time.Now()
		c := r.beginModern("7", "vendor/x", "")
		q := p.expect("vendor/x")
		c.wait().wantError(t, 504, CodeTimeout, "7", "request_timeout", "10s")
		if d := time.Since(begin); d != 10*time.Second {
			t.Errorf("it took %v", d)
		}
		if got := p.expect("notifications/cancelled"); string(got.Params.RequestID) != string(q.ID) {
			t.Errorf("cancelled %s, want %s", got.Params.RequestID, q.ID)
		}

		// Progress keeps it alive, but not for ever.
		begin = time.Now()
		c = r.beginModern("8", "vendor/x", metaWith(`"progressToken":1`))
		q = p.expect("vendor/x")
		for i := range 4 {
			<-time.After(6 * time.Second)
			if i < 3 {
				p.progress(q.token(), i)
			}
		}
		rep := c.wait()
		rep.wantError(t, 200, CodeTimeout, "8", "max_request_time", "24s")
		if d := time.Since(begin); d != 24*time.Second || len(rep.events()) != 4 {
			t.Errorf("it took %v, with %q", d, rep.events())
		}
		p.expect("notifications/cancelled")
		p.quiet()
		r.atRest()
	})
}

func TestAFloodOfProgressDoesNotOutliveMaxRequestTime(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil), limits: Limits{MaxRequestTime: 20 * time.Second}})
		p := r.up()
		c := r.beginModern("8", "vendor/x", metaWith(`"progressToken":1`))
		q := p.expect("vendor/x")
		begin := time.Now()
		for i := range 250 {
			p.progress(q.token(), i)
			<-time.After(100 * time.Millisecond)
		}
		c.wait().wantError(t, 200, CodeTimeout, "8", "max_request_time")
		if n := len(c.got.events()); n < 190 || n > 203 {
			t.Errorf("%d events in %v", n, time.Since(begin))
		}
		p.expect("notifications/cancelled")
		r.atRest()
	})
}

// uncertain checks a tool result that says that nobody knows what happened.
func (rep reply) uncertain(t *testing.T, id string, words ...string) {
	t.Helper()
	if rep.status != 200 {
		t.Fatalf("status %d: %s", rep.status, rep.body)
	}
	body := rep.body
	if all := rep.events(); len(all) > 0 {
		body = all[len(all)-1]
	}
	if !strings.HasPrefix(body, `{"jsonrpc":"2.0","id":`+id+`,"result":{"resultType":"complete","_meta":{"mcpd/outcome":"unknown"},"content":[{"type":"text","text":"`) ||
		!strings.HasSuffix(body, `"}],"isError":true}}`) {
		t.Errorf("no tool result with isError: %s", body)
	}
	for _, word := range append(words, "uncertain", "may or may not", "not repeated", "Check") {
		if !strings.Contains(body, word) {
			t.Errorf("it does not say %q: %s", word, body)
		}
	}
}

func TestAToolCallWhoseOutcomeIsUnknownGetsAResultThatSaysSoAndIsNotRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		limits Limits
		end    func(p *process, q request)
		says   string
		next   string // what the server gets then
	}{
		"the process dies":      {end: func(p *process, _ request) { p.die() }, says: "process ended"},
		"its output ends":       {end: func(p *process, _ request) { _ = p.stdout.Close() }, says: "closed its output"},
		"it does not answer":    {limits: Limits{RequestTimeout: time.Second}, end: func(*process, request) {}, says: "request_timeout", next: "notifications/cancelled"},
		"its answer is no JSON": {end: func(p *process, q request) { p.say(`{"jsonrpc":"2.0","id":%s,"result":{"v":NaN}}`, q.ID) }, says: "not valid JSON-RPC"},
		"its answer is too large": {limits: Limits{MaxMessageBytes: 1000}, says: "max_message_bytes", end: func(p *process, q request) {
			p.answer(q.ID, `"`+strings.Repeat("x", 5000)+`"`)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t, rigOptions{react: modernServer(`{"tools":{}}`, listTools(`[]`, nil)), limits: c.limits})
				p := r.up()
				call := r.beginModern(`"x"`, "tools/call", `"name":"pay \"now\""`)
				q := p.expect("tools/call")
				c.end(p, q)
				call.wait().uncertain(t, `"x"`, `pay`, `\"s\"`, c.says)
				if c.next != "" {
					p.expect(c.next)
				}
				r.atRest()
				r.up().quiet()
				if n := r.upstream.Stats().Failures; n != 1 {
					t.Errorf("%d failures are counted", n)
				}
			})
		})
	}
}

func TestAReadThatWasLostIsSentAgainOnceAndAnythingElseNever(t *testing.T) {
	for _, method := range []string{
		"tools/list", "prompts/list", "resources/list", "resources/templates/list",
		"resources/read", "prompts/get", "completion/complete", "server/discover",
	} {
		t.Run(method, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				react := reaction(modernServer(`{}`, nil))
				if method == "server/discover" {
					react = func(p *process, q request, line string) bool {
						return string(q.ID) == "1" && modernServer(`{}`, nil)(p, q, line)
					}
				}
				r := newRig(t, rigOptions{react: react})
				p := r.up()
				h := modernHeaders(method, "n")
				if method == "resources/read" {
					h = modernHeaders(method, "u")
				}
				c := r.begin(h, modernBody("7", method, `"name":"n","uri":"u"`))
				p.expect(method)
				p.die()
				synctest.Wait()
				second := r.pool.process()
				q := second.expect(method)
				second.answer(q.ID, `{"v":2}`)
				c.wait().wantJSON(t, `{"jsonrpc":"2.0","id":7,"result":{"v":2}}`)

				c = r.begin(h, modernBody("8", method, `"name":"n","uri":"u"`))
				second.expect(method)
				second.die()
				synctest.Wait()
				third := r.pool.process()
				third.expect(method)
				third.die()
				c.wait().wantError(t, 502, CodeServerFault, "8", "process ended")
				synctest.Wait()
				if r.pool.starts != 3 {
					t.Errorf("%d processes were started", r.pool.starts)
				}
				if n := r.upstream.Stats().Repeats; n != 2 {
					t.Errorf("%d retries are counted", n)
				}
				r.atRest()
			})
		})
	}
	t.Run("a vendor's method", func(t *testing.T) {
		inBubble(t, func(t *testing.T) {
			r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
			p := r.up()
			c := r.beginModern("7", "vendor/x", "")
			p.expect("vendor/x")
			p.die()
			c.wait().wantError(t, 502, CodeServerFault, "7", "process ended")
			r.up().quiet()
			r.atRest()
		})
	})
}

func TestTheSecondAttemptOfAReadSharesTheDeadlineOfTheFirst(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil), limits: Limits{MaxRequestTime: 10 * time.Second}})
		p := r.up()
		begin := time.Now()
		c := r.beginModern("7", "tools/list", "")
		p.expect("tools/list")
		<-time.After(8 * time.Second)
		p.die()
		c.wait().wantError(t, 504, CodeTimeout, "7", "max_request_time")
		if d := time.Since(begin); d != 10*time.Second {
			t.Errorf("it took %v", d)
		}
		r.atRest()
	})
}

func TestARequestThatTheProcessNeverSawGoesToTheNextOne(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{"tools":{}}`, listTools(`[]`, nil))})
		p := r.up()
		warm := r.beginModern("0", "tools/call", `"name":"warm"`) // the tool list is known now
		p.answer(p.expect("tools/call").ID, `{}`)
		warm.wait()
		resume := p.stall()
		first := r.beginModern("1", "vendor/first", "")
		p.expect("vendor/first") // and now it reads no more
		stuck := r.beginModern("2", "tools/call", `"name":"stuck"`)
		synctest.Wait()
		waiting := r.beginModern("3", "tools/call", `"name":"waiting"`)
		synctest.Wait()
		p.die()
		resume()
		first.wait().wantError(t, 502, CodeServerFault, "1")
		stuck.wait().uncertain(t, "2")
		<-time.After(time.Second)
		next := r.pool.process()
		q := next.expect("tools/call")
		if q.Params.Name != "waiting" {
			t.Errorf("the next process got %+v", q)
		}
		next.answer(q.ID, `{"v":1}`)
		waiting.wait().wantJSON(t, `{"jsonrpc":"2.0","id":3,"result":{"v":1}}`)
		next.quiet()
		r.atRest()
	})
}

func TestADrainingProcessFinishesItsRequestsAndTheNextOneTakesTheNewOnes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		p := r.up()
		before := r.beginModern("1", "vendor/x", "")
		q := p.expect("vendor/x")
		old, err := r.pool.replace(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		drained := make(chan error, 1)
		go func() { drained <- old.Drain(t.Context()) }()
		after := r.beginModern("2", "vendor/y", "")
		next := r.pool.process()
		next.answer(next.expect("vendor/y").ID, `{"from":"new"}`)
		after.wait().wantJSON(t, `{"jsonrpc":"2.0","id":2,"result":{"from":"new"}}`)
		synctest.Wait()
		select {
		case <-drained:
			t.Error("it is drained with a request in flight")
		default:
		}
		p.answer(q.ID, `{"from":"old"}`)
		before.wait().wantJSON(t, `{"jsonrpc":"2.0","id":1,"result":{"from":"old"}}`)
		if err := <-drained; err != nil {
			t.Error(err)
		}
		old.Close(nil)
		old.Close(errors.New("twice"))
		if err := old.Err(); !errors.Is(err, errClosed) {
			t.Errorf("it ended with %v", err)
		}
		if err := old.Drain(t.Context()); err != nil {
			t.Errorf("a Conn that is over is drained: %v", err)
		}
		r.atRest()
	})
}

func TestAServerThatDiesForEverIsAnErrorAndNotALoop(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		r.up()
		r.pool.conn.Close(nil)
		dead := r.pool.conn
		r.upstream.Bind(childFunc(func() (*Conn, error) { return dead, nil }))
		r.modern("7", "vendor/x", "").wantError(t, 503, CodeUnavailable, "7")
		r.atRest()
	})
}

func TestASlowReaderOfACallLosesItsStreamAndNobodyElseWaits(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil), limits: Limits{StreamBufferBytes: 200 << 10}})
		p := r.up()
		s := make(chan *stream, 1)
		go func() {
			s <- r.open(modernHeaders("vendor/slow", ""), modernBody("1", "vendor/slow", metaWith(`"progressToken":1`)))
		}()
		slow := p.expect("vendor/slow")
		p.progress(slow.token(), 0)
		slowStream := <-s // it reads nothing of it
		for i := range 1000 {
			p.progress(slow.token(), i)
		}
		begin := time.Now()
		other := r.beginModern("2", "vendor/x", "")
		cancelled := false
		q, _ := p.next()
		if q.Method == "notifications/cancelled" { // it may come at once, or when the write times out
			cancelled = true
			q, _ = p.next()
		}
		p.answer(q.ID, `{}`)
		other.wait().wantJSON(t, `{"jsonrpc":"2.0","id":2,"result":{}}`)
		if d := time.Since(begin); d != 0 {
			t.Errorf("another client waited %v", d)
		}
		if !cancelled {
			p.expect("notifications/cancelled")
		}
		last := ""
		for event := slowStream.next(); event != ""; event = slowStream.next() {
			last = event
		}
		if strings.Contains(last, `"id"`) && !strings.Contains(last, "too slowly") {
			t.Errorf("the slow one was told %s", last)
		}
		p.quiet()
		r.atRest()
	})
}

// childFunc is a Child that gives what a function gives.
type childFunc func() (*Conn, error)

func (f childFunc) Acquire(context.Context) (*Conn, error) { return f() }

func contextWithTimeout(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), d)
}
