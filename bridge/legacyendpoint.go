package bridge

import (
	"bytes"
	"errors"
	"net/http"
	"time"

	"mcpd/bridge/jsonrpc"
	"mcpd/security"
)

// headerSessionID is the header that names a session in the legacy revisions.
const headerSessionID = "Mcp-Session-Id"

// version20250326 is the one revision that has batches.
const version20250326 = "2025-03-26"

// mostInBatch bounds a batch, in messages.
const mostInBatch = 100

// SessionMethods are the HTTP methods of the endpoint with sessions.
func SessionMethods() []string { return []string{http.MethodPost, http.MethodGet, http.MethodDelete} }

// SessionHandler serves the endpoint with sessions of one server, configured or
// not, for clients of legacy revisions.
func (e *Endpoint) SessionHandler(server string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e.serveSessions(w, r, server) })
}

func (e *Endpoint) serveSessions(w http.ResponseWriter, r *http.Request, server string) {
	if h := w.Header(); h.Get("Access-Control-Allow-Origin") != "" {
		h.Add("Access-Control-Expose-Headers", headerSessionID)
	}
	rs := &response{w: w, rc: http.NewResponseController(w)}
	in := &incoming{http: r, body: newBuffer(0), era: EraLegacy}
	defer func() {
		in.body.release()
		if rs.streaming {
			rs.finish()
		}
	}()
	if r.Method == http.MethodPost {
		_ = rs.rc.SetReadDeadline(time.Now().Add(bodyReadTimeout))
	}
	u, err := e.sessionServer(in, server)
	if err != nil && in.principal != nil && r.Method == http.MethodPost && e.readBody(rs, in) == nil &&
		jsonrpc.Scan(in.data(), &in.msg) == nil && in.msg.Kind == jsonrpc.Request {
		in.id = in.msg.ID.Of(in.data()) // an error carries its request's id where there is one
	}
	if err == nil {
		switch r.Method {
		case http.MethodPost:
			err = e.postToSession(rs, in, u)
		case http.MethodGet:
			err = u.sessionStream(rs, in)
		case http.MethodDelete:
			err = u.deleteSession(rs, in)
		default: // HEAD, which the gate takes for a GET
			err = faultf(http.StatusMethodNotAllowed, codeInvalidRequest, "the endpoint takes POST, GET and DELETE")
		}
	}
	e.conclude(rs, in, server, u, err)
}

// sessionServer finds the server, if it has sessions.
func (e *Endpoint) sessionServer(in *incoming, server string) (*Upstream, error) {
	p, ok := security.PrincipalFrom(in.http.Context())
	if !ok {
		// Only a wiring mistake gets here without the gate.
		return nil, faultf(http.StatusUnauthorized, codeInvalidRequest, "not authenticated")
	}
	in.principal = p
	u := (*e.upstreams.Load())[server]
	if u == nil {
		return nil, e.unknownServer(server, p)
	}
	return u, u.sessions.enabled()
}

// sessionOf finds the session that a request names. It is nil for a request
// that names none.
func (u *Upstream) sessionOf(in *incoming) (*session, error) {
	switch values := in.http.Header[headerSessionID]; len(values) {
	case 0:
		return nil, nil
	case 1:
		return u.sessions.find(values[0], in.principal)
	default:
		return nil, faultf(http.StatusBadRequest, codeInvalidRequest, "the %s header is there %d times", headerSessionID, len(values))
	}
}

// needSession is sessionOf for what makes no sense without a session.
func (u *Upstream) needSession(in *incoming) (*session, error) {
	s, err := u.sessionOf(in)
	if s == nil && err == nil {
		err = faultf(http.StatusBadRequest, codeInvalidRequest,
			"the %s header is required here; initialize without it begins a session", headerSessionID)
	}
	if err == nil {
		err = negotiable(in.http.Header)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (u *Upstream) deleteSession(rs *response, in *incoming) error {
	s, err := u.needSession(in)
	if err != nil {
		return err
	}
	u.sessions.end(s, errSessionDeleted)
	rs.w.WriteHeader(http.StatusNoContent)
	return nil
}

func (u *Upstream) sessionStream(rs *response, in *incoming) error {
	s, err := u.needSession(in)
	if err != nil {
		return err
	}
	if rs.json, rs.sse = accepted(in.http.Header); !rs.sse {
		return faultf(http.StatusNotAcceptable, CodeNotAcceptable, "a GET is answered with text/event-stream: Accept must allow it")
	}
	return s.serveStream(rs, in.http)
}

// postToSession answers one POST: a message, or a batch of them.
func (e *Endpoint) postToSession(rs *response, in *incoming, u *Upstream) error {
	if !isJSON(in.http.Header) {
		return faultf(http.StatusUnsupportedMediaType, CodeMediaType,
			"Content-Type must be application/json in UTF-8, without a Content-Encoding")
	}
	if rs.json, rs.sse = accepted(in.http.Header); !rs.json && !rs.sse {
		return faultf(http.StatusNotAcceptable, CodeNotAcceptable, "Accept must allow application/json or text/event-stream")
	}
	if err := e.readBody(rs, in); err != nil {
		return err
	}
	err := jsonrpc.Scan(in.data(), &in.msg)
	switch {
	case errors.Is(err, jsonrpc.ErrBatch):
		s, err := u.needSession(in)
		if err != nil {
			return err
		}
		defer s.use()()
		return s.batch(rs, in)
	case in.msg.Method.Present():
		in.id = in.msg.ID.Of(in.data()) // else it is no id of the client's own
	}
	if err != nil {
		return faultOfScan(err)
	}
	if err := in.readMethod(); err != nil {
		return err
	}
	if in.method == methodInitialize && in.msg.Kind == jsonrpc.Request {
		return u.beginSession(rs, in)
	}
	s, err := u.needSession(in)
	if err != nil {
		return err
	}
	defer s.use()()
	if in.msg.Kind != jsonrpc.Request {
		if err := s.tell(in); err != nil {
			return err
		}
		rs.w.WriteHeader(http.StatusAccepted)
		return nil
	}
	u.requests.Add(1)
	return s.serve(rs, in)
}

// beginSession answers initialize and begins a session.
func (u *Upstream) beginSession(rs *response, in *incoming) error {
	u.requests.Add(1)
	if len(in.http.Header[headerSessionID]) > 0 {
		if _, err := u.sessionOf(in); err != nil {
			return err
		}
		return asLegacy(faultf(http.StatusOK, codeInvalidRequest, "the session has begun already: initialize is sent without %s", headerSessionID))
	}
	if err := u.sessions.room(); err != nil {
		return err
	}
	result, version, err := u.handshake(in, sessionCapabilities)
	if err != nil {
		return err
	}
	id, err := u.sessions.open(in.principal, readHello(in, version))
	if err != nil {
		return err
	}
	u.logger.Debug("a session began", "protocol", version)
	rs.w.Header().Set(headerSessionID, id)
	return rs.result(in.id, result)
}

// tell takes a message of the client that wants no answer.
func (s *session) tell(in *incoming) error {
	if in.msg.Kind != jsonrpc.Notification {
		return s.answered(in)
	}
	switch {
	case in.method == notifyCancelled:
		s.cancelCall(in.msg.Param.RequestID.Of(in.data()))
		return nil
	case in.method == notifyProgress: // about what the client was asked; nobody waits for it
		return nil
	case in.msg.Meta.ProtocolVersion.Present():
		return faultf(http.StatusBadRequest, codeInvalidRequest, "a message that names its protocol revision in params._meta needs no session")
	}
	return s.u.passNotification(in)
}

// serve answers one request.
func (s *session) serve(rs *response, in *incoming) error {
	result, taken, err := s.direct(in)
	switch {
	case err != nil:
		return err
	case taken:
		return rs.result(in.id, result)
	}
	reply := s.newReply(rs.sse)
	defer reply.leave()
	if err := s.start(in, reply, false); err != nil {
		return err
	}
	p := pump{rs: rs, box: reply.box, begin: time.Now(), handle: func(got *inbound) (bool, error) {
		defer got.release()
		if got.msg.Kind == jsonrpc.Request || got.msg.Kind == jsonrpc.Notification {
			return false, rs.event(got.data, got.msg.HasNewline, nil)
		}
		return true, rs.message(http.StatusOK, got.data, got.msg.HasNewline, withoutModern(got))
	}}
	return p.run(in.http.Context())
}

// direct answers what is the session's own matter. It reports whether the
// request is one.
func (s *session) direct(in *incoming) (result []byte, taken bool, err error) {
	data, m := in.data(), &in.msg
	switch in.method {
	case methodPing:
	case methodInitialize:
		err = asLegacy(faultf(http.StatusOK, codeInvalidRequest, "the session has begun already"))
	case methodSetLevel:
		level, unreadable := jsonrpc.Unquote(data, m.Param.Level.Value)
		if unreadable != nil || logSeverity(level) < 0 {
			return nil, true, asLegacy(invalidParams("params.level is not a log level"))
		}
		s.mu.Lock()
		s.severity = logSeverity(level)
		s.mu.Unlock()
	case methodResourcesSubscribe, methodResourcesUnsubscribe:
		uri, unreadable := jsonrpc.Unquote(data, m.Param.URI.Value)
		if unreadable != nil || uri == "" {
			return nil, true, asLegacy(invalidParams("%s needs params.uri, a string", in.method))
		}
		if in.method == methodResourcesUnsubscribe {
			s.unsubscribe(uri)
		} else {
			err = s.subscribe(in.http.Context(), uri)
		}
	case methodListen, methodDiscover:
		err = asLegacy(faultf(http.StatusOK, codeMethodNotFound, "method not found: %s is not of protocol %s", in.method, s.hello.version))
	default:
		if isRemoved(in.method) {
			return nil, true, asLegacy(unknownMethod(in.method))
		}
		return nil, false, nil
	}
	return []byte(`{}`), true, err
}

// batch answers an array of messages (basic/transports of 2025-03-26). The
// answers are events, or one array where nothing comes before the last one.
func (s *session) batch(rs *response, in *incoming) error {
	if s.hello.version != version20250326 {
		return faultOfScan(jsonrpc.ErrBatch)
	}
	data := in.data()
	whole, err := jsonrpc.Validate(data)
	if err != nil {
		return faultOfScan(err)
	}
	var parts []*incoming
	for span := range jsonrpc.Elements(data, whole) {
		if len(parts) >= mostInBatch {
			return faultf(http.StatusBadRequest, codeInvalidRequest, "a batch holds %d messages at most", mostInBatch)
		}
		part := &incoming{http: in.http, principal: in.principal, era: EraLegacy, body: &buffer{b: bytes.Clone(span.Of(data))}}
		if err := jsonrpc.Scan(part.data(), &part.msg); err != nil {
			return faultOfScan(err)
		}
		if err := part.readMethod(); err != nil {
			return err
		}
		if part.msg.Kind == jsonrpc.Request {
			part.id = part.msg.ID.Of(part.data())
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return faultf(http.StatusBadRequest, codeInvalidRequest, "a batch must not be empty")
	}
	reply := s.newReply(rs.sse)
	defer reply.leave()
	expected := 0
	var refused error
	for _, part := range parts {
		if part.msg.Kind != jsonrpc.Request {
			if err := s.tell(part); err != nil && refused == nil {
				refused = err
			}
			continue
		}
		expected++
		s.u.requests.Add(1)
		result, taken, err := s.direct(part)
		if !taken && err == nil {
			err = s.start(part, reply, true)
		}
		switch {
		case err != nil:
			s.u.failures.Add(1)
			reply.box.put(newShared(appendFault(nil, part.id, faultOf(s.u.name, err))))
		case taken:
			reply.box.put(newShared(resultLine(part.id, result)))
		}
	}
	if expected == 0 {
		if refused != nil {
			return refused
		}
		rs.w.WriteHeader(http.StatusAccepted)
		return nil
	}
	b := batchReply{rs: rs, left: expected}
	p := pump{rs: rs, box: reply.box, begin: time.Now(), handle: func(got *inbound) (bool, error) {
		defer got.release()
		return b.take(got)
	}}
	return p.run(in.http.Context())
}

// batchReply gathers the answers of a batch into one array, until something
// needs a stream.
type batchReply struct {
	rs   *response
	left int
	each [][]byte // the answers so far, while there is no stream
}

func (b *batchReply) take(got *inbound) (last bool, err error) {
	rs := b.rs
	answer := got.msg.Kind == jsonrpc.Result || got.msg.Kind == jsonrpc.Error
	var edits []jsonrpc.Edit
	if answer {
		edits = withoutModern(got)
		b.left--
	}
	if answer && rs.json && !rs.streaming {
		b.each = append(b.each, jsonrpc.AppendEdited(nil, got.data, edits...))
		if b.left > 0 {
			return false, nil
		}
		array := append([]byte{'['}, bytes.Join(b.each, []byte{','})...)
		return true, rs.message(http.StatusOK, append(array, ']'), false, nil)
	}
	for _, earlier := range b.each {
		if err := rs.event(earlier, true, nil); err != nil {
			return false, err
		}
	}
	b.each = nil
	return answer && b.left == 0, rs.event(got.data, true, edits)
}

// withoutModern gives the edits that take out of an answer what legacy
// revisions do not know.
func withoutModern(got *inbound) []jsonrpc.Edit {
	m := &got.msg
	if !isObject(got.data, m.Result.Value) {
		return nil
	}
	return jsonrpc.RemoveMembers(got.data, m.Result.Value, m.Res.ResultType, m.Res.TTL, m.Res.CacheScope)
}
