package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const modernVersion = "2026-07-28"

// modern is the text of a request of revision 2026-07-28. params are the members beside _meta, meta those beside the
// required ones of _meta; both may be empty.
func modern(id, method, params, meta string) string {
	if params != "" {
		params = "," + params
	}
	if meta != "" {
		meta = "," + meta
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":%q,`+
		`"io.modelcontextprotocol/clientCapabilities":{}%s}%s}}`, id, method, modernVersion, meta, params)
}

// toolCall is the text of a tools/call.
func toolCall(id, name, args, meta string) string {
	return modern(id, "tools/call", fmt.Sprintf(`"name":%q,"arguments":%s`, name, args), meta)
}

// request is a request with the token and without a body's headers.
func (d *daemon) request(method, path, body string) *http.Request {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), method, "http://"+d.addr+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+d.token)
	return r
}

func endpoint(name string) string { return "/servers/" + name + "/mcp" }

// post is a POST of body to a server's endpoint, with the headers that a client of the body's era sends.
func (d *daemon) post(name, body string) *http.Request {
	d.t.Helper()
	r := d.request(http.MethodPost, endpoint(name), body)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	var m struct {
		Method string `json:"method"`
		Params struct {
			Name string `json:"name"`
			URI  string `json:"uri"`
			Meta struct {
				Version string `json:"io.modelcontextprotocol/protocolVersion"`
			} `json:"_meta"`
		} `json:"params"`
	}
	if json.Unmarshal([]byte(body), &m) != nil || m.Params.Meta.Version == "" {
		return r
	}
	r.Header.Set("MCP-Protocol-Version", m.Params.Meta.Version)
	r.Header.Set("Mcp-Method", m.Method)
	switch m.Method {
	case "tools/call", "prompts/get":
		r.Header.Set("Mcp-Name", m.Params.Name)
	case "resources/read":
		r.Header.Set("Mcp-Name", m.Params.URI)
	}
	return r
}

// response is a whole answer.
type response struct {
	status int
	header http.Header
	body   string
}

// do sends a request and reads the whole answer, within the patience of the tests.
func (d *daemon) do(r *http.Request) response {
	d.t.Helper()
	answer, err := d.try(r)
	if err != nil {
		d.t.Fatalf("%s %s: %v", r.Method, r.URL.Path, err)
	}
	return answer
}

// try is do for goroutines of a test and for requests that may fail.
func (d *daemon) try(r *http.Request) (response, error) {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	answer, err := d.client.Do(r.WithContext(ctx))
	if err != nil {
		return response{}, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return response{status: answer.StatusCode, header: answer.Header, body: string(body)}, err
}

// message is a JSON-RPC message as a test reads it.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

// call sends body to a server and returns the final message of the answer, whether it came as JSON or as the end of a
// stream.
func (d *daemon) call(name, body string) message {
	d.t.Helper()
	m, err := d.tryCall(d.post(name, body))
	if err != nil {
		d.t.Fatal(err)
	}
	return m
}

func (d *daemon) tryCall(r *http.Request) (message, error) {
	answer, err := d.try(r)
	if err != nil {
		return message{}, err
	}
	events := []string{answer.body}
	if strings.HasPrefix(answer.header.Get("Content-Type"), "text/event-stream") {
		events = dataOf(answer.body)
	}
	if len(events) == 0 {
		return message{}, fmt.Errorf("HTTP %d without a message", answer.status)
	}
	var m message
	if err := json.Unmarshal([]byte(events[len(events)-1]), &m); err != nil {
		return message{}, fmt.Errorf("HTTP %d, %q is not a message: %w", answer.status, answer.body, err)
	}
	return m, nil
}

// tool calls a tool and returns the text of its result, which must be no error.
func (d *daemon) tool(name, tool, args string) string {
	d.t.Helper()
	m := d.call(name, toolCall(`"t"`, tool, args, ""))
	text, isError := toolText(d.t, m)
	if isError {
		d.t.Fatalf("tool %s says %q", tool, text)
	}
	return text
}

// toolText is the first text of a tool's result.
func toolText(t *testing.T, m message) (text string, isError bool) {
	t.Helper()
	var result struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		IsError bool `json:"isError"`
	}
	if m.Error != nil || json.Unmarshal(m.Result, &result) != nil || len(result.Content) == 0 {
		t.Fatalf("no tool result: %s %+v", m.Result, m.Error)
	}
	return result.Content[0].Text, result.IsError
}

// structured calls a tool of the fixture and decodes its structured content into v.
func (d *daemon) structured(name, tool, args string, v any) {
	d.t.Helper()
	m := d.call(name, toolCall(`"s"`, tool, args, ""))
	var result struct {
		Content json.RawMessage `json:"structuredContent"`
	}
	if m.Error != nil {
		d.t.Fatalf("tool %s: %+v", tool, *m.Error)
	}
	if err := json.Unmarshal(m.Result, &result); err != nil {
		d.t.Fatal(err)
	}
	if err := json.Unmarshal(result.Content, v); err != nil {
		d.t.Fatalf("tool %s answers %s: %v", tool, m.Result, err)
	}
}

// fixtureStats is what the fixture reports of itself.
type fixtureStats struct {
	PID       int               `json:"pid"`
	Methods   map[string]int    `json:"methods"`
	Listeners int               `json:"listeners"`
	Watched   []string          `json:"watched"`
	Cancelled []json.RawMessage `json:"cancelled"`
	Held      int               `json:"held"`
}

func (d *daemon) stats(name string) (s fixtureStats) {
	d.t.Helper()
	d.structured(name, "stats", "{}", &s)
	return s
}

// received is every line that the child has got.
func (d *daemon) received(name string) []string {
	d.t.Helper()
	var r struct {
		Lines []string `json:"lines"`
	}
	d.structured(name, "received", "{}", &r)
	return r.Lines
}

// dataOf splits the text of an event stream into the data of its events.
func dataOf(text string) []string {
	var events []string
	for block := range strings.SplitSeq(strings.ReplaceAll(text, "\r\n", "\n"), "\n\n") {
		var data []string
		for line := range strings.Lines(block) {
			if value, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "data:"); ok {
				data = append(data, strings.TrimPrefix(value, " "))
			}
		}
		if len(data) > 0 {
			events = append(events, strings.Join(data, "\n"))
		}
	}
	return events
}

// stream is an open answer, read event by event.
type stream struct {
	t        *testing.T
	header   http.Header
	status   int
	cancel   context.CancelFunc
	events   chan string
	finished chan struct{} // closed when the reader goroutine has ended
	err      error         // why the stream ended, nil for an orderly end; after finished
	raw      strings.Builder
}

// open sends a request and reads its answer as a stream until close or the end of the test.
func (d *daemon) open(r *http.Request) *stream {
	d.t.Helper()
	ctx, cancel := context.WithCancel(r.Context())
	answer, err := d.client.Do(r.WithContext(ctx))
	if err != nil {
		cancel()
		d.t.Fatal(err)
	}
	s := &stream{
		t: d.t, header: answer.Header, status: answer.StatusCode, cancel: cancel,
		events: make(chan string, 1024), finished: make(chan struct{}),
	}
	go func() {
		defer close(s.finished)
		defer close(s.events)
		defer answer.Body.Close()
		r := bufio.NewReader(answer.Body)
		var block strings.Builder
		for {
			line, err := r.ReadString('\n')
			s.raw.WriteString(line)
			block.WriteString(line)
			if strings.TrimRight(line, "\r\n") == "" || err != nil {
				for _, data := range dataOf(block.String()) {
					s.events <- data
				}
				block.Reset()
			}
			if err != nil {
				if err != io.EOF {
					s.err = err
				}
				return
			}
		}
	}()
	d.t.Cleanup(s.close)
	return s
}

// close goes away, as a client does that has lost interest, and waits for the reader.
func (s *stream) close() {
	s.cancel()
	for range s.events { // so that the reader can end
	}
	<-s.finished
}

// nextText is the next event as text.
func (s *stream) nextText() string {
	s.t.Helper()
	select {
	case text, open := <-s.events:
		if !open {
			s.t.Fatalf("the stream has ended (%v)", s.err)
		}
		return text
	case <-time.After(patience):
		s.t.Fatal("nothing comes on the stream")
		return ""
	}
}

func (s *stream) next() message {
	s.t.Helper()
	text := s.nextText()
	var m message
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		s.t.Fatalf("%q is not a message: %v", text, err)
	}
	return m
}

// end expects the orderly end of the stream, with nothing before it.
func (s *stream) end() {
	s.t.Helper()
	select {
	case text, open := <-s.events:
		if open {
			s.t.Fatalf("%q instead of the end of the stream", text)
		}
		<-s.finished
		if s.err != nil {
			s.t.Fatalf("the stream broke off: %v", s.err)
		}
	case <-time.After(patience):
		s.t.Fatal("the stream does not end")
	}
}

// listen opens a subscription and reads its acknowledgement, which must grant what granted says.
func (d *daemon) listen(name, id, filter, granted string) *stream {
	d.t.Helper()
	s := d.open(d.post(name, modern(id, "subscriptions/listen", `"notifications":{`+filter+`}`, "")))
	first := s.nextText()
	equalJSON(d.t, first, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged",
		"params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"notifications":{%s}}}`, id, granted))
	return s
}

// expect reads the next event and compares it with the JSON in want.
func (s *stream) expect(want string) {
	s.t.Helper()
	equalJSON(s.t, s.nextText(), want)
}

// changed is the text of a change notification on the subscription id.
func changed(id, list string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/%s/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, list, id)
}

// updated is the text of a resource update on the subscription id.
func updated(id, uri string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":%q,"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, uri, id)
}

// expectResult reads the result that ends the subscription id.
func (s *stream) expectResult(id string) {
	s.t.Helper()
	m := s.next()
	var result struct {
		ResultType string `json:"resultType"`
		Meta       struct {
			Subscription json.RawMessage `json:"io.modelcontextprotocol/subscriptionId"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(m.Result, &result); err != nil || m.Error != nil {
		s.t.Fatalf("not the result of a listen: %+v", m)
	}
	if string(m.ID) != id || result.ResultType != "complete" || string(result.Meta.Subscription) != id {
		s.t.Errorf("result of listen %s has id %s, resultType %q, subscriptionId %s", id, m.ID, result.ResultType, result.Meta.Subscription)
	}
}

// equalJSON compares two JSON texts by value.
func equalJSON(t *testing.T, got, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		t.Fatalf("%q is not JSON: %v", got, err)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatalf("bad expectation %q: %v", want, err)
	}
	if diff := cmp.Diff(w, g); diff != "" {
		t.Fatalf("wrong message (-want +got):\n%s", diff)
	}
}
