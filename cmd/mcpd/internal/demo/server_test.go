package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client is the other end of a running server.
type client struct {
	t      *testing.T
	in     *io.PipeWriter
	out    *bufio.Reader
	ended  chan error
	cancel context.CancelFunc
}

func start(t *testing.T) *client {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	c := &client{t: t, in: inW, out: bufio.NewReader(outR), ended: make(chan error, 1), cancel: cancel}
	go func() {
		err := Run(ctx, inR, outW)
		outW.Close()
		c.ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		inW.Close()
		outR.Close()
	})
	return c
}

func (c *client) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) receive() map[string]any {
	c.t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatalf("no more messages: %v", err)
	}
	var m map[string]any
	if err := json.Unmarshal([]byte(line), &m); err != nil {
		c.t.Fatalf("%q is not JSON: %v", line, err)
	}
	return m
}

// expect reads the next message and compares it with the JSON in want.
func (c *client) expect(want string) {
	c.t.Helper()
	var w map[string]any
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		c.t.Fatalf("bad expectation %q: %v", want, err)
	}
	if diff := cmp.Diff(w, c.receive()); diff != "" {
		c.t.Fatalf("wrong message (-want +got):\n%s", diff)
	}
}

// end closes the input, as a client does that has finished, and waits for Run.
func (c *client) end() {
	c.t.Helper()
	c.in.Close()
	if rest, err := io.ReadAll(c.out); err != nil || len(rest) > 0 {
		c.t.Errorf("after the end of input: %q, %v", rest, err)
	}
	if err := <-c.ended; err != nil {
		c.t.Errorf("Run = %v", err)
	}
}

const modernMeta = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`

// modern is a request of revision 2026-07-28; params are the members beside _meta, meta those beside the required ones.
func modern(id, method, params string, meta ...string) string {
	if params != "" {
		params = "," + params
	}
	extra := ""
	for _, m := range meta {
		extra += "," + m
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{"_meta":{%s%s}%s}}`, id, method, modernMeta, extra, params)
}

func tool(id, name, args string, meta ...string) string {
	return modern(id, "tools/call", fmt.Sprintf(`"name":%q,"arguments":%s`, name, args), meta...)
}

const info = `"io.modelcontextprotocol/serverInfo":{"name":"mcpd-demo","title":"mcpd demo server","version":"1.0.0"}`

// complete is a modern answer with the given members.
func complete(id, members string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","_meta":{%s},%s}}`, id, info, members)
}

func toolAnswer(id, text string) string {
	return complete(id, fmt.Sprintf(`"content":[{"type":"text","text":%q}],"isError":false`, text))
}

func TestModernRequests(t *testing.T) {
	welcome := newNotes().entries[0].text
	for _, test := range []struct{ name, send, want string }{
		{
			"echo gives the text back", tool(`"x"`, "echo", `{"text":"<grüß & göd>"}`), toolAnswer(`"x"`, "<grüß & göd>"),
		},
		{
			"add answers structured and as text", tool("1", "add", `{"a":1.5,"b":-3}`),
			complete("1", `"content":[{"type":"text","text":"{\"sum\":-1.5}"}],"isError":false,"structuredContent":{"sum":-1.5}`),
		},
		{
			"a wrong argument is an error for the model, not of the protocol", tool("1", "add", `{"a":"one","b":2}`),
			complete("1", `"content":[{"type":"text","text":"add needs the arguments a and b, both numbers"}],"isError":true`),
		},
		{
			"an unknown argument is reported", tool("1", "echo", `{"text":"a","txet":"b"}`),
			complete("1", `"content":[{"type":"text","text":"echo needs the argument text, a string"}],"isError":true`),
		},
		{
			"an overflowing sum is an error for the model", tool("1", "add", `{"a":1.7e308,"b":1.7e308}`),
			complete("1", `"content":[{"type":"text","text":"the sum of 1.7e+308 and 1.7e+308 is too large for a number"}],"isError":true`),
		},
		{
			"an unknown zone is an error for the model", tool("1", "now", `{"zone":"Mars/Olympus"}`),
			complete("1", `"content":[{"type":"text","text":"there is no time zone \"Mars/Olympus\"; use an IANA name such as Europe/Vienna"}],"isError":true`),
		},
		{
			"an unknown tool is a protocol error", tool("1", "nope", `{}`),
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"unknown tool \"nope\""}}`,
		},
		{
			"an unknown method is -32601", modern("7", "no/such", ""),
			`{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"unknown method \"no/such\""}}`,
		},
		{
			"initialize sent as modern is unknown", modern("7", "initialize", ""),
			`{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"unknown method \"initialize\""}}`,
		},
		{
			"an unknown version is -32022 with the supported ones",
			`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"1900-01-01"}}}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["2026-07-28"],"requested":"1900-01-01"}}}`,
		},
		{
			"missing capabilities are -32602",
			`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"_meta lacks io.modelcontextprotocol/clientCapabilities"}}`,
		},
		{
			"no version and no initialize before is -32602",
			`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"_meta lacks io.modelcontextprotocol/protocolVersion, and no initialize came before"}}`,
		},
		{
			"an unknown log level is -32602", modern("1", "tools/list", "", `"io.modelcontextprotocol/logLevel":"loud"`),
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"unknown log level \"loud\" in _meta"}}`,
		},
		{"a line that is not JSON is -32700 without an id", `{"jsonrpc":`, `{"jsonrpc":"2.0","error":{"code":-32700,"message":"the line is not JSON"}}`},
		{"a batch is -32600", `[]`, `{"jsonrpc":"2.0","error":{"code":-32600,"message":"the line is not one JSON-RPC 2.0 message"}}`},
		{"a null id is -32600", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, `{"jsonrpc":"2.0","error":{"code":-32600,"message":"the id must be a string or an integer"}}`},
		{"a fractional id is -32600", `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, `{"jsonrpc":"2.0","error":{"code":-32600,"message":"the id must be a string or an integer"}}`},
		{
			"resources are the notes", modern("1", "resources/list", ""),
			complete("1", fmt.Sprintf(`"ttlMs":0,"cacheScope":"private","resources":[{"uri":"note:///welcome","name":"welcome","mimeType":"text/plain","size":%d}]`, len(welcome))),
		},
		{
			"a note is read", modern("1", "resources/read", `"uri":"note:///welcome"`),
			complete("1", fmt.Sprintf(`"ttlMs":0,"cacheScope":"private","contents":[{"uri":"note:///welcome","mimeType":"text/plain","text":%q}]`, welcome)),
		},
		{
			"a note that does not exist is -32602", modern("1", "resources/read", `"uri":"note:///no"`),
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"there is no resource \"note:///no\"","data":{"uri":"note:///no"}}}`,
		},
		{
			"templates are listed", modern("1", "resources/templates/list", ""),
			complete("1", `"ttlMs":3600000,"cacheScope":"private","resourceTemplates":[{"uriTemplate":"note:///{name}","name":"note","title":"A note by its name","description":"The text of one note.","mimeType":"text/plain"}]`),
		},
		{
			"a prompt embeds the notes", modern("1", "prompts/get", `"name":"summarize_notes","arguments":{"style":"haiku"}`),
			complete("1", fmt.Sprintf(`"description":"A summary of every note","messages":[
				{"role":"user","content":{"type":"text","text":"Summarize these notes. Style: haiku."}},
				{"role":"user","content":{"type":"resource","resource":{"uri":"note:///welcome","mimeType":"text/plain","text":%q}}}]`, welcome)),
		},
		{
			"a prompt without its argument is -32602", modern("1", "prompts/get", `"name":"explain_note"`),
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"there is no note \"\""}}`,
		},
		{
			"a prompt's argument is completed", modern("1", "completion/complete", `"ref":{"type":"ref/prompt","name":"summarize_notes"},"argument":{"name":"style","value":"b"}`),
			complete("1", `"completion":{"values":["bullets"],"total":1,"hasMore":false}`),
		},
		{
			"a template's variable is completed", modern("1", "completion/complete", `"ref":{"type":"ref/resource","uri":"note:///{name}"},"argument":{"name":"name","value":""}`),
			complete("1", `"completion":{"values":["welcome"],"total":1,"hasMore":false}`),
		},
		{
			"a completion of something unknown is -32602", modern("1", "completion/complete", `"ref":{"type":"ref/prompt","name":"x"},"argument":{"name":"y","value":""}`),
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"there is nothing of this name to complete"}}`,
		},
		{
			"a line with a byte order mark and CRLF is understood", "\ufeff" + tool("1", "echo", `{"text":"a"}`) + "\r", toolAnswer("1", "a"),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := start(t)
			c.send(test.send)
			c.expect(test.want)
			c.end()
		})
	}
}

func TestDiscoverNamesTheModernVersionAndTheCapabilities(t *testing.T) {
	c := start(t)
	c.send(modern("1", "server/discover", ""))
	result := c.receive()["result"].(map[string]any)
	if diff := cmp.Diff([]any{modernVersion}, result["supportedVersions"]); diff != "" {
		t.Error(diff)
	}
	want := map[string]any{
		"tools": map[string]any{}, "prompts": map[string]any{}, "completions": map[string]any{}, "logging": map[string]any{},
		"resources": map[string]any{"subscribe": true, "listChanged": true},
	}
	if diff := cmp.Diff(want, result["capabilities"]); diff != "" {
		t.Error(diff)
	}
	c.end()
}

func TestEveryListedToolAnswersWithoutAProtocolError(t *testing.T) {
	c := start(t)
	c.send(modern("1", "tools/list", ""))
	tools := c.receive()["result"].(map[string]any)["tools"].([]any)
	if len(tools) != 6 {
		t.Errorf("%d tools, want 6", len(tools))
	}
	for _, listed := range tools {
		name := listed.(map[string]any)["name"].(string)
		c.send(tool("2", name, `{"unknown":1}`))
		result, ok := c.receive()["result"].(map[string]any)
		if !ok || result["isError"] != true {
			t.Errorf("%s with an unknown argument: %v, want a tool error", name, result)
		}
	}
	c.end()
}

func TestNowIsTheTimeOfTheZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		c.send(tool("1", "now", `{}`))
		c.expect(toolAnswer("1", "2000-01-01T00:00:00Z"))
		c.end()
	})
}

func TestCountdownReportsProgressOnItsTokenAndThenAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		began := time.Now()
		c.send(tool("1", "countdown", `{"from":2,"interval_ms":500}`, `"progressToken":"p"`))
		c.expect(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1,"total":2,"message":"1 to go"}}`)
		c.expect(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":2,"total":2,"message":"0 to go"}}`)
		c.expect(toolAnswer("1", "Counted down from 2 in steps of 500ms."))
		if took := time.Since(began); took != time.Second {
			t.Errorf("took %v, want 1s", took)
		}
		c.end()
	})
}

func TestCountdownWithoutATokenOnlyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		c.send(tool("1", "countdown", `{"from":2}`))
		c.expect(toolAnswer("1", "Counted down from 2 in steps of 1s."))
		c.end()
	})
}

func TestNothingFollowsACancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		c.send(tool(`"a"`, "countdown", `{"from":3}`, `"progressToken":1`))
		c.expect(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1,"total":3,"message":"2 to go"}}`)
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}`)
		time.Sleep(time.Minute) // of the fake clock: the countdown would long be over
		c.send(tool(`"a"`, "echo", `{"text":"the id is free again"}`))
		c.expect(toolAnswer(`"a"`, "the id is free again"))
		c.end()
	})
}

func TestTheEndOfInputStopsARunningCountdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		began := time.Now()
		c.send(tool("1", "countdown", `{"from":600}`))
		c.end()
		if took := time.Since(began); took != 0 {
			t.Errorf("took %v", took)
		}
	})
}

func TestAnIDInUseIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		c.send(tool("1", "countdown", `{}`))
		c.send(tool("1", "echo", `{"text":"a"}`))
		c.expect(`{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"the id is in use by a request that is still running"}}`)
		c.expect(toolAnswer("1", "Counted down from 5 in steps of 1s."))
		c.end()
	})
}

func TestLogMessagesComeOnlyForTheRequestThatAskedAndFromItsLevelUp(t *testing.T) {
	c := start(t)
	c.send(tool("1", "set_note", `{"name":"a","text":"x"}`, `"io.modelcontextprotocol/logLevel":"info"`))
	c.expect(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","logger":"demo","data":"note a changed"}}`)
	c.receive() // the answer
	c.send(tool("2", "set_note", `{"name":"a","text":"y"}`))
	if m := c.receive(); m["id"] != 2.0 {
		t.Errorf("a request without a log level got %v before its answer", m)
	}
	c.end()
}

const subscribed = `"_meta":{"io.modelcontextprotocol/subscriptionId":%s}`

func ack(id, granted string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{`+subscribed+`,"notifications":{%s}}}`, id, granted)
}

func TestListenGrantsWhatTheServerHasAndTellsOnlyThat(t *testing.T) {
	c := start(t)
	c.send(modern(`"all"`, "subscriptions/listen", `"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["note:///a","file:///etc/passwd","note:///a"]}`))
	c.expect(ack(`"all"`, `"resourcesListChanged":true,"resourceSubscriptions":["note:///a"]`))
	c.send(modern("7", "subscriptions/listen", `"notifications":{"resourceSubscriptions":["note:///b"]}`))
	c.expect(ack("7", `"resourceSubscriptions":["note:///b"]`))

	list := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/resources/list_changed","params":{`+subscribed+`}}`, `"all"`)
	updated := func(id, uri string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{`+subscribed+`,"uri":%q}}`, id, uri)
	}
	saved := func(id, name string) string {
		return complete(id, fmt.Sprintf(`"content":[{"type":"text","text":"Saved as note:///%[1]s"},{"type":"resource_link","uri":"note:///%[1]s","name":%[1]q,"mimeType":"text/plain"}],"isError":false`, name))
	}
	c.send(tool("1", "set_note", `{"name":"a","text":"new"}`))
	c.expect(list)
	c.expect(updated(`"all"`, "note:///a"))
	c.expect(saved("1", "a"))
	c.send(tool("2", "set_note", `{"name":"b","text":"new"}`))
	c.expect(list)
	c.expect(updated("7", "note:///b"))
	c.expect(saved("2", "b"))
	c.send(tool("3", "set_note", `{"name":"a","text":"other"}`))
	c.expect(updated(`"all"`, "note:///a"))
	c.expect(saved("3", "a"))
	c.send(tool("4", "set_note", `{"name":"a","text":"other"}`)) // no change, no notice
	c.expect(saved("4", "a"))
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"all"}}`)
	c.send(tool("5", "set_note", `{"name":"a","text":""}`)) // nobody is left who asked
	c.expect(toolAnswer("5", `There is no note "a" now.`))

	// The end of the server ends the subscription that is left with its result.
	c.cancel()
	c.expect(complete("7", `"_meta":{`+info+`,"io.modelcontextprotocol/subscriptionId":7}`))
	if err := <-c.ended; err != nil {
		t.Errorf("Run = %v", err)
	}
}

func TestListenWithoutAFilterIsRefused(t *testing.T) {
	c := start(t)
	c.send(modern("1", "subscriptions/listen", ""))
	c.expect(`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"subscriptions/listen needs a notifications filter"}}`)
	c.end()
}

func TestInitializeNegotiates(t *testing.T) {
	for asked, want := range map[string]string{
		"2024-11-05": "2024-11-05", "2025-03-26": "2025-03-26", "2025-06-18": "2025-06-18", "2025-11-25": "2025-11-25",
		"2026-07-28": "2025-11-25", "1.0": "2025-11-25",
	} {
		t.Run(asked, func(t *testing.T) {
			c := start(t)
			c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"t","version":"0"}}}`, asked))
			result := c.receive()["result"].(map[string]any)
			if result["protocolVersion"] != want {
				t.Errorf("negotiated %v, want %s", result["protocolVersion"], want)
			}
			if _, has := result["resultType"]; has {
				t.Error("a legacy result has a resultType")
			}
			c.end()
		})
	}
}

func TestLegacyConnection(t *testing.T) {
	c := start(t)
	c.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}`)
	c.receive()
	for _, step := range []struct{ send, want string }{
		{`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":1,"result":{}}`},
		{
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":"a"}}}`,
			`{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"a"}],"isError":false}}`,
		},
		{
			`{"jsonrpc":"2.0","id":3,"method":"resources/read","params":{"uri":"note:///no"}}`,
			`{"jsonrpc":"2.0","id":3,"error":{"code":-32002,"message":"there is no resource \"note:///no\"","data":{"uri":"note:///no"}}}`,
		},
		{`{"jsonrpc":"2.0","id":4,"method":"server/discover"}`, `{"jsonrpc":"2.0","id":4,"error":{"code":-32601,"message":"unknown method \"server/discover\""}}`},
		{`{"jsonrpc":"2.0","id":5,"method":"resources/subscribe","params":{"uri":"note:///a"}}`, `{"jsonrpc":"2.0","id":5,"result":{}}`},
		{`{"jsonrpc":"2.0","id":6,"method":"logging/setLevel","params":{"level":"info"}}`, `{"jsonrpc":"2.0","id":6,"result":{}}`},
		{`{"jsonrpc":"2.0","id":7,"method":"logging/setLevel","params":{"level":"x"}}`, `{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"unknown log level \"x\""}}`},
	} {
		c.send(step.send)
		c.expect(step.want)
	}
	set := `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"set_note","arguments":{"name":"a","text":"%d"}}}`
	message := `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","logger":"demo","data":"note a changed"}}`

	c.send(fmt.Sprintf(set, 8, 1)) // before notifications/initialized: no change notifications
	c.expect(message)
	c.receive()
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	c.send(fmt.Sprintf(set, 9, 2))
	c.expect(message)
	c.expect(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"note:///a"}}`)
	c.receive()
	c.send(`{"jsonrpc":"2.0","id":10,"method":"resources/unsubscribe","params":{"uri":"note:///a"}}`)
	c.receive()
	c.send(fmt.Sprintf(set, 11, 3))
	c.expect(message)
	if m := c.receive(); m["id"] != 11.0 {
		t.Errorf("after unsubscribe: %v, want the answer", m)
	}

	// One process serves both eras at once.
	c.send(tool("12", "echo", `{"text":"modern"}`))
	c.expect(toolAnswer("12", "modern"))
	c.end()
}

func TestTheLastLineNeedsNoNewline(t *testing.T) {
	var out strings.Builder
	if err := Run(t.Context(), strings.NewReader(tool("1", "echo", `{"text":"a"}`)), &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), `"text":"a"`) {
		t.Errorf("output %q", out.String())
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("gone") }

func TestAnOutputThatFailsEndsTheServerWithItsError(t *testing.T) {
	err := Run(t.Context(), strings.NewReader(tool("1", "echo", `{"text":"a"}`)+"\n"+tool("2", "echo", `{"text":"b"}`)), brokenWriter{})
	if err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("Run = %v", err)
	}
}

func TestReadLineSkipsALineThatIsTooLongAndGoesOn(t *testing.T) {
	r := bufio.NewReaderSize(strings.NewReader("ok\n"+strings.Repeat("x", 100)+"\n\r\nend"), 16)
	for _, want := range []struct {
		line string
		err  error
	}{{"ok", nil}, {"", errLineTooLong}, {"", nil}, {"end", nil}, {"", io.EOF}} {
		line, err := readLine(r, 50)
		if string(line) != want.line || !errors.Is(err, want.err) {
			t.Errorf("readLine = %q, %v, want %q, %v", line, err, want.line, want.err)
		}
	}
}

func FuzzServerAnswersEveryLineWithJSONOrNothing(f *testing.F) {
	f.Add(tool("1", "echo", `{"text":"a"}`))
	f.Add(modern("1", "subscriptions/listen", `"notifications":{"resourcesListChanged":true}`))
	f.Add(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`)
	f.Add(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}`)
	f.Fuzz(func(t *testing.T, line string) {
		var out strings.Builder
		if err := Run(t.Context(), strings.NewReader(line), &out); err != nil {
			t.Fatal(err)
		}
		for answer := range strings.Lines(out.String()) {
			if !json.Valid([]byte(answer)) {
				t.Fatalf("%q was answered with %q", line, answer)
			}
		}
	})
}
