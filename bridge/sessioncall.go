package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"mcpd/bridge/jsonrpc"
)

// sessionCall is one request of a session's client that goes to the server. It
// belongs to the session and not to the HTTP request that brought it: to a
// legacy client, that its connection breaks cancels nothing.
type sessionCall struct {
	s      *session
	id     []byte // the client's own, raw JSON
	method string
	name   string // params.name or params.uri where the method has one
	body   []byte // the request with the session's metadata in it
	msg    jsonrpc.Message
	begin  time.Time

	out *sessionReply
	// inBatch says that the answer shares its HTTP response with others, so that
	// an error is one answer among them.
	inBatch bool

	ctx    context.Context
	cancel context.CancelCauseFunc

	final *inbound // the last answer of the server
}

// sessionReply is the HTTP response that calls write to: one, or all of a batch.
type sessionReply struct {
	box *mailbox
	sse bool // whether the client takes events, so that it can be asked
	// gone is closed when the HTTP request is over.
	gone     chan struct{}
	goneOnce sync.Once
}

func (s *session) newReply(sse bool) *sessionReply {
	return &sessionReply{box: newMailbox(s.u.limits.Load().StreamBufferBytes), sse: sse, gone: make(chan struct{})}
}

// leave tells the calls that nobody reads any more.
func (r *sessionReply) leave() {
	r.box.end(errClientGone)
	r.goneOnce.Do(func() { close(r.gone) })
}

// start begins a call. What it has to say comes through reply.
func (s *session) start(in *incoming, reply *sessionReply, inBatch bool) error {
	data, m := in.data(), &in.msg
	if t := m.Meta.ProgressToken; t.Present() && !jsonrpc.ValidID(t.Of(data)) {
		return asLegacy(invalidParams("params._meta.progressToken must be a string or an integer"))
	}
	if m.Meta.ProtocolVersion.Present() {
		return asLegacy(faultf(http.StatusOK, codeInvalidRequest,
			"a request that names its protocol revision in params._meta needs no session: it belongs to /servers/%s/mcp", s.u.name))
	}
	c := &sessionCall{
		s: s, id: bytes.Clone(in.id), method: in.method, begin: time.Now(), out: reply, inBatch: inBatch,
	}
	switch in.method {
	case methodToolsCall, methodPromptsGet:
		c.name, _ = jsonrpc.Unquote(data, m.Param.Name.Value)
	case methodResourcesRead:
		c.name, _ = jsonrpc.Unquote(data, m.Param.URI.Value)
	}
	s.mu.Lock()
	severity := s.severity
	s.mu.Unlock()
	members := bytes.Clone(s.hello.meta)
	if reply.sse {
		members = append(members, `,"`+metaLogLevel+`":"`+logLevels()[severity]+`"`...)
	}
	c.body = jsonrpc.AppendEdited(nil, data, addMeta(data, m, members,
		m.Meta.ClientCapabilities, m.Meta.ClientInfo, m.Meta.LogLevel)...)
	if err := jsonrpc.Scan(c.body, &c.msg); err != nil {
		return faultOfScan(err)
	}
	c.ctx, c.cancel = context.WithCancelCause(s.ctx)
	if err := s.register(c); err != nil {
		c.cancel(nil)
		return err
	}
	if !s.u.spawn(c.run) {
		s.forget(c)
		return unavailable(time.Second, "server %q is being stopped or removed", s.u.name)
	}
	return nil
}

// register notes that a call is in flight.
func (s *session) register(c *sessionCall) error {
	most := s.u.limits.Load().MaxInFlightPerPrincipal
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
		return errSessionOver(s)
	case s.calls[string(c.id)] != nil:
		return asLegacy(faultf(http.StatusOK, codeInvalidRequest, "a request with the id %s is in flight already", c.id))
	case len(s.calls) >= most:
		return unavailable(time.Second, "the session already has %d requests in flight at server %q (max_in_flight_per_principal)", most, s.u.name)
	}
	s.calls[string(c.id)] = c
	s.active++
	return nil
}

func (s *session) forget(c *sessionCall) {
	c.cancel(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, string(c.id))
	s.active--
	s.lastUsed = time.Now()
}

// run carries the call to its end. The Upstream owns its goroutine.
func (c *sessionCall) run() {
	err := c.carry()
	c.s.forget(c)
	switch {
	case err == nil:
		if !c.out.box.put(c.final) {
			c.final.release()
		}
	case c.inBatch:
		c.out.box.put(newShared(appendFault(nil, c.id, faultOf(c.s.u.name, err))))
	default:
		c.out.box.end(err)
	}
}

// mostRounds bounds how often a server may ask in the course of one request.
const mostRounds = 100

// carry makes the request, and makes it again with the client's answers as long
// as the server asks (basic/patterns/mrtr).
func (c *sessionCall) carry() error {
	pause := firstPause
	var responses, state []byte
	for range mostRounds {
		if err := c.exchange(responses, state); err != nil {
			return c.why(err)
		}
		got := c.final
		if got.msg.Kind != jsonrpc.Result || !jsonrpc.EqualString(got.data, got.msg.Res.ResultType.Value, "input_required") {
			return nil
		}
		if total := c.s.u.limits.Load().MaxRequestTime; time.Since(c.begin) >= total {
			return &timeoutError{after: total, total: true}
		}
		asked := jsonrpc.Lookup(got.data, got.msg.Result.Value, "inputRequests")
		state = jsonrpc.Lookup(got.data, got.msg.Result.Value, "requestState").Of(got.data)
		var err error
		if asked.Present() {
			responses, err = c.ask(got.data, asked.Value, state)
		} else {
			// It only wants to be asked again, which must not become a busy loop.
			responses, err = nil, wait(c.ctx, pause)
			pause = min(2*pause, longestPause)
		}
		if err != nil {
			err = c.why(err)
			c.abandon(state, err.Error())
			return err
		}
	}
	return asLegacy(faultf(http.StatusOK, codeInvalidRequest, "server %q asked more than %d times in the course of one request", c.s.u.name, mostRounds))
}

// why says for which reason a call came to nothing, as its client is told.
func (c *sessionCall) why(err error) error {
	if c.ctx.Err() != nil {
		switch cause := context.Cause(c.ctx); {
		case errors.Is(cause, errCancelled):
			return errCancelled
		case errors.Is(cause, ErrStopping):
		default:
			return errSessionOver(c.s)
		}
	}
	return toLegacyFault(faultOf(c.s.u.name, err))
}

// toLegacyFault keeps the statuses that speak of the server's state; to legacy
// clients, any of the 4xx would speak of the transport or of a lost session.
func toLegacyFault(f *Fault) *Fault {
	if f.Status >= 400 && f.Status < 500 {
		return asLegacy(f)
	}
	return f
}

// exchange makes the request once, as a modern client of the server.
func (c *sessionCall) exchange(responses, state []byte) error {
	in, err := c.request(responses, state)
	if err != nil {
		return err
	}
	defer in.body.release()
	c.final.release()
	c.final = nil
	err = c.s.u.call(&response{sse: c.out.sse, sink: c.take}, in)
	if err == nil && c.final == nil {
		err = errors.New("it was answered with nothing")
	}
	return err
}

// request makes the request as it goes to the server.
func (c *sessionCall) request(responses, state []byte) (*incoming, error) {
	var members []byte
	if responses != nil {
		members = append(append(members, `"inputResponses":`...), responses...)
	}
	if state != nil {
		if members != nil {
			members = append(members, ',')
		}
		members = append(append(members, `"requestState":`...), state...)
	}
	// What the client itself wrote there has no meaning in its revision.
	edits := jsonrpc.EditMembers(c.body, c.msg.Params.Value, members, c.msg.Param.InputResponses, c.msg.Param.RequestState)
	in := &incoming{
		http:      (&http.Request{Header: http.Header{}}).WithContext(c.ctx),
		principal: c.s.principal, method: c.method, name: c.name, era: EraModern, inSession: true,
		body: newBuffer(len(c.body) + len(members)),
	}
	in.body.b = jsonrpc.AppendEdited(in.body.b, c.body, edits...)
	if err := jsonrpc.Scan(in.data(), &in.msg); err != nil {
		in.body.release()
		return nil, faultOfScan(err)
	}
	in.id = in.msg.ID.Of(in.data())
	return in, nil
}

// sessionGrace is what a session's question may take longer at the server than
// at the client, so that its answer, or that there is none, is not too late.
const sessionGrace = 10 * time.Second

// patience is how long a legacy server's question about a request may be open.
func (in *incoming) patience(limits *Limits) time.Duration {
	if in.inSession {
		return limits.QuestionTimeout + sessionGrace
	}
	return limits.QuestionTimeout
}

// asking finds the request of a legacy server that waits for the answers that a
// requestState belongs to; nil where none does.
func (c *sessionCall) asking(state []byte) *asking {
	if state == nil {
		return nil
	}
	in, err := c.request(nil, state)
	if err != nil {
		return nil
	}
	defer in.body.release()
	st := c.s.u.openState(in)
	if st == nil || st.check(in) != nil {
		return nil
	}
	return c.s.u.askings.byID(st.Call)
}

// dismiss tells a legacy server that one of its questions gets no answer. It
// reports false for a modern server, which cannot be told.
func (c *sessionCall) dismiss(state []byte, key, reason string) bool {
	a := c.asking(state)
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range a.open {
		if q.key == key {
			a.conn.dismiss(q.id, q.method, reason)
			return true
		}
	}
	return false
}

// abandon gives up what a legacy server still does for a call that is over.
func (c *sessionCall) abandon(state []byte, reason string) {
	a := c.asking(state)
	if a == nil {
		return
	}
	a.mu.Lock()
	p := a.parked
	a.mu.Unlock()
	if p != nil {
		a.giveUp(p, reason)
	}
}

// take gets what would be written to a modern client.
func (c *sessionCall) take(data []byte, edits []jsonrpc.Edit) error {
	size := len(data)
	for _, e := range edits {
		size += len(e.New)
	}
	got := newInbound()
	got.buf = newBuffer(size)
	got.buf.b = jsonrpc.AppendEdited(got.buf.b, data, edits...)
	got.data = got.buf.b
	if err := jsonrpc.Scan(got.data, &got.msg); err != nil {
		got.release()
		return fmt.Errorf("a message for the client cannot be read: %w", err)
	}
	switch got.msg.Kind {
	case jsonrpc.Result, jsonrpc.Error:
		c.final.release()
		c.final = got
	default:
		if !c.out.box.put(got) {
			got.release() // nobody reads any more; the call goes on
		}
	}
	return nil
}

// question is one request to a client.
type question struct {
	key    string // its name in inputRequests
	raw    []byte // the same as the server spelled it
	id     uint64
	method string
	answer chan *incoming // holds one
}

// ask puts a server's questions to the client, all at once, and waits for the
// answers. It returns inputResponses.
func (c *sessionCall) ask(data []byte, requests jsonrpc.Span, state []byte) (responses []byte, err error) {
	if !isObject(data, requests) {
		return nil, faultf(http.StatusBadGateway, CodeServerFault, "server %q needs input but does not say which", c.s.u.name)
	}
	var (
		open  []*question
		lines []*inbound
	)
	defer func() { c.s.withdraw(open) }()
	for name, member := range jsonrpc.Members(data, requests) {
		if len(open) >= mostQuestions {
			return nil, faultf(http.StatusBadGateway, CodeServerFault, "server %q asks more than %d questions at once", c.s.u.name, mostQuestions)
		}
		q, line, err := c.question(data, name, member)
		if q != nil {
			open = append(open, q)
		}
		if err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	if !c.out.sse {
		return nil, faultf(http.StatusOK, codeInvalidRequest,
			"server %q needs input from the user to go on; to be asked, a client must accept text/event-stream", c.s.u.name)
	}
	heard := c.out.box.put(lines...)
	patience := c.s.u.limits.Load().QuestionTimeout
	timer := time.NewTimer(patience)
	defer timer.Stop()
	responses = append(responses, '{')
	for _, q := range open {
		var text []byte
		var reason string
		if !heard {
			reason = "the client disconnected"
		} else {
			select {
			case in := <-q.answer:
				text, reason = q.read(in.data(), &in.msg)
			case <-timer.C:
				timer.Reset(0) // nor do the others get any longer
				reason = fmt.Sprintf("the client did not answer within question_timeout (%v)", patience)
				c.out.box.put(cancelledNotice(q.id, reason))
			case <-c.out.gone:
				heard, reason = false, "the client disconnected"
			case <-c.s.closing:
				heard, reason = false, ErrStopping.Error()
				if c.s.ctx.Err() != nil {
					<-c.ctx.Done() // the session is over, and so is the call in a moment
				} else {
					c.out.box.put(cancelledNotice(q.id, reason))
				}
			case <-c.ctx.Done():
			}
		}
		if c.ctx.Err() != nil {
			return nil, c.ctx.Err()
		}
		switch {
		case text != nil:
		case q.method == methodElicit:
			text = []byte(`{"action":"cancel"}`) // as if the user had looked away
		case c.dismiss(state, q.key, reason):
			continue // the server knows, and goes on without
		default:
			return nil, asLegacy(faultf(http.StatusOK, codeInvalidRequest, "server %q needs %s to go on: %s", c.s.u.name, q.method, reason))
		}
		if len(responses) > 1 {
			responses = append(responses, ',')
		}
		responses = append(append(append(responses, q.raw...), ':'), text...)
	}
	return append(responses, '}'), nil
}

// question makes the request to the client for one of the inputRequests, if the
// client declared that it can be asked that.
func (c *sessionCall) question(data []byte, name string, member jsonrpc.Member) (*question, *inbound, error) {
	method, err := jsonrpc.Unquote(data, jsonrpc.Lookup(data, member.Value, "method").Value)
	if err != nil {
		return nil, nil, faultf(http.StatusBadGateway, CodeServerFault, "server %q asks without saying what", c.s.u.name)
	}
	params := jsonrpc.Lookup(data, member.Value, "params")
	if !isQuestion(method) {
		return nil, nil, faultf(http.StatusBadGateway, CodeServerFault, "server %q asks for %s, which no client knows", c.s.u.name, clip(method))
	}
	declared := c.s.hello.capabilities
	if needs := needed(method, data, params.Value); !needs.in(declared, jsonrpc.Span{End: len(declared)}) {
		return nil, nil, asLegacy(needs.missing(c.s.u.name))
	}
	q := &question{key: name, raw: member.Key.Of(data), method: method, answer: make(chan *incoming, 1)}
	c.s.mu.Lock()
	c.s.lastAsked++
	q.id = c.s.lastAsked
	c.s.asked[q.id] = q
	c.s.mu.Unlock()
	b := strconv.AppendUint([]byte(`{"jsonrpc":"2.0","id":`), q.id, 10)
	b = jsonrpc.AppendQuote(append(b, `,"method":`...), method)
	if isObject(data, params.Value) {
		b = append(b, `,"params":`...)
		if jsonrpc.EqualString(data, jsonrpc.Lookup(data, params.Value, "mode").Value, "url") &&
			!jsonrpc.Lookup(data, params.Value, "elicitationId").Present() {
			// Legacy revisions need a name for it, which is used nowhere else.
			name := fmt.Appendf(nil, `"elicitationId":"%d"`, q.id)
			b = jsonrpc.AppendEdited(b, params.Of(data), jsonrpc.EditMembers(params.Of(data), jsonrpc.Span{End: params.Value.Len()}, name)...)
		} else {
			b = append(b, params.Of(data)...)
		}
	}
	line := &inbound{data: append(b, '}')}
	if err := jsonrpc.Scan(line.data, &line.msg); err != nil {
		return q, nil, faultf(http.StatusBadGateway, CodeServerFault, "server %q asks what cannot be read: %v", c.s.u.name, err)
	}
	return q, line, nil
}

// read takes the result out of a client's answer, or says why there is none.
func (q *question) read(data []byte, m *jsonrpc.Message) (result []byte, reason string) {
	if m.Kind == jsonrpc.Error {
		text, _ := jsonrpc.Unquote(data, m.Err.Message.Value)
		return nil, "the client answered with the error " + clip(text)
	}
	if why := notAnAnswer(q.method, data, m.Result.Value); why != "" {
		return nil, "the client's answer is none: " + why
	}
	return m.Result.Of(data), ""
}

// withdraw forgets questions: what still comes for them is late.
func (s *session) withdraw(questions []*question) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range questions {
		delete(s.asked, q.id)
	}
}

func cancelledNotice(id uint64, reason string) *inbound {
	b := strconv.AppendUint([]byte(`{"jsonrpc":"2.0","method":"`+notifyCancelled+`","params":{"requestId":`), id, 10)
	b = jsonrpc.AppendQuote(append(b, `,"reason":`...), reason)
	return newShared(append(b, "}}"...))
}

// answered takes a client's answer to a question. One that comes too late is
// dropped.
func (s *session) answered(in *incoming) error {
	id, ok := upstreamID(in.data(), in.msg.ID.Value)
	s.mu.Lock()
	q := s.asked[id]
	delete(s.asked, id)
	known := ok && id > 0 && id <= s.lastAsked
	s.mu.Unlock()
	switch {
	case !known:
		return faultf(http.StatusBadRequest, codeInvalidRequest, "nothing was asked that this could be the answer to")
	case q != nil:
		q.answer <- detach(in) // it holds one, and only one answer gets here
	}
	return nil
}

// cancelCall ends the request that the client cancels.
func (s *session) cancelCall(id []byte) {
	s.mu.Lock()
	c := s.calls[string(id)]
	s.mu.Unlock()
	if c != nil {
		c.cancel(errCancelled)
	}
}
