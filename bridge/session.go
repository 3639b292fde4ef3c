package bridge

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"mcpd/bridge/jsonrpc"
	"mcpd/security"
)

// A session is what a legacy client has at the endpoint with sessions: the
// capabilities it told in initialize, its log level, a stream for what comes
// unasked, and the questions that it was asked. Towards the server it is a
// client like any other: its requests carry its capabilities in their metadata,
// its subscriptions are those of a listener, and what a server needs to know in
// the middle of a request becomes a request to the client. So sessions exist on
// this side only, and neither the modern endpoint nor a server knows of them.

// SessionPolicy says whether legacy clients may have sessions, and bounds them.
type SessionPolicy struct {
	Enabled bool
	Max     int           // sessions open at one time; 0 is DefaultMaxSessions
	Idle    time.Duration // without a request, until a session ends; 0 is DefaultSessionIdle
}

// What a SessionPolicy means where it names no bound.
const (
	DefaultMaxSessions = 64
	DefaultSessionIdle = 30 * time.Minute
)

// Why a session ends.
var (
	errSessionDeleted = errors.New("the client ended the session")
	errSessionIdle    = errors.New("the session was idle for too long")
	errSessionsOff    = errors.New("sessions were switched off")
	errSessionSilent  = errors.New("the client did not answer a ping")
)

// sessions are the sessions of one Upstream. Lock order: sessions.mu, then
// session.mu, then those that subscriptions names.
type sessions struct {
	u *Upstream

	mu     sync.Mutex
	policy SessionPolicy
	// byDigest finds a session by the digest of its id: what a look-up takes
	// tells nothing about the ids that there are.
	byDigest map[[sha256.Size]byte]*session
	closed   bool
	running  sync.WaitGroup // of the sessions' own goroutines
}

func newSessions(u *Upstream) *sessions {
	return &sessions{u: u, byDigest: make(map[[sha256.Size]byte]*session)}
}

// SetSessionPolicy replaces the policy. Sessions end where it allows none any
// more; more of them than it allows stay.
func (u *Upstream) SetSessionPolicy(p SessionPolicy) {
	fill(&p.Max, DefaultMaxSessions)
	fill(&p.Idle, DefaultSessionIdle)
	s := u.sessions
	s.mu.Lock()
	s.policy = p
	open := s.all()
	s.mu.Unlock()
	for _, one := range open {
		if !p.Enabled {
			s.end(one, errSessionsOff)
		}
		one.signal() // its idle time may be another now
	}
}

// all gives the sessions; mu is held.
func (s *sessions) all() []*session {
	all := make([]*session, 0, len(s.byDigest))
	for _, one := range s.byDigest {
		all = append(all, one)
	}
	return all
}

func (s *sessions) policyNow() SessionPolicy {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.policy
}

func (s *sessions) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byDigest)
}

// enabled refuses what comes for a server without sessions.
func (s *sessions) enabled() error {
	if s.policyNow().Enabled {
		return nil
	}
	return faultf(http.StatusNotFound, CodeUnknownServer,
		"server %q has no endpoint with sessions; set legacy_sessions = true for it, or use /servers/%s/mcp, which needs none",
		s.u.name, s.u.name)
}

// room says whether one more session may begin.
func (s *sessions) room() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roomLocked()
}

func (s *sessions) roomLocked() error {
	switch {
	case s.closed:
		return unavailable(time.Second, "server %q is being stopped or removed", s.u.name)
	case len(s.byDigest) >= s.policy.Max:
		return unavailable(time.Minute, "server %q already has %d sessions (max_legacy_sessions); "+
			"one ends when its client deletes it, or after %v without a request (legacy_session_idle)",
			s.u.name, len(s.byDigest), s.policy.Idle)
	}
	return nil
}

// open begins a session. Its id is told once and kept nowhere.
func (s *sessions) open(p *security.Principal, hello hello) (id string, err error) {
	id = rand.Text() // 128 bits or more, in visible ASCII
	one := &session{
		u: s.u, digest: sha256.Sum256([]byte(id)), principal: p, hello: hello,
		wake: make(chan struct{}, 1), closing: make(chan struct{}),
		severity: defaultSeverity, lastUsed: time.Now(),
		calls: make(map[string]*sessionCall), asked: make(map[uint64]*question), resources: make(map[string]*resourceWatch),
	}
	one.ctx, one.stop = context.WithCancelCause(s.u.life)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.roomLocked(); err != nil {
		one.stop(err)
		return "", err
	}
	s.byDigest[one.digest] = one
	s.running.Go(one.run)
	return id, nil
}

// find gives the session of an id. One of another principal does not exist.
func (s *sessions) find(id string, p *security.Principal) (*session, error) {
	digest := sha256.Sum256([]byte(id))
	s.mu.Lock()
	one := s.byDigest[digest]
	s.mu.Unlock()
	if one == nil || one.principal.ID != p.ID {
		return nil, faultf(http.StatusNotFound, CodeUnknownSession,
			"there is no such session at server %q, or no more; begin a new one with initialize", s.u.name)
	}
	return one, nil
}

// end ends a session: from now on its id is unknown.
func (s *sessions) end(one *session, why error) {
	s.mu.Lock()
	if s.byDigest[one.digest] == one {
		delete(s.byDigest, one.digest)
		s.u.logger.Debug("a session ended", "reason", why)
	}
	s.mu.Unlock()
	one.stop(why)
}

// close ends all streams and questions of sessions and lets no session begin.
// Calls go on; they end with the Upstream.
func (s *sessions) close() {
	s.mu.Lock()
	s.closed = true
	open := s.all()
	s.mu.Unlock()
	for _, one := range open {
		one.close()
	}
}

// finish ends all sessions, after close, and waits until nothing of them is left.
func (s *sessions) finish() {
	s.mu.Lock()
	open := s.all()
	s.mu.Unlock()
	for _, one := range open {
		s.end(one, ErrStopping)
	}
	s.running.Wait()
}

// hello is what a client told in initialize, as far as it is needed later.
type hello struct {
	version string // the negotiated one
	// meta are the members of _meta that each request carries to the server.
	meta []byte
	// capabilities are what the client can be asked, as raw JSON.
	capabilities []byte
}

// readHello reads the params of initialize.
func readHello(in *incoming, version string) hello {
	data, m := in.data(), &in.msg
	h := hello{version: version}
	h.meta = []byte(`"` + metaProtocolVersion + `":"` + version20260728 + `"`)
	if isObject(data, m.Param.ClientInfo.Value) {
		h.meta = append(h.meta, `,"`+metaClientInfo+`":`...)
		h.meta = append(h.meta, m.Param.ClientInfo.Of(data)...)
	}
	shown := make(map[string]json.RawMessage)
	for name, member := range jsonrpc.Members(data, m.Param.Capabilities.Value) {
		if !isObject(data, member.Value) {
			continue
		}
		switch name {
		case "roots":
			shown[name] = json.RawMessage(`{}`) // that they change is nothing a server could be told
		case "elicitation", "sampling", "experimental":
			shown[name] = json.RawMessage(member.Of(data))
		default: // of this era alone, like tasks
		}
	}
	var err error
	if h.capabilities, err = json.Marshal(shown); err != nil {
		h.capabilities = []byte(`{}`)
	}
	h.meta = append(h.meta, `,"`+metaClientCapabilities+`":`...)
	h.meta = append(h.meta, h.capabilities...)
	return h
}

// session is one session of a legacy client.
type session struct {
	u         *Upstream
	digest    [sha256.Size]byte
	principal *security.Principal
	hello     hello

	// ctx ends with the session, for the reason that stop was given.
	ctx  context.Context
	stop context.CancelCauseFunc
	// closing is closed when nothing is told and asked any more.
	closing   chan struct{}
	closeOnce sync.Once
	wake      chan struct{} // one of its subscriptions has something to tell

	mu       sync.Mutex
	severity int // of log messages that it wants
	active   int // requests and calls of it that are under way
	lastUsed time.Time
	over     bool // nothing is begun any more

	calls     map[string]*sessionCall // in flight, by the raw JSON of their ids
	lastAsked uint64                  // id of the last request to the client
	asked     map[uint64]*question    // requests to the client that wait for an answer

	stream    *mailbox // of the GET stream that is open, or nil
	lists     *listener
	resources map[string]*resourceWatch // by URI
	unheard   []*inbound                // what came while no stream was open, each once
}

// pingTimeout is how long a client may take to answer a ping.
const pingTimeout = 30 * time.Second

// run is the session's own goroutine: it carries what the server tells to the
// client's stream, and ends the session when it is idle.
func (s *session) run() {
	defer s.retire()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var pinged time.Time
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
			s.collect()
		case <-timer.C:
		}
		idle := s.u.sessions.policyNow().Idle
		s.mu.Lock()
		quiet, busy, streaming := time.Since(s.lastUsed), s.active > 0, s.stream != nil
		s.mu.Unlock()
		switch {
		case busy:
			pinged = time.Time{}
			timer.Reset(idle)
		case quiet < idle:
			pinged = time.Time{}
			timer.Reset(idle - quiet)
		case !streaming:
			s.u.sessions.end(s, errSessionIdle)
			return
		case pinged.IsZero():
			// A client that only listens is there as long as it answers.
			pinged = time.Now()
			s.ping()
			timer.Reset(pingTimeout)
		case time.Since(pinged) >= pingTimeout:
			s.u.sessions.end(s, errSessionSilent)
			return
		default:
			timer.Reset(pingTimeout - time.Since(pinged))
		}
	}
}

// ping asks over the stream for a sign of life. Any answer is one.
func (s *session) ping() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastAsked++
	s.post(newShared(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"ping"}`, s.lastAsked)))
}

func (s *session) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// close ends the stream and the questions.
func (s *session) close() {
	s.closeOnce.Do(func() { close(s.closing) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.stream != nil {
		s.stream.end(errStreamOver)
		s.stream = nil
	}
}

// retire gives back what the session holds.
func (s *session) retire() {
	s.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lists != nil {
		s.u.subs.unsubscribe(s.lists)
		s.lists = nil
	}
	for uri, watch := range s.resources {
		s.u.subs.unsubscribe(watch.listener)
		watch.settle(errSessionOver(s))
		delete(s.resources, uri)
	}
	s.unheard = nil
}

// errSessionOver is what a request is told whose session ends under it.
func errSessionOver(s *session) error {
	return faultf(http.StatusNotFound, CodeUnknownSession, "server %q: the session ended: %v", s.u.name, context.Cause(s.ctx))
}

// use notes that a request of the session begins; the returned function, that
// it is over.
func (s *session) use() (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active++
	s.lastUsed = time.Now()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.active--
		s.lastUsed = time.Now()
	}
}

// negotiable checks the revision that a request names in its header. One that
// names none is taken for the session's own.
func negotiable(h http.Header) error {
	values := h[headerProtocolVersion]
	switch {
	case len(values) == 0, len(values) == 1 && isLegacyVersion(values[0]):
		return nil
	case len(values) == 1 && isModernVersion(values[0]):
		return faultf(http.StatusBadRequest, codeInvalidRequest,
			"this endpoint speaks protocol %s and older; protocol %s needs no session and is spoken at /mcp", version20251125, values[0])
	}
	return faultf(http.StatusBadRequest, codeInvalidRequest, "the MCP-Protocol-Version %s is not supported here; supported: %s",
		clip(strings.Join(values, ", ")), strings.Join(legacyVersions(), ", "))
}
