package bridge

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatAServerMayWriteBesidesMessages(t *testing.T) {
	for name, c := range map[string]struct {
		before string // raw bytes in front of the answer
		answer string // the answer's line, %s is the id
		junk   bool   // before is for the server's log
	}{
		"nothing":                          {answer: "%s\n"},
		"blank lines":                      {before: "\n\r\n  \t\n", answer: "%s\n"},
		"a carriage return":                {answer: "%s\r\n"},
		"a byte order mark":                {answer: "\xEF\xBB\xBF%s\n"},
		"mark and carriage return":         {answer: "\xEF\xBB\xBF%s\r\n"},
		"white space around":               {answer: "  %s \t\n"},
		"a banner":                         {before: "Server running on stdio\n", answer: "%s\n", junk: true},
		"colours":                          {before: "\x1b[32mready\x1b[0m\n", answer: "%s\n", junk: true},
		"a log line in JSON":               {before: `{"level":30,"id":2,"msg":"up"}` + "\n", answer: "%s\n", junk: true},
		"a number":                         {before: "42\n", answer: "%s\n", junk: true},
		"a batch":                          {before: `[{"jsonrpc":"2.0","id":2,"result":{"stolen":1}}]` + "\n", answer: "%s\n", junk: true},
		"bytes that are no text":           {before: "\xff\xfe\x00\x01\n", answer: "%s\n", junk: true},
		"a long line of dots":              {before: strings.Repeat(".", 300_000) + "\n", answer: "%s\n", junk: true},
		"an answer to nobody":              {before: `{"jsonrpc":"2.0","id":"x","result":{}}` + "\n", answer: "%s\n"},
		"an error without an id":           {before: `{"jsonrpc":"2.0","error":{"code":-32700,"message":"parse"}}` + "\n", answer: "%s\n"},
		"a request from a modern server":   {before: `{"jsonrpc":"2.0","id":2,"method":"sampling/createMessage","params":{}}` + "\n", answer: "%s\n"},
		"a notification of no one":         {before: `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` + "\n", answer: "%s\n"},
		"a subscription's, of no one":      {before: `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":2}}}` + "\n", answer: "%s\n"},
		"a cancellation of the request":    {before: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}` + "\n", answer: "%s\n"},
		"half a message that is no answer": {before: `{"jsonrpc":"2.0","method":"x","params":{"id":2` + "\n", answer: "%s\n", junk: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
				p := r.up()
				call := r.beginModern(`"a"`, "vendor/x", "")
				q := p.expect("vendor/x")
				_, _ = p.stdout.Write([]byte(c.before))
				_, _ = fmt.Fprintf(p.stdout, c.answer, `{"jsonrpc":"2.0","id":`+string(q.ID)+`,"result":{"v":1.0}}`)
				rep := call.wait()
				if rep.status != 200 || rep.body != `{"jsonrpc":"2.0","id":"a","result":{"v":1.0}}` {
					t.Errorf("status %d: %q", rep.status, rep.body)
				}
				if c.junk != strings.Contains(r.logged(), "junk: ") {
					t.Errorf("the server's log: %.300q", r.logged())
				}
				p.quiet()
				r.atRest()
			})
		})
	}
}

func TestALineThatIsWrittenInPiecesIsOneMessage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		p := r.up()
		call := r.beginModern("1", "vendor/x", "")
		q := p.expect("vendor/x")
		for _, b := range []byte(`{"jsonrpc":"2.0","id":` + string(q.ID) + `,"result":{"é":1}}` + "\n") {
			_, _ = p.stdout.Write([]byte{b})
		}
		call.wait().wantJSON(t, `{"jsonrpc":"2.0","id":1,"result":{"é":1}}`)
	})
}

func TestTheLastLineNeedsNoNewline(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		p := r.up()
		call := r.beginModern("1", "vendor/x", "")
		q := p.expect("vendor/x")
		_, _ = fmt.Fprintf(p.stdout, `{"jsonrpc":"2.0","id":%s,"result":{}}`, q.ID)
		p.die()
		call.wait().wantJSON(t, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
}

func TestAnIDMayComeBackInAnotherSpelling(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		p := r.up()
		for _, spelling := range []string{`%s`, `%s.0`, `"%s"`, `%se0`} {
			call := r.beginModern("1", "vendor/x", "")
			q := p.expect("vendor/x")
			p.say(`{"jsonrpc":"2.0","id":`+spelling+`,"result":{}}`, q.ID)
			call.wait().wantJSON(t, `{"jsonrpc":"2.0","id":1,"result":{}}`)
		}
		r.atRest()
	})
}

func TestAnAnswerThatCannotBeUsedFailsItsRequestAtOnceAndNoOther(t *testing.T) {
	const limit = 20_000
	long := strings.Repeat("x", 2*limit)
	for name, c := range map[string]struct {
		line string
		says string
	}{
		"NaN":                                {`{"jsonrpc":"2.0","id":%s,"result":{"v":NaN}}`, "not valid JSON-RPC"},
		"half a surrogate pair":              {`{"jsonrpc":"2.0","id":%s,"result":{"v":"\ud83d"}}`, "not valid JSON-RPC"},
		"invalid UTF-8":                      {"{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"v\":\"\xff\"}}", "not valid JSON-RPC"},
		"the id last, and no JSON":           {`{"jsonrpc":"2.0","result":{"v":Infinity},"id":%s}`, "not valid JSON-RPC"},
		"the id and version last":            {`{"result":{"v":undefined}, "id" : %s , "jsonrpc":"2.0"}`, "not valid JSON-RPC"},
		"result and error":                   {`{"jsonrpc":"2.0","id":%s,"result":{},"error":{"code":1,"message":"m"}}`, "not valid JSON-RPC"},
		"an error without a code":            {`{"jsonrpc":"2.0","id":%s,"error":{"message":"m"}}`, "not valid JSON-RPC"},
		"an error that is a string":          {`{"jsonrpc":"2.0","id":%s,"error":"failed"}`, "not valid JSON-RPC"},
		"no version":                         {`{"id":%s,"result":{}}`, "not valid JSON-RPC"},
		"a member of the result twice":       {`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"a","resultType":"b"}}`, "not valid JSON-RPC"},
		"too long, the id first":             {`{"jsonrpc":"2.0","id":%s,"result":{"id":1,"v":"` + long + `"}}`, "max_message_bytes"},
		"too long, the id in front":          {`{ "id" : %s, "jsonrpc" : "2.0", "error" : {"code":1,"message":"` + long + `"}}`, "max_message_bytes"},
		"too long, the id last":              {`{"jsonrpc":"2.0","result":{"v":"` + long + `","id":1},"id":%s}`, "max_message_bytes"},
		"too long, id and version last":      {`{"result":{"v":"` + long + `","id":1},"id":%s,"jsonrpc":"2.0"}`, "max_message_bytes"},
		"too long, with a byte order mark":   {"\xEF\xBB\xBF" + `{"jsonrpc":"2.0","id":%s,"result":{"v":"` + long + `"}}` + "\r", "max_message_bytes"},
		"too long, and ids in what it holds": {`{"jsonrpc":"2.0","id":%s,"result":{"v":"` + long + `","rows":[{"id":1},{"id":3}]}}`, "max_message_bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t, rigOptions{react: modernServer(`{}`, nil), limits: Limits{MaxMessageBytes: limit}})
				p := r.up()
				call := r.beginModern("10", "vendor/x", "")
				q := p.expect("vendor/x")
				other := r.beginModern("11", "vendor/y", "")
				q2 := p.expect("vendor/y")
				begin := time.Now()
				p.say(c.line, q.ID)
				call.wait().wantError(t, 502, CodeServerFault, "10", c.says)
				if d := time.Since(begin); d != 0 {
					t.Errorf("it took %v", d)
				}
				p.answer(q2.ID, `{"v":1}`)
				other.wait().wantJSON(t, `{"jsonrpc":"2.0","id":11,"result":{"v":1}}`)
				p.quiet()
				r.atRest()
			})
		})
	}
}

func TestALineOverTheLimitThatIsNoAnswerFailsNobody(t *testing.T) {
	const limit = 10_000
	long := strings.Repeat("x", 2*limit)
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil), limits: Limits{MaxMessageBytes: limit}})
		p := r.up()
		call := r.beginModern("1", "vendor/x", "")
		q := p.expect("vendor/x")
		p.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"%s","id":%s}}`, long, q.ID)
		p.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"%s","x":{"result":1,"id":%s}}}`, long, q.ID)
		p.say("%s", long)
		p.answer(q.ID, `{"pad":"`+long[:limit-100]+`"}`)
		if rep := call.wait(); rep.status != 200 || len(rep.body) < limit-100 {
			t.Errorf("status %d: %.200s", rep.status, rep.body)
		}
		if n := strings.Count(r.logged(), "max_message_bytes"); n != 3 {
			t.Errorf("%d of 3 lines are in the server's log", n)
		}
		r.atRest()
	})
}

func TestAnAnswerOverTheLimitWhoseIDIsHiddenFailsTheOnlyRequestInFlight(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil), limits: Limits{MaxMessageBytes: 10_000}})
		p := r.up()
		call := r.beginModern("1", "vendor/x", "")
		q := p.expect("vendor/x")
		hidden := `{"jsonrpc":"2.0","result":{"v":"` + strings.Repeat("x", 20_000) + `"},"id":%s,"x":"` + strings.Repeat("y", 20_000) + `"}`
		other := r.beginModern("2", "vendor/y", "")
		q2 := p.expect("vendor/y")
		p.say(hidden, q.ID) // it could be the answer to either
		p.answer(q2.ID, `{}`)
		other.wait().wantJSON(t, `{"jsonrpc":"2.0","id":2,"result":{}}`)
		p.say(hidden, q.ID)
		call.wait().wantError(t, 502, CodeServerFault, "1", "max_message_bytes")
		r.atRest()
	})
}

func TestALineOverTheLimitIsNotKeptInMemory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil), limits: Limits{MaxMessageBytes: 100_000}})
		p := r.up()
		call := r.beginModern("1", "vendor/x", "")
		q := p.expect("vendor/x")
		chunk := []byte(strings.Repeat("x", 1<<16))
		allocated := testing.AllocsPerRun(1, func() {
			_, _ = p.stdout.Write([]byte(`{"jsonrpc":"2.0","id":1,"result":"`))
			for range 512 { // 32 MiB
				_, _ = p.stdout.Write(chunk)
			}
			_, _ = p.stdout.Write([]byte("\"}\n"))
		})
		if allocated > 200 {
			t.Errorf("%v allocations", allocated)
		}
		p.answer(q.ID, `{}`)
		call.wait().wantJSON(t, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
}

func TestAProcessThatEndsFailsWhatItOwedAndIsReplacedByTheNextRequest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{}`, nil)})
		p := r.up()
		conn := r.pool.conn
		call := r.beginModern("1", "vendor/x", "")
		p.expect("vendor/x")
		p.die()
		<-conn.Done()
		if err := conn.Err(); err == nil {
			t.Error("a Conn that is over does not say why")
		}
		call.wait().wantError(t, 502, CodeServerFault, "1")
		next := r.beginModern("2", "vendor/x", "")
		synctest.Wait()
		p2 := r.pool.process()
		p2.answer(p2.expect("vendor/x").ID, `{}`)
		next.wait().wantJSON(t, `{"jsonrpc":"2.0","id":2,"result":{}}`)
		r.atRest()
	})
}

func TestCloseFailsWhatIsInFlightAndEndsEveryGoroutine(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: modernServer(`{"tools":{"listChanged":true}}`, nil)})
		p := r.up()
		p.expect("subscriptions/listen") // mcpd's own
		call := r.beginModern("1", "vendor/x", "")
		p.expect("vendor/x")
		stop := errors.New("the process was stopped")
		r.pool.conn.Close(stop)
		call.wait().wantError(t, 502, CodeServerFault, "1", stop.Error())
		if err := r.pool.conn.Err(); !errors.Is(err, stop) {
			t.Errorf("it ended with %v", err)
		}
		r.atRest()
	})
}

func TestAProbeTakesAnyAnswerAsASignOfLife(t *testing.T) {
	for name, c := range map[string]struct {
		react  reaction
		method string
		answer string
		dead   bool
	}{
		"a modern server":    {modernServer(`{}`, nil), "", "", false},
		"a legacy one":       {legacyServer("2025-06-18", `{}`, nil), "ping", `{"jsonrpc":"2.0","id":%s,"result":{}}`, false},
		"one without a ping": {legacyServer("2025-06-18", `{}`, nil), "ping", `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"m"}}`, false},
		"a hung one":         {legacyServer("2025-06-18", `{}`, nil), "ping", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				r := newRig(t, rigOptions{react: c.react})
				p := r.up()
				result := make(chan error, 1)
				ctx, cancel := contextWithTimeout(t, 5*time.Second)
				defer cancel()
				go func() { result <- r.pool.conn.Probe(ctx) }()
				if c.method != "" {
					q := p.expect(c.method)
					if c.answer != "" {
						p.say(c.answer, q.ID)
					}
				}
				if err := <-result; (err != nil) != c.dead {
					t.Errorf("the probe says %v", err)
				}
				r.atRest()
			})
		})
	}
}

func TestALegacyServersOwnRequestsAreAnsweredAndReachNoClient(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t, rigOptions{react: legacyServer("2025-06-18", `{}`, nil)})
		p := r.up()
		call := r.beginModern("1", "vendor/x", "")
		q := p.expect("vendor/x")
		p.say(`{"jsonrpc":"2.0","id":"p-1","method":"ping"}`)
		if _, line := p.next(); line != `{"jsonrpc":"2.0","id":"p-1","result":{}}` {
			t.Errorf("ping was answered with %s", line)
		}
		for _, method := range []string{"elicitation/create", "sampling/createMessage", "roots/list", "vendor/ask"} {
			p.say(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{"message":"your password?"}}`, q.ID, method)
			got, line := p.next()
			if string(got.ID) != string(q.ID) || !strings.Contains(string(got.Error), "-32601") {
				t.Errorf("%s was answered with %s", method, line)
			}
		}
		p.answer(q.ID, `{}`)
		if rep := call.wait(); strings.Contains(rep.body, "password") || rep.header.Get("Content-Type") != "application/json" {
			t.Errorf("the client got %s", rep.body)
		}
		p.quiet()
		r.atRest()
	})
}
