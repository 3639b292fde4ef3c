package bridge

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpd/bridge/ledger"
	"mcpd/security"
)

// Limits bounds what clients and a server may use. All of them can change
// while the server runs.
type Limits struct {
	MaxMessageBytes         int64         // one message from the server, bytes
	MaxQueueBytes           int64         // messages queued for the server's stdin, bytes
	StreamBufferBytes       int64         // messages queued for one slow client, bytes
	MaxInFlight             int           // requests that wait for an answer
	MaxInFlightPerPrincipal int           // the same, of one principal
	MaxListeners            int           // open subscriptions/listen streams
	RequestTimeout          time.Duration // without answer or progress
	MaxRequestTime          time.Duration // in all
	// Interactive says what becomes of a legacy server's questions, from the
	// next process on.
	Interactive Interactive
	// QuestionTimeout is how long a client may take for the answers.
	QuestionTimeout time.Duration
}

// DefaultLimits are the limits where the configuration names none.
func DefaultLimits() Limits {
	return Limits{
		MaxMessageBytes:         64 << 20,
		MaxQueueBytes:           128 << 20,
		StreamBufferBytes:       4 << 20,
		MaxInFlight:             256,
		MaxInFlightPerPrincipal: 128,
		MaxListeners:            12000,
		RequestTimeout:          5 * time.Minute,
		MaxRequestTime:          time.Hour,
		Interactive:             InteractiveAuto,
		QuestionTimeout:         10 * time.Minute,
	}
}

// withDefaults fills what is not set.
func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	fill(&l.MaxMessageBytes, d.MaxMessageBytes)
	fill(&l.MaxQueueBytes, d.MaxQueueBytes)
	fill(&l.StreamBufferBytes, d.StreamBufferBytes)
	fill(&l.MaxInFlight, d.MaxInFlight)
	fill(&l.MaxInFlightPerPrincipal, d.MaxInFlightPerPrincipal)
	fill(&l.MaxListeners, d.MaxListeners)
	fill(&l.RequestTimeout, d.RequestTimeout)
	fill(&l.MaxRequestTime, d.MaxRequestTime)
	fill(&l.Interactive, d.Interactive)
	fill(&l.QuestionTimeout, d.QuestionTimeout)
	return l
}

func fill[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Child gives the Conn with the server's current process, starting one where
// needed and waiting for it. Its error may offer RetryDelay() time.Duration.
type Child interface {
	Acquire(ctx context.Context) (*Conn, error)
}

// EraMemory remembers, across restarts, which era a command line turned out
// to be.
type EraMemory interface {
	Era(commandLine string) (Era, bool)
	Remember(commandLine string, era Era)
	Forget(commandLine string)
}

// UpstreamOptions describes one configured server.
type UpstreamOptions struct {
	Name    string
	Version string // mcpd's own, told to servers
	// CommandLine identifies what is started, as key for Eras.
	CommandLine string
	// Protocol fixes the era; EraUnknown probes for it.
	Protocol Era
	Limits   Limits
	Eras     EraMemory // nil: nothing is remembered
	Logger   *slog.Logger
	Log      func(line string) // the server's own log; nil drops it
	// Ledger remembers the calls with an idempotency key; without one they are
	// refused.
	Ledger *ledger.Ledger
	// Retry is the first policy; SetRetryPolicy replaces it.
	Retry RetryPolicy
	// Sealer seals the requestState of questions that a legacy server asks.
	// Without one such a server is told that clients cannot be asked.
	Sealer Sealer
	// Sessions is the first policy; SetSessionPolicy replaces it.
	Sessions SessionPolicy
}

// Upstream is one configured server, for as long as its name is configured:
// processes come and go behind it, listeners stay.
type Upstream struct {
	name    string
	version string
	logger  *slog.Logger
	log     func(string)
	eras    EraMemory
	subs    *subscriptions

	limits atomic.Pointer[Limits]
	child  atomic.Pointer[Child]

	ledger *ledger.Ledger // nil: there is none
	retry  atomic.Pointer[RetryPolicy]
	// life bounds the keyed calls, which outlive their HTTP requests; detached
	// are their goroutines.
	life     context.Context
	stopLife context.CancelCauseFunc
	detached sync.WaitGroup

	start struct { // how the next process is greeted
		sync.Mutex
		commandLine string
		protocol    Era
		skipProbe   bool // the last process died of the probe
	}

	load struct { // who uses the server now
		sync.Mutex
		inFlight    int
		listeners   int
		byPrincipal map[string]int
		closed      bool
		ended       bool // no keyed call begins any more
	}

	sealer  Sealer
	askings *askings

	sessions    *sessions
	legacyCalls legacyCalls
	levels      legacyLevels

	requests atomic.Uint64
	failures atomic.Uint64
	repeats  repeats
}

// NewUpstream makes the Upstream of one configured server. Bind it to its
// Child before it serves.
func NewUpstream(o UpstreamOptions) *Upstream {
	u := &Upstream{name: o.Name, version: o.Version, logger: o.Logger, log: o.Log, eras: o.Eras, ledger: o.Ledger, sealer: o.Sealer}
	u.askings = newAskings()
	// Keyed calls belong to the Upstream and not to any one request's context.
	u.life, u.stopLife = context.WithCancelCause(context.Background())
	u.SetRetryPolicy(o.Retry)
	if u.logger == nil {
		u.logger = slog.New(slog.DiscardHandler)
	}
	u.logger = u.logger.With("server", o.Name)
	if u.log == nil {
		u.log = func(string) {}
	}
	u.SetLimits(o.Limits)
	u.SetCommand(o.CommandLine, o.Protocol)
	u.load.byPrincipal = make(map[string]int)
	u.subs = newSubscriptions(u)
	u.sessions = newSessions(u)
	u.SetSessionPolicy(o.Sessions)
	return u
}

// Bind names the Child that runs the server's processes.
func (u *Upstream) Bind(child Child) { u.child.Store(&child) }

// SetLimits replaces the limits. Requests in flight keep those they began with.
func (u *Upstream) SetLimits(l Limits) {
	l = l.withDefaults()
	u.limits.Store(&l)
}

// SetCommand tells that the next process is started with another command line.
func (u *Upstream) SetCommand(commandLine string, protocol Era) {
	u.start.Lock()
	defer u.start.Unlock()
	if commandLine != u.start.commandLine || protocol != u.start.protocol {
		u.start.skipProbe = false
	}
	u.start.commandLine, u.start.protocol = commandLine, protocol
}

// Stats is what an Upstream tells about itself.
type Stats struct {
	Era                   Era
	ProtocolVersion       string // the revision spoken with the server
	ServerName            string
	ServerVersion         string
	Requests              uint64 // requests taken from clients
	Failures              uint64 // of them answered with an error by mcpd itself
	Repeats               uint64 // sent again by mcpd because a process died
	RepeatsRefused        uint64 // not sent again because of RetryPolicy.RepeatsPerMinute
	InFlight              int
	Questions             int // of them, whose clients were asked something by the server
	Listeners             int // open subscriptions/listen streams
	UpstreamSubscriptions int // subscriptions held at the server, mcpd's own included
	Sessions              int // sessions of legacy clients
}

// Stats reports the current figures.
func (u *Upstream) Stats() Stats {
	s := Stats{Requests: u.requests.Load(), Failures: u.failures.Load()}
	s.Repeats, s.RepeatsRefused = u.repeats.counts()
	s.Questions = u.askings.waiting()
	u.load.Lock()
	s.InFlight, s.Listeners = u.load.inFlight, u.load.listeners
	u.load.Unlock()
	s.Sessions = u.sessions.count()
	conn, upstream := u.subs.state()
	s.UpstreamSubscriptions = upstream
	if conn != nil {
		s.Era = conn.Era()
		s.ProtocolVersion = conn.server.version
		s.ServerName, s.ServerVersion = conn.server.nameAndVersion()
	}
	return s
}

// Close ends every open listen stream with its result and refuses what comes
// after. Requests in flight go on. End must follow.
func (u *Upstream) Close() {
	u.load.Lock()
	u.load.closed = true
	u.load.Unlock()
	u.askings.close()
	u.sessions.close()
	u.subs.close()
}

// clientSubscriptions implements eventSink.
func (u *Upstream) clientSubscriptions() int { return int(u.subs.clients.Load()) }

// subscriptionEvent implements eventSink.
func (u *Upstream) subscriptionEvent(c *Conn, g *group, in *inbound) { u.subs.event(c, g, in) }

// subscriptionAnswered implements eventSink.
func (u *Upstream) subscriptionAnswered(c *Conn, g *group) { u.subs.answered(c, g) }

// subscriptionFailed implements eventSink.
func (u *Upstream) subscriptionFailed(c *Conn, g *group, reason error) { u.subs.failed(c, g, reason) }

// legacyEvent implements eventSink.
func (u *Upstream) legacyEvent(c *Conn, method string, in *inbound) {
	u.subs.legacyEvent(c, method, in)
}

// logLine implements eventSink.
func (u *Upstream) logLine(line string) { u.log(line) }

// acquire gives the current Conn.
func (u *Upstream) acquire(ctx context.Context) (*Conn, error) {
	child := u.child.Load()
	if child == nil {
		return nil, unavailable(time.Second, "server %q is not set up yet", u.name)
	}
	return (*child).Acquire(ctx)
}

// admit takes a slot for one request of a principal, or refuses it. The slot
// is given back by the returned function.
func (u *Upstream) admit(p *security.Principal) (release func(), err error) {
	limits := u.limits.Load()
	u.load.Lock()
	defer u.load.Unlock()
	switch {
	case u.load.closed:
		return nil, unavailable(time.Second, "server %q is being stopped or removed", u.name)
	case u.load.inFlight >= limits.MaxInFlight:
		return nil, unavailable(time.Second, "server %q already has %d requests in flight (max_in_flight); try again when some have ended",
			u.name, limits.MaxInFlight)
	case u.load.byPrincipal[p.ID] >= limits.MaxInFlightPerPrincipal:
		return nil, unavailable(time.Second, "this token already has %d requests in flight at server %q (max_in_flight_per_principal)",
			limits.MaxInFlightPerPrincipal, u.name)
	}
	u.load.inFlight++
	u.load.byPrincipal[p.ID]++
	return func() {
		u.load.Lock()
		defer u.load.Unlock()
		u.load.inFlight--
		if u.load.byPrincipal[p.ID]--; u.load.byPrincipal[p.ID] <= 0 {
			delete(u.load.byPrincipal, p.ID)
		}
	}, nil
}

// admitListener takes a slot for one open listen stream.
func (u *Upstream) admitListener() (release func(), err error) {
	limits := u.limits.Load()
	u.load.Lock()
	defer u.load.Unlock()
	switch {
	case u.load.closed:
		return nil, unavailable(time.Second, "server %q is being stopped or removed", u.name)
	case u.load.listeners >= limits.MaxListeners:
		return nil, unavailable(5*time.Second, "server %q already has %d open listen streams (max_listeners)", u.name, limits.MaxListeners)
	}
	u.load.listeners++
	return func() {
		u.load.Lock()
		u.load.listeners--
		u.load.Unlock()
	}, nil
}

// errNoServer is a request for a name that is not configured.
func errNoServer(name string, known []string) *Fault {
	if len(known) == 0 {
		return faultf(http.StatusNotFound, CodeUnknownServer, "no server %s is configured, nor any other", clip(name))
	}
	return faultf(http.StatusNotFound, CodeUnknownServer, "no server %s is configured; there are: %s", clip(name), strings.Join(known, ", "))
}
