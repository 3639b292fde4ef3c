package daemon

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"mcpd/bridge"
	"mcpd/bridge/ledger"
	"mcpd/cmd/mcpd/internal/control"
	"mcpd/config"
	"mcpd/security"
	"mcpd/supervisor"
	"mcpd/supervisor/childlog"
)

// server is one configured name: its Upstream, its child's supervisor, its
// log. Its own goroutine, run, puts configs in place; others wish for one.
type server struct {
	name     string
	upstream *bridge.Upstream
	log      *supervisor.Log
	base     *slog.Logger // without the server's name, for those who add it
	logger   *slog.Logger
	starts   supervisor.StartMemory

	environ *environment
	// after is closed when an earlier server of the same name is gone; nil
	// where there was none.
	after <-chan struct{}

	wish    chan config.Server // the newest config that is not in place yet; holds one
	started chan struct{}      // closed when child is set
	child   *supervisor.Server[session]
	done    chan struct{} // closed when the server is gone

	stop context.CancelFunc // ends run; set by whoever starts it

	first config.Server // to start with; of run

	mu     sync.Mutex
	wanted config.Server // the newest that the supervisor was told of
}

type serverOptions struct {
	config  config.Server
	memory  *memory
	environ *environment
	after   <-chan struct{}
	log     *supervisor.Log
	ledger  *ledger.Ledger
	sealer  *security.Sealer
	version string
	logger  *slog.Logger
}

func newServer(o serverOptions) *server {
	s := &server{
		name:    o.config.Name,
		log:     o.log,
		base:    o.logger,
		logger:  o.logger.With("server", o.config.Name),
		starts:  starts{o.memory},
		environ: o.environ,
		after:   o.after,
		wish:    make(chan config.Server, 1),
		started: make(chan struct{}),
		done:    make(chan struct{}),
		first:   o.config,
		wanted:  o.config,
	}
	s.upstream = bridge.NewUpstream(bridge.UpstreamOptions{
		Name:        o.config.Name,
		Version:     o.version,
		CommandLine: s.spec(o.config, nil).CommandKey(),
		Protocol:    era(o.config.Protocol),
		Limits:      limits(o.config),
		Eras:        eras{o.memory},
		Logger:      o.logger,
		Log:         func(line string) { o.log.Write(childlog.Mcpd, []byte(line)) },
		Ledger:      o.ledger,
		Sealer:      o.sealer,
		Retry:       retryPolicy(o.config),
		Sessions:    sessionPolicy(o.config),
	})
	s.upstream.Bind(s)
	return s
}

// Acquire gives the conversation with the server's current process. It
// implements bridge.Child.
func (s *server) Acquire(ctx context.Context) (*bridge.Conn, error) {
	child, err := s.whenStarted(ctx)
	if err != nil {
		return nil, err
	}
	sess, err := child.Acquire(ctx)
	if err != nil {
		return nil, withRetry(err)
	}
	return sess.Conn, nil
}

// whenStarted waits until there is a supervisor, which takes as long as the
// login shell's environment does.
func (s *server) whenStarted(ctx context.Context) (*supervisor.Server[session], error) {
	select {
	case <-s.started:
		return s.child, nil
	case <-s.done:
		return nil, retryLater{&supervisor.UnavailableError{
			Server: s.name, State: supervisor.StateStopped,
			Reason: "the daemon stops, or the server left the config",
		}}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// apply asks for a config to be put in place. It does not wait. Only the
// reload loop calls it.
func (s *server) apply(c config.Server) {
	select {
	case <-s.wish: // never put in place, and now it need not be
	default:
	}
	s.wish <- c
}

// run owns the server until ctx ends: then the calls in flight are waited for
// and the child is stopped before it returns.
func (s *server) run(ctx context.Context) {
	if !s.mayStart(ctx) {
		return
	}
	current := s.first
	select {
	case current = <-s.wish: // changed meanwhile
		s.want(current)
		s.greet(current)
	default:
	}
	s.child = supervisor.New(s.spec(current, s.environ.values()), supervisor.Options[session]{
		Dialer:      dialer{s.upstream},
		Logger:      s.base,
		Log:         s.log,
		StartMemory: s.starts,
	})
	close(s.started)

	var group sync.WaitGroup
	defer group.Wait()
	ended := make(chan error, 1)
	group.Go(func() { ended <- s.child.Run(ctx) })

	// The supervisor is given one config after the other. A newer command line
	// goes to it at once and ends the attempt at an older one; newer limits
	// wait for the attempt, because they would not reach a child that is only
	// about to take over.
	var attempt <-chan error
	var later *config.Server
	for {
		select {
		case next := <-s.wish:
			switch {
			case needsProcess(current, next):
				attempt, later = s.replace(ctx, &group, current, next), nil
			case attempt != nil:
				later = &next
			default:
				s.retune(next)
			}
			current = next
		case err := <-attempt:
			attempt = nil
			if err != nil && ctx.Err() == nil {
				s.logger.Warn("the changed config of the server does not work", "error", err)
			}
			if later != nil {
				s.retune(*later)
				later = nil
			}
		case err := <-ended:
			if err != nil && ctx.Err() == nil {
				s.logger.Error("the server's supervisor ended", "error", err)
			}
			return
		}
	}
}

// replace has a child with another command line take over. The outcome comes
// on the channel unless a newer one is asked for before.
func (s *server) replace(ctx context.Context, group *sync.WaitGroup, old, next config.Server) <-chan error {
	// A supervisor keeps a child that works until the new one does.
	keeps := s.child.Status().State == supervisor.StateReady
	s.want(next)
	s.greet(next)
	result := make(chan error, 1)
	group.Go(func() { // ends with ctx at the latest
		err := s.child.Replace(ctx, s.spec(next, s.environ.values()))
		if err != nil && keeps && s.isWanted(next) {
			s.greet(old)
		}
		result <- err
	})
	return result
}

func (s *server) retune(c config.Server) {
	s.want(c)
	s.child.Retune(s.spec(c, s.environ.values()))
}

// want notes which config is the newest; its limits hold at once.
func (s *server) want(c config.Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = c
	s.upstream.SetLimits(limits(c))
	s.upstream.SetRetryPolicy(retryPolicy(c))
	s.upstream.SetSessionPolicy(sessionPolicy(c))
}

func (s *server) isWanted(c config.Server) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !needsProcess(s.wanted, c)
}

// greet says what the next process is and how it is to be greeted.
func (s *server) greet(c config.Server) {
	s.upstream.SetCommand(s.spec(c, nil).CommandKey(), era(c.Protocol))
}

// startAnew says that the next process is one of the newest config, also where
// that was tried in vain before.
func (s *server) startAnew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.greet(s.wanted)
}

// mayStart waits for what comes before the first child.
func (s *server) mayStart(ctx context.Context) bool {
	if s.after != nil {
		select {
		case <-s.after:
		case <-ctx.Done():
			return false
		}
	}
	select {
	case <-s.environ.ready:
		return true
	case <-ctx.Done():
		return false
	}
}

// status describes the server; its URL is left to the caller.
func (s *server) status(now time.Time) control.Server {
	st := control.Server{Name: s.name, State: control.StateWaiting}
	us := s.upstream.Stats()
	st.Era, st.ProtocolVersion = string(us.Era), us.ProtocolVersion
	st.ServerName, st.ServerVersion = us.ServerName, us.ServerVersion
	st.Requests, st.Errors = us.Requests, us.Failures
	st.Repeats, st.RepeatsRefused = us.Repeats, us.RepeatsRefused
	st.Questions = us.Questions
	st.InFlight, st.Listeners, st.UpstreamSubscriptions = us.InFlight, us.Listeners, us.UpstreamSubscriptions
	st.LegacySessions = us.Sessions

	select {
	case <-s.started:
	default:
		return st
	}
	cs := s.child.Status()
	st.State = string(cs.State)
	st.Since = timePtr(cs.Since)
	st.PID = cs.PID
	st.StartedAt = timePtr(cs.StartedAt)
	if cs.PID != 0 && !cs.StartedAt.IsZero() {
		st.UptimeSeconds = now.Sub(cs.StartedAt).Seconds()
	}
	st.Restarts = uint64(cs.Restarts)
	if e := cs.LastExit; e != nil {
		st.LastExit = &control.Exit{At: e.At, Code: e.Code, Signal: e.Signal, Reason: e.Reason}
	}
	st.LastError, st.StderrTail, st.Installing = cs.LastError, cs.StderrTail, cs.Installing
	st.NextTry = timePtr(cs.NextTry)
	st.Reloading, st.ReloadError = cs.Replacing || len(s.wish) > 0, cs.ReplaceError
	return st
}

func timePtr(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// spec says how to run c in an environment that c's own is laid over.
func (s *server) spec(c config.Server, environ map[string]string) supervisor.Spec {
	env := maps.Clone(environ)
	if env == nil {
		env = make(map[string]string)
	}
	overlay(env, c.Env)
	pairs := make([]string, 0, len(env))
	for k, v := range env {
		pairs = append(pairs, k+"="+v)
	}
	slices.Sort(pairs)
	return supervisor.Spec{
		Name:              c.Name,
		Command:           c.Command,
		Args:              c.Args,
		Env:               pairs,
		Dir:               c.Cwd,
		Lazy:              c.Start == config.StartLazy,
		IdleStop:          c.IdleStop,
		StartTimeout:      c.StartTimeout,
		FirstStartTimeout: c.FirstStartTimeout,
		DrainTimeout:      c.DrainTimeout,
		StopTimeout:       c.StopTimeout,
		ProbeInterval:     c.ProbeInterval,
		BackoffMin:        c.Backoff.Min,
		BackoffMax:        c.Backoff.Max,
		StopFirst:         c.Replace == config.ReplaceStopFirst,
	}
}

func limits(c config.Server) bridge.Limits {
	return bridge.Limits{
		MaxMessageBytes:         c.MaxMessageBytes,
		StreamBufferBytes:       c.StreamBufferBytes,
		MaxInFlight:             c.MaxInFlight,
		MaxInFlightPerPrincipal: c.MaxInFlightPerPrincipal,
		MaxListeners:            c.MaxListeners,
		RequestTimeout:          c.RequestTimeout,
		MaxRequestTime:          c.MaxRequestTime,
		Interactive:             bridge.Interactive(c.Interactive),
		QuestionTimeout:         c.QuestionTimeout,
	}
}

func sessionPolicy(c config.Server) bridge.SessionPolicy {
	return bridge.SessionPolicy{Enabled: c.LegacySessions, Max: c.MaxLegacySessions, Idle: c.LegacySessionIdle}
}

func retryPolicy(c config.Server) bridge.RetryPolicy {
	p := bridge.RetryPolicy{TrustAnnotations: c.TrustAnnotations, RepeatsPerMinute: c.MaxRepeatsPerMinute}
	if p.RepeatsPerMinute == 0 {
		p.RepeatsPerMinute = -1 // never
	}
	if len(c.Tools) > 0 {
		p.Tools = make(map[string]bridge.ToolPolicy, len(c.Tools))
		for name, t := range c.Tools {
			p.Tools[name] = bridge.ToolPolicy{Key: t.IdempotencyKey, Inject: t.InjectKey, ReadOnly: t.ReadOnly}
		}
	}
	return p
}

func era(p config.Protocol) bridge.Era {
	switch p {
	case config.ProtocolModern:
		return bridge.EraModern
	case config.ProtocolLegacy:
		return bridge.EraLegacy
	default:
		return bridge.EraUnknown
	}
}

// needsProcess reports whether going from one config of a server to another
// takes a new process.
func needsProcess(from, to config.Server) bool {
	return len(config.Diff(only(from), only(to)).Replaced) > 0
}

func only(c config.Server) *config.Config {
	return &config.Config{Servers: map[string]config.Server{c.Name: c}}
}
