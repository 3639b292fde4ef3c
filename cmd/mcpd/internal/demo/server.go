package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
)

const instructions = "A small server that shows what mcpd carries: try echo, add, now, countdown (it reports progress and can be " +
	"cancelled), and set_note, whose notes are resources that can be watched."

// Run serves one client until in ends, ctx is done or out fails. The end of in and of ctx are the normal ends and
// return nil; before returning, Run stops all running calls and ends every open subscription with its result. When ctx
// ends first, in is closed if it can be, so that the pending read returns.
func Run(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	s := &server{
		out:    encoder,
		notes:  newNotes(),
		calls:  map[string]*call{},
		events: make(chan event),
	}

	lines := make(chan line)
	var reader sync.WaitGroup
	reader.Go(func() { readLines(ctx, in, lines) })

	err := s.loop(ctx, lines)
	cancel()
	s.running.Wait()
	if err == nil {
		s.endSubscriptions()
		err = s.writeErr
	}
	// A read from a terminal or a pipe in blocking mode cannot be interrupted; only a reader that can be closed is
	// waited for.
	if closer, ok := in.(io.Closer); ok && closer.Close() == nil {
		if _, blocking := in.(interface{ Fd() uintptr }); !blocking {
			reader.Wait()
		}
	}
	return err
}

// line is one line of input, or the reason why it could not be read.
type line struct {
	data []byte
	err  error
}

// readLines sends every line of in until it ends, then closes lines.
func readLines(ctx context.Context, in io.Reader, lines chan<- line) {
	defer close(lines)
	buffered := bufio.NewReaderSize(in, 64<<10)
	for {
		data, err := readLine(buffered, maxLine)
		if err != nil && !errors.Is(err, errLineTooLong) {
			return
		}
		select {
		case lines <- line{data: data, err: err}:
		case <-ctx.Done():
			return
		}
	}
}

// server holds the state of one connection. Only the goroutine of loop touches it and only it writes, so a message of a
// cancelled call can never follow the cancellation.
type server struct {
	out      *json.Encoder
	writeErr error

	legacyVersion string // negotiated by initialize, "" before
	initialized   bool   // notifications/initialized has come
	legacyLevel   string // logging/setLevel, "" before

	notes     *notes
	calls     map[string]*call // running calls by id as it came
	listeners []*listener      // open subscriptions, the oldest first
	watched   []string         // URIs subscribed by a legacy client

	running sync.WaitGroup // goroutines of slow calls
	events  chan event     // what they have to say
}

// call is one request that is being answered.
type call struct {
	id     json.RawMessage
	meta   requestMeta
	modern bool
	cancel context.CancelFunc // nil unless it runs in a goroutine
}

// event is a message of a slow call: progress, or its end.
type event struct {
	call     *call
	progress object
	result   object // the end, when not nil
}

func (s *server) loop(ctx context.Context, lines <-chan line) error {
	for s.writeErr == nil {
		select {
		case <-ctx.Done():
			return nil
		case l, open := <-lines:
			if !open {
				return nil
			}
			s.receive(ctx, l)
		case e := <-s.events:
			s.handleEvent(e)
		}
	}
	return s.writeErr
}

func (s *server) write(v any) {
	if s.writeErr != nil {
		return
	}
	if err := s.out.Encode(v); err != nil {
		s.writeErr = fmt.Errorf("demo server: cannot write a message: %w", err)
	}
}

func (s *server) notify(method string, params object) {
	m := object{"jsonrpc": "2.0", "method": method}
	if params != nil {
		m["params"] = params
	}
	s.write(m)
}

func (s *server) replyError(id json.RawMessage, e *rpcError) {
	m := object{"jsonrpc": "2.0", "error": e}
	if id != nil {
		m["id"] = id
	}
	s.write(m)
}

// reply answers c. A modern result says what it is and who made it.
func (s *server) reply(c *call, result object) {
	if c.modern {
		result["resultType"] = "complete"
		meta, ok := result["_meta"].(object)
		if !ok {
			meta = object{}
			result["_meta"] = meta
		}
		meta[metaServerInfo] = serverInfo()
	}
	s.write(object{"jsonrpc": "2.0", "id": c.id, "result": result})
}

func serverInfo() object {
	return object{"name": "mcpd-demo", "title": "mcpd demo server", "version": "1.0.0"}
}

// receive handles one line of input.
func (s *server) receive(ctx context.Context, l line) {
	if l.err != nil {
		s.replyError(nil, &rpcError{Code: codeInvalidRequest, Message: fmt.Sprintf("message over %d bytes", maxLine)})
		return
	}
	data := bytes.TrimPrefix(l.data, []byte("\xef\xbb\xbf"))
	if len(data) == 0 {
		return
	}
	if !json.Valid(data) {
		s.replyError(nil, &rpcError{Code: codeParse, Message: "the line is not JSON"})
		return
	}
	var m message
	if err := json.Unmarshal(data, &m); err != nil || m.JSONRPC != "2.0" {
		s.replyError(nil, &rpcError{Code: codeInvalidRequest, Message: "the line is not one JSON-RPC 2.0 message"})
		return
	}
	switch {
	case m.Method == "":
		// A response: this server asks nothing, so there is nothing it could belong to.
	case m.ID == nil:
		s.receiveNotification(m)
	case !validID(m.ID):
		s.replyError(nil, &rpcError{Code: codeInvalidRequest, Message: "the id must be a string or an integer"})
	case s.calls[string(m.ID)] != nil || s.listening(string(m.ID)):
		s.replyError(m.ID, &rpcError{Code: codeInvalidRequest, Message: "the id is in use by a request that is still running"})
	default:
		s.receiveRequest(ctx, m)
	}
}

func (s *server) receiveNotification(m message) {
	switch m.Method {
	case "notifications/initialized":
		s.initialized = s.legacyVersion != ""
	case "notifications/cancelled":
		var params struct {
			RequestID json.RawMessage `json:"requestId"`
		}
		if json.Unmarshal(m.Params, &params) != nil {
			return // a bad notification cannot be answered and changes nothing
		}
		id := string(params.RequestID)
		if c := s.calls[id]; c != nil {
			c.cancel()
			delete(s.calls, id)
		}
		s.listeners = slices.DeleteFunc(s.listeners, func(l *listener) bool { return string(l.call.id) == id })
	}
}

func (s *server) receiveRequest(ctx context.Context, m message) {
	c := &call{id: m.ID}
	result, err := s.dispatch(ctx, c, m)
	switch {
	case err != nil:
		s.replyError(c.id, err)
	case result != nil:
		s.reply(c, result)
	}
}

// dispatch decides the era of the request and runs its method. A nil result without an error means that the answer
// comes later.
func (s *server) dispatch(ctx context.Context, c *call, m message) (object, *rpcError) {
	var envelope struct {
		Meta requestMeta `json:"_meta"`
	}
	if len(m.Params) > 0 {
		if err := json.Unmarshal(m.Params, &envelope); err != nil {
			return nil, invalidParams("params must be an object, and params._meta as the specification describes it")
		}
	}
	c.meta = envelope.Meta
	c.modern = c.meta.Version != nil
	if c.modern {
		if *c.meta.Version != modernVersion {
			return nil, &rpcError{
				Code: codeUnsupportedVersion, Message: "Unsupported protocol version",
				Data: object{"supported": []string{modernVersion}, "requested": *c.meta.Version},
			}
		}
		if !isObject(c.meta.Capabilities) {
			return nil, invalidParams("_meta lacks " + metaCapabilities)
		}
		if level := c.meta.LogLevel; level != nil && !slices.Contains(logLevels, *level) {
			return nil, invalidParams(fmt.Sprintf("unknown log level %q in _meta", *level))
		}
		return s.dispatchModern(ctx, c, m)
	}
	if s.legacyVersion == "" && m.Method != "initialize" && m.Method != "ping" {
		return nil, invalidParams("_meta lacks " + metaVersion + ", and no initialize came before")
	}
	return s.dispatchLegacy(ctx, c, m)
}

func (s *server) dispatchModern(ctx context.Context, c *call, m message) (object, *rpcError) {
	switch m.Method {
	case "server/discover":
		return cacheable(object{
			"supportedVersions": []string{modernVersion},
			"capabilities":      capabilities(),
			"instructions":      instructions,
		}, 3_600_000), nil
	case "subscriptions/listen":
		return nil, s.listen(c, m.Params)
	case "tools/list", "prompts/list", "resources/templates/list":
		result, err := s.dispatchCommon(ctx, c, m)
		if err != nil {
			return nil, err
		}
		return cacheable(result, 3_600_000), nil // these never change
	case "resources/list", "resources/read":
		result, err := s.dispatchCommon(ctx, c, m)
		if err != nil {
			return nil, err
		}
		return cacheable(result, 0), nil
	default:
		return s.dispatchCommon(ctx, c, m)
	}
}

func (s *server) dispatchLegacy(ctx context.Context, c *call, m message) (object, *rpcError) {
	switch m.Method {
	case "initialize":
		return s.initialize(m.Params)
	case "ping":
		return object{}, nil
	case "logging/setLevel":
		var params struct {
			Level string `json:"level"`
		}
		if err := json.Unmarshal(m.Params, &params); err != nil || !slices.Contains(logLevels, params.Level) {
			return nil, invalidParams(fmt.Sprintf("unknown log level %q", params.Level))
		}
		s.legacyLevel = params.Level
		return object{}, nil
	case "resources/subscribe", "resources/unsubscribe":
		var params struct {
			URI string `json:"uri"`
		}
		if err := json.Unmarshal(m.Params, &params); err != nil || params.URI == "" {
			return nil, invalidParams("uri is missing")
		}
		s.watched = slices.DeleteFunc(s.watched, func(uri string) bool { return uri == params.URI })
		if m.Method == "resources/subscribe" {
			s.watched = append(s.watched, params.URI)
		}
		return object{}, nil
	default:
		return s.dispatchCommon(ctx, c, m)
	}
}

// dispatchCommon runs the methods that both eras have in the same form.
func (s *server) dispatchCommon(ctx context.Context, c *call, m message) (object, *rpcError) {
	switch m.Method {
	case "tools/list":
		return object{"tools": toolList()}, nil
	case "tools/call":
		return s.callTool(ctx, c, m.Params)
	case "resources/list":
		return object{"resources": s.notes.resources()}, nil
	case "resources/templates/list":
		return object{"resourceTemplates": resourceTemplates()}, nil
	case "resources/read":
		return s.readResource(c, m.Params)
	case "prompts/list":
		return object{"prompts": promptList()}, nil
	case "prompts/get":
		return s.getPrompt(m.Params)
	case "completion/complete":
		return s.complete(m.Params)
	default:
		return nil, &rpcError{Code: codeMethodNotFound, Message: fmt.Sprintf("unknown method %q", m.Method)}
	}
}

func (s *server) initialize(raw json.RawMessage) (object, *rpcError) {
	var params struct {
		ProtocolVersion string `json:"protocolVersion"`
	}
	if err := json.Unmarshal(raw, &params); err != nil || params.ProtocolVersion == "" {
		return nil, invalidParams("initialize needs a protocolVersion")
	}
	s.legacyVersion = legacyVersions[0]
	if slices.Contains(legacyVersions, params.ProtocolVersion) {
		s.legacyVersion = params.ProtocolVersion
	}
	return object{
		"protocolVersion": s.legacyVersion,
		"capabilities":    capabilities(),
		"serverInfo":      serverInfo(),
		"instructions":    instructions,
	}, nil
}

func capabilities() object {
	return object{
		"tools":       object{},
		"resources":   object{"subscribe": true, "listChanged": true},
		"prompts":     object{},
		"completions": object{},
		"logging":     object{},
	}
}

// cacheable adds the hints that 2026-07-28 demands on lists and reads. Notes are the client's own, so nothing is public.
func cacheable(result object, ttlMs int) object {
	result["ttlMs"] = ttlMs
	result["cacheScope"] = "private"
	return result
}

func isObject(raw json.RawMessage) bool {
	var o map[string]json.RawMessage
	return len(raw) > 0 && json.Unmarshal(raw, &o) == nil && o != nil
}

// logLevels are the RFC 5424 names, least severe first.
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// log sends a log message for c where its client asked for that level: per request in the modern era, per connection
// in the legacy one.
func (s *server) log(c *call, level, text string) {
	wanted := s.legacyLevel
	if c.modern {
		wanted = ""
		if c.meta.LogLevel != nil {
			wanted = *c.meta.LogLevel
		}
	}
	if wanted == "" || slices.Index(logLevels, level) < slices.Index(logLevels, wanted) {
		return
	}
	s.notify("notifications/message", object{"level": level, "logger": "demo", "data": text})
}
