package bridge

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"mcpd/bridge/jsonrpc"
	"mcpd/security"
)

// errStreamOver ends a session's stream: the session or the daemon ends, or
// the client has opened another one.
var errStreamOver = errors.New("the stream has ended")

// mostUnheard bounds what is kept for a client that has no stream open. Each
// thing that can change is kept once, so only a server that makes up URIs below
// those subscribed to gets there.
const mostUnheard = 2 * mostURIs

// serveStream answers the GET of a session with the stream of what the server
// tells without being asked. A second stream takes the place of the first one.
func (s *session) serveStream(rs *response, r *http.Request) error {
	release, err := s.u.admitListener()
	if err != nil {
		return err
	}
	defer release()
	// The server has to be up to tell anything; a lazy one is started.
	if _, err := s.u.acquire(r.Context()); err != nil {
		if r.Context().Err() != nil {
			return goneOr(r.Context(), false)
		}
		return err
	}
	box := newMailbox(s.u.limits.Load().StreamBufferBytes)
	if err := s.attach(box); err != nil {
		return err
	}
	defer s.detach(box)
	if err := rs.keepAlive(); err != nil { // so that the client sees that it is heard
		return err
	}
	revoked := func() bool { return !security.StillAccepted(r.Context()) }
	p := pump{rs: rs, box: box, revoked: revoked, handle: func(got *inbound) (bool, error) {
		if revoked() {
			return true, errRevoked
		}
		return false, rs.event(got.data, got.msg.HasNewline, toLegacy(got))
	}}
	err = p.run(r.Context())
	switch {
	case errors.Is(err, errRevoked):
		s.u.logger.Info("a session's stream was ended: its token is no longer good")
	case errors.Is(err, errSlowReader):
		s.u.logger.Warn("a session's stream was ended: its client reads too slowly")
	}
	return nil // the stream has begun, so its end is all that can be said
}

// attach makes box the session's stream and puts in what was not heard yet.
func (s *session) attach(box *mailbox) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.ctx.Err() != nil {
		return errSessionOver(s)
	}
	if s.stream != nil {
		s.stream.end(errStreamOver)
	}
	s.stream = box
	for _, in := range s.unheard {
		kept := *in // others read it as well
		kept.uncounted = true
		box.put(&kept)
	}
	s.unheard = nil
	if s.lists == nil {
		l := s.newListener()
		if err := s.u.subs.subscribe(l, listenRequest{filter: filter{tools: true, prompts: true, resources: true}}); err != nil {
			return err
		}
		s.lists = l
	}
	return nil
}

// detach ends a stream. What it did not carry waits for the next one.
func (s *session) detach(box *mailbox) {
	box.end(errStreamOver)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastUsed = time.Now()
	if s.stream == box {
		s.stream = nil
	}
	for {
		in, err := box.take()
		if in == nil || err != nil {
			return
		}
		s.keep(in)
	}
}

// newListener makes a listener whose messages the session's goroutine takes.
func (s *session) newListener() *listener {
	box := newMailbox(s.u.limits.Load().StreamBufferBytes)
	box.wake = s.wake
	return &listener{box: box}
}

// post hands something to the stream that is open, or keeps it; mu is held.
func (s *session) post(in *inbound) {
	if s.stream != nil && s.stream.put(in) {
		return
	}
	s.keep(in)
}

// keep remembers what no stream could carry; mu is held. Only that something
// changed is worth remembering, and that once.
func (s *session) keep(in *inbound) {
	method, err := jsonrpc.Unquote(in.data, in.msg.Method.Value)
	if err != nil || in.msg.Kind != jsonrpc.Notification || s.over {
		return
	}
	uri := in.msg.Param.URI.Of(in.data)
	same := func(o *inbound) bool {
		return jsonrpc.EqualString(o.data, o.msg.Method.Value, method) && string(o.msg.Param.URI.Of(o.data)) == string(uri)
	}
	if slices.ContainsFunc(s.unheard, same) {
		return
	}
	if len(s.unheard) >= mostUnheard {
		s.unheard = s.unheard[1:]
	}
	s.unheard = append(s.unheard, in)
}

// toLegacy gives the edits that make a subscription's message one of a
// revision that knows no subscriptions.
func toLegacy(got *inbound) []jsonrpc.Edit {
	m := &got.msg
	if m.Kind != jsonrpc.Notification || !m.Meta.SubscriptionID.Present() {
		return nil
	}
	return jsonrpc.RemoveMembers(got.data, m.Param.Meta.Value, m.Meta.SubscriptionID)
}

// resourceWatch is one resources/subscribe of a session.
type resourceWatch struct {
	listener *listener
	settled  chan struct{} // closed when the server has answered
	once     sync.Once
	refused  error // why it is no subscription; written before settled is closed
}

func (w *resourceWatch) settle(refused error) {
	w.once.Do(func() {
		w.refused = refused
		close(w.settled)
	})
}

// subscribe answers resources/subscribe when the server has.
func (s *session) subscribe(ctx context.Context, uri string) error {
	if _, err := s.u.acquire(ctx); err != nil {
		if ctx.Err() != nil {
			return goneOr(ctx, false)
		}
		return err
	}
	w, err := s.watch(uri)
	if err != nil {
		return err
	}
	select {
	case <-w.settled:
		return w.refused
	case <-s.ctx.Done():
		return errSessionOver(s)
	case <-ctx.Done():
		return goneOr(ctx, true)
	}
}

func (s *session) watch(uri string) (*resourceWatch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over:
		return nil, errSessionOver(s)
	case s.resources[uri] != nil:
		return s.resources[uri], nil
	case len(s.resources) >= mostURIs:
		return nil, asLegacy(invalidParams("the session is subscribed to %d resources already", mostURIs))
	}
	w := &resourceWatch{listener: s.newListener(), settled: make(chan struct{})}
	if err := s.u.subs.subscribe(w.listener, listenRequest{filter: filter{uris: []string{uri}}}); err != nil {
		return nil, err
	}
	s.resources[uri] = w
	return w, nil
}

func (s *session) unsubscribe(uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.resources[uri]; w != nil {
		delete(s.resources, uri)
		s.u.subs.unsubscribe(w.listener)
		w.settle(asLegacy(invalidParams("the subscription was taken back before the server answered")))
	}
}

// collect takes what the session's subscriptions have to tell. Only the
// session's goroutine calls it.
func (s *session) collect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lists != nil && s.read(s.lists, func(error) {}) {
		s.u.subs.unsubscribe(s.lists)
		s.lists = nil
	}
	for uri, w := range s.resources {
		if s.read(w.listener, w.settle) {
			s.u.subs.unsubscribe(w.listener)
			delete(s.resources, uri)
			w.settle(s.notGranted())
		}
	}
}

// read empties the mailbox of a listener; mu is held. It reports whether the
// subscription is over.
func (s *session) read(l *listener, settle func(error)) (over bool) {
	for {
		in, err := l.box.take()
		switch {
		case err != nil:
			settle(s.refusal(err))
			return true
		case in == nil:
			return false
		case in.msg.Kind != jsonrpc.Notification:
			return true // granted nothing, or ended by the server
		case jsonrpc.EqualString(in.data, in.msg.Method.Value, notifyAcknowledged):
			if granted, _, err := parseFilter(in.data, in.msg.Param.Notifications.Value); err != nil || len(granted.uris) == 0 {
				settle(s.notGranted())
			} else {
				settle(nil)
			}
		default:
			s.post(in)
		}
	}
}

func (s *session) notGranted() error {
	return asLegacy(faultf(http.StatusOK, codeInvalidRequest, "server %q does not tell when this resource changes", s.u.name))
}

// refusal is what a client is told of a subscription that the server refused.
func (s *session) refusal(err error) error {
	var refused *refusedError
	if errors.As(err, &refused) {
		code, _ := jsonrpc.Integer(refused.in.msg.Err.Code.Of(refused.in.data))
		text, _ := jsonrpc.Unquote(refused.in.data, refused.in.msg.Err.Message.Value)
		return faultf(http.StatusOK, int(code), "%s", text)
	}
	return toLegacyFault(faultOf(s.u.name, err))
}
