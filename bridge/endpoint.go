package bridge

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpd/bridge/jsonrpc"
	"mcpd/security"
)

// Endpoint serves POST /servers/NAME/mcp for all servers, behind the gate.
type Endpoint struct {
	logger    *slog.Logger
	maxBody   atomic.Int64
	upstreams atomic.Pointer[map[string]*Upstream]
	handlings sync.Pool // of *handling
}

// handling is what serving one POST takes. It goes back to the pool with the
// end of the request, so nothing may keep it longer: detach makes a copy.
type handling struct {
	in incoming
	rs response
}

// renew makes h what it was when it was new, but for its scratch space.
func (h *handling) renew() {
	h.in.msg.Reset()
	h.in = incoming{msg: h.in.msg}
	h.rs = response{timer: h.rs.timer}
}

// NewEndpoint makes an Endpoint without servers. maxBody is in bytes.
func NewEndpoint(maxBody int64, logger *slog.Logger) *Endpoint {
	e := &Endpoint{logger: logger}
	e.SetMaxRequestBytes(maxBody)
	e.SetUpstreams(nil)
	return e
}

// SetUpstreams replaces the servers, by name. The map must not change after.
func (e *Endpoint) SetUpstreams(upstreams map[string]*Upstream) { e.upstreams.Store(&upstreams) }

// SetMaxRequestBytes replaces the bound on a request's body.
func (e *Endpoint) SetMaxRequestBytes(n int64) { e.maxBody.Store(n) }

// Handler serves the endpoint of one server, configured or not: the name is
// looked up when a request comes, after the gate has let it through.
func (e *Endpoint) Handler(server string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e.serve(w, r, server) })
}

// incoming is one POST, read and scanned.
type incoming struct {
	http      *http.Request
	principal *security.Principal
	body      *buffer
	msg       jsonrpc.Message
	id        []byte // raw JSON; nil for a notification
	method    string
	name      string // params.name or params.uri where the method has one
	era       Era    // the client's
	// inSession says that the session of a legacy client makes the request, which
	// sends no headers.
	inSession bool
	slot      func() // gives back what admit took; nil without

	// Scratch space of upward and of answer.
	idUpstream [20]byte
	edits      [4]jsonrpc.Edit
}

func (in *incoming) data() []byte { return in.body.b }

// readMethod reads the method of a request or notification.
func (in *incoming) readMethod() (err error) {
	if in.msg.Method.Present() {
		if in.method, err = jsonrpc.Unquote(in.data(), in.msg.Method.Value); err != nil {
			return faultf(http.StatusBadRequest, codeInvalidRequest, "the method cannot be read: %v", err)
		}
	}
	return nil
}

func (e *Endpoint) serve(w http.ResponseWriter, r *http.Request, server string) {
	h, ok := e.handlings.Get().(*handling)
	if !ok {
		h = new(handling)
	}
	rs, in := &h.rs, &h.in
	rs.w, rs.rc = w, http.NewResponseController(w)
	in.http, in.body = r, newBuffer(int(min(r.ContentLength, announcedUpTo)+1))
	defer func() {
		in.body.release()
		if rs.streaming {
			rs.finish()
		}
		h.renew()
		e.handlings.Put(h)
	}()

	_ = rs.rc.SetReadDeadline(time.Now().Add(bodyReadTimeout))
	u, err := e.admit(rs, in, server)
	if err == nil {
		err = u.serve(rs, in)
	}
	e.conclude(rs, in, server, u, err)
}

// conclude answers with an error where serving a request ended with one. u is
// nil for a server that there is not.
func (e *Endpoint) conclude(rs *response, in *incoming, server string, u *Upstream, err error) {
	switch {
	case err == nil:
	case errors.Is(err, errClientGone):
		// Nobody is there to be told.
	default:
		fault := faultOf(server, err)
		if u != nil && fault.Code != CodeCancelled {
			u.failures.Add(1)
		}
		if fault.Status == http.StatusInternalServerError {
			e.logger.Error("a request failed", "server", server, "method", clip(in.method), "error", err)
		}
		rs.fault(in.id, fault)
	}
}

// errClientGone says that the client closed its stream: nothing is answered.
var errClientGone = errors.New("the client disconnected")

// ErrStopping is the cause with which the daemon cancels the context of the
// requests that it gives up when it stops. Their clients are still there.
var ErrStopping = errors.New("mcpd is being stopped")

// goneOr says why the context of a request has ended: its client has left, or
// the daemon gives the request up, of which the server may have seen something.
func goneOr(ctx context.Context, sent bool) error {
	switch {
	case !errors.Is(context.Cause(ctx), ErrStopping):
		return errClientGone
	case sent:
		return &lostError{cause: ErrStopping, sent: true}
	default:
		return unavailable(time.Second, "%v; the request was not begun", ErrStopping)
	}
}

// admit runs the checks in their fixed order up to the message itself.
func (e *Endpoint) admit(rs *response, in *incoming, server string) (*Upstream, error) {
	p, ok := security.PrincipalFrom(in.http.Context())
	if !ok {
		// Only a wiring mistake gets here without the gate.
		return nil, faultf(http.StatusUnauthorized, codeInvalidRequest, "not authenticated")
	}
	in.principal = p
	u := (*e.upstreams.Load())[server]
	if u == nil {
		if e.readBody(rs, in) == nil && jsonrpc.Scan(in.data(), &in.msg) == nil && in.msg.Kind == jsonrpc.Request {
			in.id = in.msg.ID.Of(in.data()) // an error carries its request's id where there is one
		}
		return nil, e.unknownServer(server, p)
	}
	if !isJSON(in.http.Header) {
		return u, faultf(http.StatusUnsupportedMediaType, CodeMediaType,
			"Content-Type must be application/json in UTF-8, without a Content-Encoding")
	}
	rs.json, rs.sse = accepted(in.http.Header)
	if !rs.json && !rs.sse {
		return u, faultf(http.StatusNotAcceptable, CodeNotAcceptable,
			"Accept must allow application/json or text/event-stream")
	}
	if err := e.readBody(rs, in); err != nil {
		return u, err
	}
	err := jsonrpc.Scan(in.data(), &in.msg)
	if !in.msg.Result.Present() && !in.msg.Error.Present() {
		in.id = in.msg.ID.Of(in.data()) // else it is no id of the client's own
	}
	if err != nil {
		return u, faultOfScan(err)
	}
	switch in.msg.Kind {
	case jsonrpc.Request, jsonrpc.Notification:
	default:
		return u, faultf(http.StatusBadRequest, codeInvalidRequest,
			"a client sends requests and notifications; a response has no place in a POST")
	}
	in.method, err = textOf(in, in.msg.Method, in.http.Header[headerMethod])
	if err != nil {
		return u, faultf(http.StatusBadRequest, codeInvalidRequest, "the method cannot be read: %v", err)
	}
	return u, nil
}

// unknownServer says which servers there are for a principal.
func (e *Endpoint) unknownServer(server string, p *security.Principal) error {
	known := slices.Sorted(maps.Keys(*e.upstreams.Load()))
	return errNoServer(server, slices.DeleteFunc(known, func(name string) bool { return !p.MayUse(name) }))
}

// textOf is the text of a member, which is a string. Where a header has the
// same text, that is taken: it exists already.
func textOf(in *incoming, m jsonrpc.Member, values []string) (string, error) {
	if len(values) == 1 && jsonrpc.EqualString(in.data(), m.Value, values[0]) {
		return values[0], nil
	}
	return jsonrpc.Unquote(in.data(), m.Value)
}

// announcedUpTo is up to which length a body gets its memory at once, in bytes.
// What a client announces beyond is not yet memory that it paid for.
const announcedUpTo = 1<<20 + 8<<10 - 1

// readBody reads the whole body, bounded in size. It lifts the bound in time
// only when nothing of the body is left: net/http itself reads on where a
// handler did not, and a client that sends no more would hold it up for ever.
func (e *Endpoint) readBody(rs *response, in *incoming) error {
	most := e.maxBody.Load()
	r := in.http
	tooLarge := func() error {
		return faultf(http.StatusRequestEntityTooLarge, CodeTooLarge,
			"the request body is over security.max_request_bytes (%d bytes)", most)
	}
	if r.ContentLength > most {
		return tooLarge()
	}
	for {
		in.body.grow(1)
		b := in.body.b
		n, err := r.Body.Read(b[len(b):cap(b)])
		in.body.b = b[:len(b)+n]
		if int64(len(in.body.b)) > most {
			return tooLarge()
		}
		if err == io.EOF {
			_ = rs.rc.SetReadDeadline(time.Time{})
			return nil
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			return faultf(http.StatusBadRequest, codeInvalidRequest, "the request body did not come within %v", bodyReadTimeout)
		case r.Context().Err() != nil:
			return goneOr(r.Context(), false)
		default:
			return faultf(http.StatusBadRequest, codeInvalidRequest, "the request body could not be read: %v", err)
		}
	}
}

func isJSON(h http.Header) bool {
	if enc := h.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return false
	}
	values := h["Content-Type"]
	if len(values) != 1 {
		return false
	}
	media, params, _ := strings.Cut(values[0], ";")
	return strings.EqualFold(strings.TrimSpace(media), "application/json") && isUTF8(params)
}

// isUTF8 says whether a media type's parameters name no other charset: JSON
// between systems is UTF-8 (RFC 8259, section 8.1), of which US-ASCII is a part.
func isUTF8(params string) bool {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(param, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "charset") {
			continue
		}
		switch strings.ToLower(strings.Trim(strings.TrimSpace(value), `"`)) {
		case "utf-8", "utf8", "us-ascii":
		default:
			return false
		}
	}
	return true
}

// accepted reads which of the two media types a client takes. No Accept header
// means any. A media range that names a type decides before one that covers it
// (RFC 9110, section 12.5.1).
func accepted(h http.Header) (json, sse bool) {
	values := h["Accept"]
	if len(values) == 0 || len(values) == 1 && values[0] == "application/json, text/event-stream" {
		return true, true
	}
	var jsonRange, sseRange mediaRange
	for _, value := range values {
		for part := range strings.SplitSeq(value, ",") {
			media, params, _ := strings.Cut(part, ";")
			taken := !refusedByWeight(params)
			switch strings.ToLower(strings.TrimSpace(media)) {
			case "*/*":
				jsonRange.consider(1, taken)
				sseRange.consider(1, taken)
			case "application/*":
				jsonRange.consider(2, taken)
			case "text/*":
				sseRange.consider(2, taken)
			case "application/json":
				jsonRange.consider(3, taken)
			case "text/event-stream":
				sseRange.consider(3, taken)
			}
		}
	}
	return jsonRange.taken, sseRange.taken
}

// mediaRange is what the most specific range seen so far says of a media type.
type mediaRange struct {
	precision int
	taken     bool
}

func (r *mediaRange) consider(precision int, taken bool) {
	switch {
	case precision > r.precision:
		r.precision, r.taken = precision, taken
	case precision == r.precision:
		r.taken = r.taken || taken
	}
}

// refusedByWeight reports a quality of zero among a media range's parameters.
func refusedByWeight(params string) bool {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(param), "=")
		if strings.EqualFold(strings.TrimSpace(name), "q") {
			value = strings.TrimSpace(value)
			return value != "" && strings.Trim(value, "0.") == ""
		}
	}
	return false
}
