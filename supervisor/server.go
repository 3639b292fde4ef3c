package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"mcpd/supervisor/childlog"
)

// Options are what a Server is made of besides its Spec.
type Options[S Session] struct {
	// Dialer is required.
	Dialer Dialer[S]
	// Starter; nil starts real processes.
	Starter Starter
	// Logger; nil discards.
	Logger *slog.Logger
	// Log takes the child's stderr and junk; nil keeps a ring in memory only. Its owner closes it after Run returned.
	Log *Log
	// Rand gives numbers in [0,1) for the jitter; nil takes math/rand/v2. It is called by one goroutine at a time.
	Rand func() float64
	// StartMemory; nil remembers only within this Server.
	StartMemory StartMemory

	// wall reads the wall clock; tests let it jump as it does over a suspend.
	wall func() time.Time
}

// Server is one configured name. Over its life it runs incarnations of a child. Its methods can be called from any
// goroutine.
type Server[S Session] struct {
	name   string
	dialer Dialer[S]
	starter
	logger *slog.Logger
	log    *Log
	rand   func() float64
	memory StartMemory
	wall   func() time.Time

	running  atomic.Bool
	finished chan struct{} // closed when Run has returned or is about to
	commands chan command
	events   chan report[S]
	demands  chan struct{} // capacity 1
	retunes  chan struct{} // capacity 1: retuned has something
	retuned  atomic.Pointer[Spec]
	view     atomic.Pointer[view[S]]
	children sync.WaitGroup // one for each incarnation

	// What follows belongs to the goroutine of Run alone.
	life     life
	lives    map[uint64]*incarnation[S]
	replaces map[uint64]chan<- error
	timer    *time.Timer
	tokens   uint64
}

type starter = Starter

// command is what a caller asks of the goroutine of Run.
type command struct {
	kind  eventKind
	spec  Spec
	reply chan<- error // capacity 1
}

// report is what an incarnation tells the goroutine of Run.
type report[S Session] struct {
	event
	inc *incarnation[S]
}

// view is what the goroutine of Run publishes for everybody else. It is never changed after that.
type view[S Session] struct {
	status       Status
	session      S
	ok           bool // session is current
	inc          *incarnation[S]
	demandable   bool // a demand would make a difference
	failedStarts uint64
	startLimit   time.Duration // of the child that is starting, or would be next
	closing      bool          // Run is ending
	finished     bool          // nothing is left
	changed      chan struct{} // closed when the next view is there
}

// New makes a Server. Nothing runs before Run.
func New[S Session](spec Spec, o Options[S]) *Server[S] {
	if o.Starter == nil {
		o.Starter = NewStarter(StarterOptions{Logger: o.Logger})
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Log == nil {
		o.Log = childlog.Open(childlog.Options{}) // without a file there is nothing to close
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	if o.StartMemory == nil {
		o.StartMemory = &startMemory{}
	}
	if o.wall == nil {
		o.wall = time.Now
	}
	s := &Server[S]{
		name:     spec.Name,
		dialer:   o.Dialer,
		starter:  o.Starter,
		logger:   o.Logger.With("server", spec.Name),
		log:      o.Log,
		rand:     o.Rand,
		memory:   o.StartMemory,
		wall:     o.wall,
		finished: make(chan struct{}),
		commands: make(chan command),
		events:   make(chan report[S]),
		demands:  make(chan struct{}, 1),
		retunes:  make(chan struct{}, 1),
		lives:    make(map[uint64]*incarnation[S]),
		replaces: make(map[uint64]chan<- error),
	}
	s.life = newLife(spec.withDefaults())
	s.life.since = time.Now()
	s.publish()
	return s
}

// Run starts the child unless it is lazy, and looks after it until ctx ends. Then calls in flight get DrainTimeout, the
// child is stopped, and Run returns nil when every process and goroutine of the server is gone. It can be called once.
func (s *Server[S]) Run(ctx context.Context) error {
	if !s.running.CompareAndSwap(false, true) {
		return errors.New("supervisor: Run was called twice")
	}
	defer close(s.finished)
	s.timer = time.NewTimer(time.Hour)
	s.timer.Stop()
	defer s.timer.Stop()

	s.apply(event{kind: evBoot})
	stop := ctx.Done()
	for !s.life.over() {
		select {
		case <-stop:
			stop = nil
			s.apply(event{kind: evShutdown})
		case c := <-s.commands:
			s.retuneNow() // limits that were given before the command count for it
			s.obey(c)
		case <-s.retunes:
			s.retuneNow()
		case <-s.demands:
			if s.life.demandable() { // the callers who sent it may have been served by now
				s.apply(event{kind: evDemand})
			}
		case r := <-s.events:
			s.hear(r)
		case <-s.timer.C:
			s.apply(event{kind: evTimer})
		}
	}
	s.children.Wait()
	return nil
}

func (s *Server[S]) retuneNow() {
	if spec := s.retuned.Swap(nil); spec != nil {
		s.apply(event{kind: evRetune, spec: *spec})
		for _, inc := range s.lives {
			inc.retune(*spec)
		}
	}
}

func (s *Server[S]) obey(c command) {
	e := event{kind: c.kind, spec: c.spec}
	if c.kind == evReplace {
		s.tokens++
		e.id = s.tokens
		s.replaces[e.id] = c.reply
		s.apply(e)
		return
	}
	s.apply(e)
	c.reply <- nil
}

func (s *Server[S]) hear(r report[S]) {
	switch r.kind {
	case evBoot: // the process runs: only its pid is news
		s.publish()
		return
	case evUp:
		s.memory.Remember(r.inc.spec.CommandKey())
	case evGone:
		delete(s.lives, r.id)
		s.noteEnd(r)
	}
	s.apply(r.event)
}

func (s *Server[S]) noteEnd(r report[S]) {
	exit := r.end.exit
	s.log.Notef("ended (%s): %s", exit, exit.Reason)
	level := slog.LevelWarn
	if r.inc.asked.Load() {
		level = slog.LevelInfo
	}
	s.logger.Log(context.Background(), level, "the child ended", "pid", exit.PID, "exit", exit.String(), "reason", exit.Reason)
}

// apply moves the life on by one event and does what follows from it.
func (s *Server[S]) apply(e event) {
	e.at = time.Now()
	e.rand = s.rand()
	before := s.life.state
	var effects []effect
	s.life, effects = next(s.life, e)
	var ready *incarnation[S]
	for _, f := range effects {
		inc := s.lives[f.id]
		switch f.kind {
		case effStart:
			s.launch(f.id, f.spec)
		case effStop:
			inc.askStop(f.drain)
		case effCut:
			if inc != nil {
				inc.askStop(false)
			}
		case effReady:
			ready = inc
			s.dialer.Ready(inc.session)
		case effAnswer:
			// The caller must find the new state when it hears.
			defer func(reply chan<- error, err error) { reply <- err }(s.replaces[f.id], f.err)
			delete(s.replaces, f.id)
		case effArm:
			s.timer.Reset(f.delay)
		case effDisarm:
			s.timer.Stop()
		}
	}
	s.publish()
	s.announce(before, ready)
}

// announce puts a change of state into the logs.
func (s *Server[S]) announce(before State, ready *incarnation[S]) {
	l := s.life
	switch {
	case ready != nil:
		s.logger.Info("the child is ready", "pid", ready.pid.Load(), "took", time.Since(ready.began).Round(time.Millisecond))
	case l.state == before:
	case l.state == StateBackoff:
		s.log.Notef("next start in %s", l.nextTry.Sub(l.since).Round(time.Millisecond))
		s.logger.Warn("the child is started again after a pause", "pause", l.nextTry.Sub(l.since), "reason", l.lastError)
	case l.state == StateFailed:
		s.log.Notef("failed: %s", l.lastError)
		s.logger.Error("the server failed; it is tried again later, or at once with: mcpd restart "+s.name, "reason", l.lastError, "next_try", l.nextTry)
	}
}

func (s *Server[S]) launch(id uint64, spec Spec) {
	first := !s.memory.Started(spec.CommandKey())
	limit := spec.StartTimeout
	if first {
		limit = spec.FirstStartTimeout
	}
	inc := newIncarnation[S](id, spec, limit, first)
	s.lives[id] = inc
	s.children.Add(1)
	go func() {
		defer s.children.Done()
		end := s.live(inc)
		s.events <- report[S]{event{kind: evGone, id: id, end: end}, inc}
	}()
}

// publish shows everybody the present state.
func (s *Server[S]) publish() {
	l := s.life
	v := &view[S]{
		inc:          s.lives[l.cur.id],
		demandable:   l.demandable(),
		failedStarts: l.failedStarts,
		closing:      l.closing,
		finished:     l.over(),
		changed:      make(chan struct{}),
		status: Status{
			State:        l.state,
			Since:        l.since,
			Restarts:     max(l.starts-1, 0),
			LastExit:     l.lastExit,
			LastError:    l.lastError,
			NextTry:      l.nextTry,
			OnDemand:     l.onDemand(),
			Held:         l.held,
			Replacing:    l.pending != 0,
			ReplaceError: l.replaceError,
			Retiring:     len(l.retiring),
		},
	}
	if v.inc == nil {
		v.inc = s.lives[l.cand.id] // the old one died while the new one starts
	}
	old := s.view.Load()
	if v.inc != nil {
		v.startLimit = v.inc.limit
		v.status.PID = int(v.inc.pid.Load())
		v.status.Incarnation = v.inc.id
		v.status.StartedAt = v.inc.began
		v.status.Installing = l.state == StateStarting && v.inc.first
	} else {
		v.startLimit = l.spec.StartTimeout
		if !s.memory.Started(l.spec.CommandKey()) {
			v.startLimit = l.spec.FirstStartTimeout
		}
		if old != nil {
			v.inc = old.inc // for its last words
		}
	}
	if l.cur.phase == ready {
		v.session, v.ok = v.inc.session, true
	}
	s.view.Store(v)
	if old != nil {
		close(old.changed)
	}
}

// Acquire gives the current session and demands one where there is none.
//
// It waits while a child is being started, or will be after the back-off, for at most StartTimeout (FirstStartTimeout
// for a command line that never came up before) and for at most ctx. It answers at once with an *UnavailableError when
// waiting cannot help: the server failed, was stopped by hand, is going away, or the next start is due only after the
// wait would be over. A caller that has seen two children die in their handshake is answered as well, with how the
// last one ended, although the server goes on trying. An error of ctx is wrapped.
//
// The session may end at any time after it was given, and one that is being replaced refuses new calls: then the
// caller acquires again.
func (s *Server[S]) Acquire(ctx context.Context) (S, error) {
	if v := s.view.Load(); v.ok && !isClosed(v.session.Done()) {
		return v.session, nil
	}
	return s.await(ctx)
}

func (s *Server[S]) await(ctx context.Context) (S, error) {
	var none S
	w := wait{since: time.Now(), failedStarts: s.view.Load().failedStarts}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		v := s.view.Load()
		if v.ok && !isClosed(v.session.Done()) {
			return v.session, nil
		}
		now := time.Now()
		if err := w.judge(v.situation(s.name), now); err != nil {
			return none, err
		}
		if v.demandable {
			select {
			case s.demands <- struct{}{}:
			default:
			}
		}
		timer.Reset(w.since.Add(v.startLimit).Sub(now))
		select {
		case <-v.changed:
		case <-timer.C:
		case <-s.finished:
			// The last view says so, unless Run never came to publish one.
			if v = s.view.Load(); !v.finished {
				return none, &UnavailableError{Server: s.name, State: StateStopped, Reason: errClosing.Error()}
			}
		case <-ctx.Done():
			return none, fmt.Errorf("waiting for server %q (%s): %w", s.name, v.status.State, context.Cause(ctx))
		}
	}
}

// Start starts a server that is stopped, failed, or waits in its back-off, and waits as Acquire does until it is ready.
// It forgives earlier deaths. A server that is starting or ready is left alone.
func (s *Server[S]) Start(ctx context.Context) error {
	if err := s.command(ctx, evStart, Spec{}); err != nil {
		return err
	}
	_, err := s.await(ctx)
	return err
}

// Restart ends the current child, which may first finish what is in flight within DrainTimeout, and starts another; it
// waits as Acquire does until that is ready. It forgives earlier deaths, and takes up what a Replace asked for in vain.
// A second Restart or Stop during the drain cuts it short.
func (s *Server[S]) Restart(ctx context.Context) error {
	if err := s.command(ctx, evRestart, Spec{}); err != nil {
		return err
	}
	_, err := s.await(ctx)
	return err
}

// Stop ends the child, which may first finish what is in flight within DrainTimeout, and holds the server stopped until
// Start or Restart: demands do not start it. It returns when the child is gone. A second Stop cuts the drain short.
func (s *Server[S]) Stop(ctx context.Context) error {
	if err := s.command(ctx, evStop, Spec{}); err != nil {
		return err
	}
	for {
		v := s.view.Load()
		if v.finished || v.status.State == StateStopped {
			return nil
		}
		if !v.status.Held && !v.closing {
			return fmt.Errorf("server %q was started again while it was being stopped", s.name)
		}
		select {
		case <-v.changed:
		case <-s.finished:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("stopping server %q: %w", s.name, context.Cause(ctx))
		}
	}
}

// Replace makes spec what the server runs.
//
// Of a ready server the new child is started beside the old one; once its handshake is done it takes over, the old one
// finishes what is in flight within its DrainTimeout and is stopped. Replace returns at the take-over, not at the end
// of the old one. If the new child does not come up, the old one stays, Replace returns why, Status.ReplaceError keeps
// it, and spec is only remembered for Start and Restart. With StopFirst, in either spec, the old child is stopped
// before the new one starts; if that does not come up, the old spec is started again.
//
// A server that is starting, in back-off or failed has nothing to keep: it starts spec at once and Replace returns how
// the first try went. The server stays with spec then and goes on trying. One that is stopped only takes spec over.
//
// A newer Replace, a Stop or a Restart takes the place of one under way, which returns that as its error. When ctx ends
// Replace returns, but what it asked for goes on.
func (s *Server[S]) Replace(ctx context.Context, spec Spec) error {
	err := s.command(ctx, evReplace, spec.withDefaults())
	if err != nil && !errors.Is(err, context.Cause(ctx)) {
		return fmt.Errorf("replacing server %q: %w", s.name, err)
	}
	return err
}

// Retune takes over the limits of spec (every field but the name, the command line, the environment and the folder)
// without touching the child. It does not block.
func (s *Server[S]) Retune(spec Spec) {
	spec = spec.withDefaults()
	s.retuned.Store(&spec)
	select {
	case s.retunes <- struct{}{}:
	default:
	}
}

// command hands c to the goroutine of Run and waits for the reply.
func (s *Server[S]) command(ctx context.Context, kind eventKind, spec Spec) error {
	reply := make(chan error, 1)
	select {
	case s.commands <- command{kind, spec, reply}:
	case <-s.finished:
		return &UnavailableError{Server: s.name, State: StateStopped, Reason: errClosing.Error()}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-reply:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Status is a snapshot. It never blocks on the server's goroutine.
func (s *Server[S]) Status() Status {
	v := s.view.Load()
	st := v.status
	if v.inc != nil {
		st.StderrTail = v.inc.lastWords()
	}
	return st
}

// Log is where the child's stderr and junk go.
func (s *Server[S]) Log() *Log { return s.log }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// startMemory remembers for as long as the process lives.
type startMemory struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (m *startMemory) Started(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen[key]
}

func (m *startMemory) Remember(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen == nil {
		m.seen = make(map[string]bool)
	}
	m.seen[key] = true
}
