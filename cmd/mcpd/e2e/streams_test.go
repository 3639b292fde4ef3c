package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// background sends a request in a goroutine and returns where its final message will be.
func (d *daemon) background(name, body string) <-chan message {
	d.t.Helper()
	r := d.post(name, body)
	answer := make(chan message, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		m, err := d.tryCall(r)
		if err != nil {
			d.t.Errorf("%.200s: %v", body, err)
		}
		answer <- m
	}()
	d.t.Cleanup(func() { <-done })
	return answer
}

func await(t *testing.T, answer <-chan message) message {
	t.Helper()
	select {
	case m := <-answer:
		return m
	case <-time.After(patience):
		t.Fatal("no answer comes")
		return message{}
	}
}

func TestProgressComesOnlyOnTheStreamOfItsCallUnderTheCallersOwnToken(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	progress := func(token string, n, total int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"total":%d}}`, token, n, total)
	}
	// Three callers at once, two of them with the same token.
	a := d.open(d.post("s", toolCall("1", "progress", `{"count":1,"name":"a"}`, `"progressToken":"same"`)))
	b := d.open(d.post("s", toolCall("1", "progress", `{"count":3,"name":"b"}`, `"progressToken":"same"`)))
	c := d.open(d.post("s", toolCall("1", "progress", `{"count":2,"name":"c"}`, `"progressToken":7`)))
	d.tool("s", "release", `{"name":"a"}`)
	d.tool("s", "release", `{"name":"b"}`)
	d.tool("s", "release", `{"name":"c"}`)
	for _, stream := range []struct {
		*stream
		token string
		count int
		name  string
	}{{a, `"same"`, 1, "a"}, {b, `"same"`, 3, "b"}, {c, "7", 2, "c"}} {
		for i := range stream.count {
			stream.expect(progress(stream.token, i+1, stream.count))
		}
		if text, _ := toolText(t, stream.next()); text != "released "+stream.name {
			t.Errorf("stream %s ends with %q", stream.name, text)
		}
		stream.end()
	}
}

func TestProgressUnderATokenThatNobodyGaveReachesNobody(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	body := toolCall("1", "progress", `{"count":3,"token":"stolen"}`, `"progressToken":"mine"`)
	if got := d.do(d.post("s", body)); strings.Contains(got.body, "notifications/progress") {
		t.Errorf("the client got %s", got.body)
	}
}

func TestALogLineIsForwardedWhereExactlyOneRequestCanHaveAskedForIt(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	const level = `"io.modelcontextprotocol/logLevel":"info"`
	alone := d.open(d.post("s", toolCall("1", "log", `{"count":2,"level":"info","text":"alone"}`, level)))
	for i := range 2 {
		alone.expect(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","logger":"fixture","data":"alone %d"}}`, i+1))
	}
	if text, _ := toolText(t, alone.next()); text != "logged" {
		t.Errorf("the call ended with %q", text)
	}
	alone.end()

	// With two requests in flight that asked, nobody can know whose it is.
	first := d.background("s", toolCall("2", "hold", `{"name":"first"}`, level))
	d.tool("s", "await", `{"kind":"held","count":1}`)
	second := d.do(d.post("s", toolCall("3", "log", `{"count":1,"level":"info","text":"doubtful"}`, level)))
	if strings.Contains(second.body, "doubtful") {
		t.Errorf("a doubtful log line was forwarded: %s", second.body)
	}
	d.tool("s", "release", `{"name":"first"}`)
	if text, _ := toolText(t, await(t, first)); text != "released first" {
		t.Errorf("the first call ended with %q", text)
	}
	if out, errOut, code := d.mcpd("logs", "s"); code != 0 || !strings.Contains(out, "doubtful") {
		t.Errorf("mcpd logs: %d %s%s", code, out, errOut)
	}
}

func TestALogLineThatNobodyAskedForReachesNobody(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	got := d.do(d.post("s", toolCall("1", "log", `{"count":1,"level":"emergency","text":"unasked"}`, "")))
	if strings.Contains(got.body, "unasked") {
		t.Errorf("the client got %s", got.body)
	}
}

func TestAClientThatGoesAwayCancelsItsCall(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	for _, test := range []struct{ name, tool string }{{"before any byte of the answer", "hold"}, {"and the late answer is dropped", "late"}} {
		t.Run(test.name, func(t *testing.T) {
			cancelled := len(d.stats("s").Cancelled)
			ctx, leave := context.WithCancel(t.Context())
			gone := make(chan error, 1)
			r := d.post("s", toolCall(`"here"`, test.tool, `{"name":"x"}`, "")).WithContext(ctx)
			go func() {
				_, err := d.try(r)
				gone <- err
			}()
			d.tool("s", "await", `{"kind":"held","count":1}`)
			leave()
			if err := <-gone; err == nil {
				t.Error("the call was answered")
			}
			d.tool("s", "await", fmt.Sprintf(`{"kind":"cancelled","count":%d}`, cancelled+1))
			if held := d.stats("s").Held; held != 0 {
				t.Errorf("%d calls are still held", held)
			}
			if in := d.status("s").InFlight; in != 0 {
				t.Errorf("%d calls are in flight", in)
			}
		})
	}
	t.Run("in the middle of a stream", func(t *testing.T) {
		cancelled := len(d.stats("s").Cancelled)
		s := d.open(d.post("s", toolCall("1", "progress", `{"count":1,"name":"x"}`, `"progressToken":1`)))
		s.next()
		s.close()
		d.tool("s", "await", fmt.Sprintf(`{"kind":"cancelled","count":%d}`, cancelled+1))
	})
	t.Run("by closing a raw connection", func(t *testing.T) {
		cancelled := len(d.stats("s").Cancelled)
		conn, err := net.Dial("tcp", d.addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.post("s", toolCall("1", "hold", `{"name":"x"}`, "")).Write(conn); err != nil {
			t.Fatal(err)
		}
		d.tool("s", "await", `{"kind":"held","count":1}`)
		conn.Close()
		d.tool("s", "await", fmt.Sprintf(`{"kind":"cancelled","count":%d}`, cancelled+1))
	})
	t.Run("with the child's own id", func(t *testing.T) {
		lines := d.received("s")
		held := map[string]bool{}
		for _, line := range lines {
			var m struct {
				message
				Params struct {
					Name      string `json:"name"`
					RequestID any    `json:"requestId"`
				} `json:"params"`
			}
			decode(t, line, &m)
			switch {
			case m.Params.Name == "hold", m.Params.Name == "late", m.Params.Name == "progress":
				held[string(m.ID)] = true
			case m.Method == "notifications/cancelled":
				if id := fmt.Sprint(m.Params.RequestID); !held[id] {
					t.Errorf("%s was cancelled, which is none of the held calls %v", id, held)
				}
			}
		}
		if len(held) != 4 {
			t.Errorf("%d calls were held, want 4", len(held))
		}
	})
}

func TestAnswersThatBelongToNobodyOrComeTwiceAreDropped(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	if text := d.tool("s", "duplicate", "{}"); text != "first" {
		t.Errorf("duplicate answers %q", text)
	}
	if text := d.tool("s", "unknown_id", "{}"); text != "mine" {
		t.Errorf("unknown_id answers %q", text)
	}
	if text := d.tool("s", "echo", "{}"); text != "{}" {
		t.Errorf("afterwards: %q", text)
	}
	if s := d.status("s"); s.Restarts != 0 || s.State != "ready" {
		t.Errorf("status %+v", s)
	}
}

func TestACallWithoutAnAnswerTimesOutAndIsCancelled(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil, `request_timeout = "300ms"`)}})
	got := d.do(d.post("s", toolCall(`"slow"`, "hang", "{}", "")))
	if !strings.Contains(got.body, `"id":"slow"`) || !strings.Contains(got.body, "request_timeout") && !strings.Contains(got.body, "300ms") {
		t.Errorf("%d %s", got.status, got.body)
	}
	d.tool("s", "await", `{"kind":"cancelled","count":1}`)
}

func TestRequestsOverTheBoundAreRefusedAndOthersGoOn(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil, "max_in_flight = 3"), server("other", nil)}})
	a := d.background("s", toolCall("1", "hold", `{"name":"x"}`, ""))
	b := d.background("s", toolCall("2", "hold", `{"name":"x"}`, ""))
	d.tool("s", "await", `{"kind":"held","count":2}`)
	c := d.background("s", toolCall("3", "await", `{"kind":"held","count":3}`, ""))
	// Until the third is in flight, a fourth request may still be served.
	d.eventually("three requests in flight", func() bool { return d.status("s").InFlight == 3 })
	got := d.do(d.post("s", toolCall("4", "echo", `{}`, "")))
	if got.status < 400 || !strings.Contains(got.body, "max_in_flight") {
		t.Errorf("%d %s", got.status, got.body)
	}
	if text := d.tool("other", "echo", "{}"); text != "{}" {
		t.Errorf("the other server: %q", text)
	}
	kill(t, d.status("s").PID) // ends the three
	for _, answer := range []<-chan message{a, b, c} {
		await(t, answer)
	}
}

func TestAToolCallLostInACrashSaysWhatIsUncertainAndIsNotRepeated(t *testing.T) {
	journal := filepath.Join(t.TempDir(), "journal")
	d := start(t, setup{servers: []string{server("s", []string{"-journal", journal})}})
	text, isError := toolText(t, d.call("s", toolCall("1", "crash_after_effect", `{"name":"paid"}`, "")))
	if !isError || !strings.Contains(text, "crash_after_effect") || !strings.Contains(text, "may") {
		t.Errorf("isError %v: %q", isError, text)
	}
	d.tool("s", "echo", "{}") // waits for the new process
	data, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(data), "effect paid"); n != 1 {
		t.Errorf("the effect took place %d times", n)
	}
}

func TestAReadLostInACrashIsSentAgainOnce(t *testing.T) {
	journal := filepath.Join(t.TempDir(), "journal")
	d := start(t, setup{servers: []string{server("s", []string{"-journal", journal})}})
	m := d.call("s", modern("1", "resources/read", `"uri":"fixture:///crash-once"`, ""))
	if m.Error != nil || !strings.Contains(string(m.Result), "crash-once version") {
		t.Errorf("%s %+v", m.Result, m.Error)
	}
	m = d.call("s", modern("2", "resources/read", `"uri":"fixture:///crash"`, ""))
	if m.Error == nil || string(m.ID) != "2" {
		t.Fatalf("a read that always crashes gives %s", m.Result)
	}
	d.tool("s", "echo", "{}")
	data, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	// The first process, one more after crash-once, and two for crash: it was tried twice.
	if n := strings.Count(string(data), "start "); n != 4 {
		t.Errorf("%d starts:\n%s", n, data)
	}
}

func TestAKilledChildFailsItsCallsAndServesTheNext(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil)}})
	var held []<-chan message
	for i := range 20 {
		held = append(held, d.background("s", toolCall(fmt.Sprint(i), "hold", `{"name":"x"}`, "")))
	}
	d.tool("s", "await", `{"kind":"held","count":20}`)
	pid := d.stats("s").PID
	kill(t, pid)
	for _, answer := range held {
		if text, isError := toolText(t, await(t, answer)); !isError || !strings.Contains(text, "hold") {
			t.Errorf("isError %v: %q", isError, text)
		}
	}
	if again := d.stats("s").PID; again == pid {
		t.Error("the pid is the same")
	}
}

// kill kills one process as the kernel's OOM killer would.
func kill(t *testing.T, pid int) {
	t.Helper()
	if pid <= 1 {
		t.Fatalf("pid %d", pid)
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func TestASlowReaderIsCutOffAndOthersNeverNotice(t *testing.T) {
	d := start(t, setup{servers: []string{server("s", nil, `stream_buffer_bytes = "64KiB"`)}})
	conn, err := net.Dial("tcp", d.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if tcp, ok := conn.(*net.TCPConn); ok {
		if err := tcp.SetReadBuffer(4096); err != nil {
			t.Fatal(err)
		}
	}
	// A hundred thousand progress messages that nobody reads.
	body := toolCall("1", "progress", `{"count":100000,"name":"x"}`, `"progressToken":"`+strings.Repeat("t", 100)+`"`)
	if err := d.post("s", body).Write(conn); err != nil {
		t.Fatal(err)
	}
	d.tool("s", "await", `{"kind":"cancelled","count":1}`)
	if text := d.tool("s", "echo", "{}"); text != "{}" {
		t.Errorf("another caller got %q", text)
	}
}

func TestAHeldStreamIsKeptOpenByComments(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 15 seconds")
	}
	d := start(t, setup{servers: []string{server("s", nil)}})
	s := d.listen("s", "1", `"toolsListChanged":true`, `"toolsListChanged":true`)
	quiet := d.open(d.post("s", toolCall("2", "hold", `{"name":"x"}`, ""))) // returns once something is sent
	if quiet.status != http.StatusOK || !strings.HasPrefix(quiet.header.Get("Content-Type"), "text/event-stream") {
		t.Errorf("%d %v", quiet.status, quiet.header)
	}
	d.tool("s", "release", `{"name":"x"}`)
	if text, _ := toolText(t, quiet.next()); text != "released x" {
		t.Errorf("the held call ended with %q", text)
	}
	quiet.end()
	s.close()
	for name, text := range map[string]string{"listen": s.raw.String(), "call": quiet.raw.String()} {
		comment := false
		for line := range strings.Lines(text) {
			comment = comment || strings.HasPrefix(line, ":")
		}
		if !comment {
			t.Errorf("no comment came on the %s stream: %q", name, text)
		}
	}
}
