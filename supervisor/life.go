package supervisor

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	// stableAfter is how long a child must have been ready for its death to be a fresh misfortune: the back-off starts
	// over. Merely becoming ready resets nothing, or a child that dies at its first call would be respawned all day.
	stableAfter = time.Minute
	// deathLimit deaths without becoming ready within deathWindow make a server failed.
	deathLimit  = 5
	deathWindow = time.Minute
	// timeoutLimit handshakes in a row that ran out of time do so as well: they are too slow for the window.
	timeoutLimit = 5
	// halfOpenAfter is when a failed server gets one more try.
	halfOpenAfter = 5 * time.Minute
	// freshLimit is how often in a row a Dialer gets a fresh process for the asking.
	freshLimit = 2
	// retiringLimit is how many replaced children may finish their calls at the same time; the oldest is cut short.
	retiringLimit = 2
)

// errClosing answers commands to a server that is on its way out.
var errClosing = errors.New("the server is being shut down")

// life is the whole life of one server as a value. next makes a new one out of it and never changes the old.
type life struct {
	state State
	since time.Time
	// spec is in force: the next start of cur runs it.
	spec Spec
	// refused is what a Replace asked for that did not come up. Start and Restart take it up.
	refused *Spec
	// rollback is what to go back to if the first start after a stop-first Replace fails.
	rollback *Spec
	held     bool // stopped by hand: demands do nothing
	closing  bool // Run ends

	lastID   uint64
	cur      child    // the child that serves or will
	cand     child    // the one that is to take over in a make-before-break Replace
	retiring []uint64 // on their way out, of no more interest than that they end
	then     sequel   // what follows when cur is gone
	pending  uint64   // the Replace that waits for its outcome; 0 is none

	attempts int         // children in a row that did not last: the exponent of the back-off
	deaths   []time.Time // without becoming ready, in a row, within deathWindow
	timeouts int         // handshakes in a row that ran out of time
	halfOpen bool        // the child that starts now is the one try of a failed server
	fresh    int         // starts in a row that a Dialer asked for

	starts       int
	failedStarts uint64 // grows with each child that ended without becoming ready
	nextTry      time.Time
	lastExit     *Exit
	lastError    string
	replaceError string
}

type child struct {
	id      uint64
	phase   phase
	spec    Spec
	readyAt time.Time
}

type phase uint8

const (
	absent phase = iota
	starting
	ready
	stopping
)

// sequel is what follows the end of the current child.
type sequel uint8

const (
	thenJudge sequel = iota // it was not asked to end: back-off or failed
	thenStop
	thenStart
)

// event is what happened, when, and the dice for it: next throws none itself.
type event struct {
	kind eventKind
	at   time.Time
	rand float64
	id   uint64 // of an incarnation, or of a Replace
	spec Spec
	end  ending
}

type eventKind uint8

const (
	evBoot     eventKind = iota
	evDemand             // an Acquire found no session
	evTimer              // what effArm asked for
	evUp                 // incarnation id has done its handshake
	evDown               // the ready incarnation id is of no more use; evGone will follow
	evGone               // incarnation id has ended and everything of it is joined
	evIdle               // incarnation id was unused for IdleStop
	evStart              // by hand
	evStop               // by hand
	evRestart            // by hand
	evReplace            // id names the request
	evRetune             // limits only
	evShutdown           // Run ends
)

// ending is how an incarnation ended.
type ending struct {
	exit      Exit
	permanent bool // it cannot be executed
	timedOut  bool // its handshake ran out of time
	fresh     bool // the Dialer asks for another process
}

// effect is what the owner of a life has to do.
type effect struct {
	kind  effectKind
	id    uint64 // of an incarnation, or of a Replace
	spec  Spec
	drain bool // effStop: let calls in flight end first
	delay time.Duration
	err   error
}

type effectKind uint8

const (
	effStart  effectKind = iota // start incarnation id with spec
	effStop                     // stop incarnation id
	effCut                      // stop it without waiting for calls in flight any longer
	effReady                    // id is the current session from now on
	effAnswer                   // tell the Replace id its outcome
	effArm                      // send evTimer after delay
	effDisarm                   // do not
)

func newLife(spec Spec) life { return life{state: StateStopped, spec: spec} }

// over says that nothing is left of a closing server.
func (l life) over() bool {
	return l.closing && l.cur.phase == absent && l.cand.phase == absent && len(l.retiring) == 0
}

// onDemand says that the next start waits for a demand.
func (l life) onDemand() bool {
	if l.closing || l.held {
		return false
	}
	return l.state == StateStopped || l.state == StateFailed && l.spec.Lazy
}

// demandable says that a demand changes something. Callers ask before they send one: each change wakes all of them.
func (l life) demandable() bool {
	return l.onDemand() || l.state == StateDraining && l.then == thenStop && !l.held && !l.closing
}

// next is the life after e, and what has to be done about it.
func next(l life, e event) (life, []effect) {
	s := step{life: l, e: e}
	s.retiring = slices.Clone(l.retiring)
	s.deaths = slices.Clone(l.deaths)
	s.run()
	if s.state != l.state || s.since.IsZero() {
		s.since = e.at
	}
	return s.life, s.out
}

// step is one call of next at work.
type step struct {
	life
	e   event
	out []effect
}

func (s *step) do(e effect) { s.out = append(s.out, e) }

func (s *step) run() {
	switch s.e.kind {
	case evBoot:
		if !s.spec.Lazy && !s.held {
			s.start()
		}
	case evDemand:
		s.demand()
	case evTimer:
		s.timer()
	case evUp:
		s.up()
	case evDown:
		s.down()
	case evGone:
		s.gone()
	case evIdle:
		if s.cur.id == s.e.id && s.cur.phase == ready && s.cand.phase == absent {
			s.stopCurrent(true, thenStop)
		}
	case evStart:
		s.startByHand()
	case evStop:
		s.stopByHand()
	case evRestart:
		s.restartByHand()
	case evReplace:
		s.replace()
	case evRetune:
		s.retune()
	case evShutdown:
		s.shutdown()
	}
}

// start brings up a new current child. The old one is gone.
func (s *step) start() {
	s.lastID++
	s.starts++
	s.cur = child{id: s.lastID, phase: starting, spec: s.spec}
	s.then = thenJudge
	s.state = StateStarting
	s.nextTry = time.Time{}
	s.do(effect{kind: effDisarm})
	s.do(effect{kind: effStart, id: s.cur.id, spec: s.spec})
}

// stopCurrent sends the current child away.
func (s *step) stopCurrent(drain bool, then sequel) {
	s.then = then
	s.state = StateDraining
	if s.cur.phase != stopping {
		s.do(effect{kind: effStop, id: s.cur.id, drain: drain && s.cur.phase == ready})
		s.cur.phase = stopping
	}
}

// retire sends c away and forgets it but for its end.
func (s *step) retire(c child, drain bool) {
	if c.phase == absent {
		return
	}
	if c.phase != stopping {
		s.do(effect{kind: effStop, id: c.id, drain: drain && c.phase == ready})
	}
	s.retiring = append(s.retiring, c.id)
	if len(s.retiring) > retiringLimit {
		s.do(effect{kind: effCut, id: s.retiring[0]})
	}
}

// forgive forgets past misfortunes: somebody has changed something.
func (s *step) forgive() {
	s.attempts, s.deaths, s.timeouts, s.halfOpen, s.fresh = 0, nil, 0, false, 0
}

// answer tells the waiting Replace its outcome.
func (s *step) answer(err error) {
	if s.pending != 0 {
		s.do(effect{kind: effAnswer, id: s.pending, err: err})
		s.pending = 0
	}
}

// dropCandidate ends a Replace that is under way because of something newer. What it asked for is what is wanted.
func (s *step) dropCandidate(why string) {
	if s.cand.phase != absent {
		s.spec = s.cand.spec
		s.retire(s.cand, false)
		s.cand = child{}
	}
	s.rollback = nil
	s.answer(errors.New(why))
}

// adoptRefused takes up what the last Replace asked for in vain.
func (s *step) adoptRefused() {
	if s.refused != nil {
		s.spec = *s.refused
		s.refused, s.replaceError = nil, ""
	}
}

func (s *step) demand() {
	if s.held || s.closing {
		return
	}
	switch {
	case s.state == StateStopped:
		s.start()
	case s.state == StateFailed && s.spec.Lazy && !s.e.at.Before(s.nextTry):
		s.halfOpen = true
		s.start()
	case s.state == StateDraining && s.then == thenStop:
		s.then = thenStart
	}
}

func (s *step) timer() {
	switch s.state {
	case StateBackoff:
		s.start()
	case StateFailed:
		s.halfOpen = true
		s.start()
	}
}

func (s *step) up() {
	switch {
	case s.cur.id == s.e.id && s.cur.phase == starting:
	case s.cand.id == s.e.id && s.cand.phase == starting:
		s.retire(s.cur, true)
		s.cur, s.cand = s.cand, child{}
		s.spec = s.cur.spec
		s.starts++
		s.attempts = 0
	default:
		return // it was sent away meanwhile
	}
	s.cur.phase = ready
	s.cur.readyAt = s.e.at
	s.state = StateReady
	s.then = thenJudge
	s.deaths, s.timeouts, s.halfOpen, s.fresh = nil, 0, false, 0
	s.lastError = ""
	s.nextTry = time.Time{}
	s.do(effect{kind: effReady, id: s.cur.id})
	if s.pending != 0 {
		s.rollback, s.refused, s.replaceError = nil, nil, ""
		s.answer(nil)
	}
	s.rollback = nil
}

func (s *step) down() {
	if s.cur.id != s.e.id || s.cur.phase != ready {
		return
	}
	s.cur.phase = stopping
	s.then = thenJudge
	s.state = StateDraining
	if s.cand.phase != absent {
		s.state = StateStarting
	}
}

func (s *step) gone() {
	if i := slices.Index(s.retiring, s.e.id); i >= 0 {
		s.retiring = slices.Delete(s.retiring, i, i+1)
		return
	}
	switch s.e.id {
	case s.cand.id:
		s.candidateGone()
	case s.cur.id:
		s.currentGone()
	}
}

func (s *step) candidateGone() {
	if s.e.end.fresh && s.fresh < freshLimit {
		s.fresh++
		s.lastID++
		s.cand.id = s.lastID
		s.do(effect{kind: effStart, id: s.cand.id, spec: s.cand.spec})
		return
	}
	s.fresh = 0
	wanted := s.cand.spec
	s.refused = &wanted
	s.cand = child{}
	s.replaceError = "the new child did not come up, the old one stays: " + explain(s.e.end.exit)
	s.answer(errors.New(s.replaceError))
	switch s.cur.phase {
	case absent: // the old one died meanwhile
		s.attempts++
		s.failedStarts++
		s.lastError = s.replaceError
		s.backOff()
	case stopping:
		s.state = StateDraining
	}
}

func (s *step) currentGone() {
	end := s.e.end
	was := s.cur
	s.lastExit = &end.exit
	s.cur = child{}
	neverReady := was.readyAt.IsZero()
	switch {
	case s.closing, s.held && s.then != thenStart:
		s.state = StateStopped
		return
	case s.then == thenStop:
		s.state = StateStopped
		return
	case s.then == thenStart:
		s.start()
		return
	case end.fresh && neverReady && s.fresh < freshLimit:
		s.fresh++
		s.starts-- // not a restart: the Dialer is still feeling its way
		s.start()
		return
	}
	// It was not asked to end.
	s.fresh = 0
	s.lastError = explain(end.exit)
	if !neverReady && s.e.at.Sub(was.readyAt) >= stableAfter {
		s.forgive()
	}
	s.attempts++
	if neverReady {
		s.failedStarts++
		s.deaths = slices.DeleteFunc(s.deaths, func(t time.Time) bool { return s.e.at.Sub(t) > deathWindow })
		s.deaths = append(s.deaths, s.e.at)
		s.timeouts++
		if !end.timedOut {
			s.timeouts = 0
		}
	}
	if s.cand.phase != absent { // the new one may still take over
		s.state = StateStarting
		return
	}
	if s.pending != 0 {
		err := fmt.Errorf("the new child did not come up: %s", s.lastError)
		if s.rollback != nil {
			wanted := s.spec
			s.refused, s.spec, s.rollback = &wanted, *s.rollback, nil
			s.replaceError = "the new child did not come up, the old command runs again: " + s.lastError
			s.answer(errors.New(s.replaceError))
			s.forgive()
			s.start()
			return
		}
		s.replaceError = err.Error()
		s.answer(err)
	}
	switch {
	case end.permanent:
		s.fail("")
	case s.halfOpen:
		s.fail("the try after the pause failed as well")
	case len(s.deaths) >= deathLimit:
		s.fail(fmt.Sprintf("it ended %d times within %s without becoming ready", len(s.deaths), deathWindow))
	case s.timeouts >= timeoutLimit:
		s.fail(fmt.Sprintf("it did not finish its handshake in time, %d times in a row", s.timeouts))
	default:
		s.backOff()
	}
}

// backOff waits before the next start: full jitter over a bound that doubles, never less than BackoffMin.
func (s *step) backOff() {
	lo, hi := s.spec.BackoffMin, s.spec.BackoffMax
	bound := float64(lo) * math.Pow(2, float64(min(s.attempts, 32)))
	bound = min(bound, float64(hi))
	delay := lo + time.Duration(s.e.rand*max(bound-float64(lo), 0))
	s.state = StateBackoff
	s.nextTry = s.e.at.Add(delay)
	s.do(effect{kind: effArm, delay: delay})
}

// fail opens the breaker. A lazy server gets its next try from the first demand after the pause, so that a server that
// nobody uses costs nothing.
func (s *step) fail(why string) {
	s.state = StateFailed
	if why != "" {
		s.lastError = why + "; the last time: " + s.lastError
	}
	s.deaths, s.timeouts, s.halfOpen = nil, 0, false
	s.nextTry = s.e.at.Add(halfOpenAfter)
	if !s.spec.Lazy {
		s.do(effect{kind: effArm, delay: halfOpenAfter})
	}
}

func (s *step) startByHand() {
	if s.closing {
		return
	}
	s.held = false
	switch s.state {
	case StateStopped, StateBackoff, StateFailed:
		s.forgive()
		s.adoptRefused()
		s.start()
	case StateDraining:
		s.then = thenStart
	}
}

func (s *step) stopByHand() {
	if s.closing {
		return
	}
	s.held = true
	s.dropCandidate("the server was stopped before the new child was up; the next start runs the new command")
	s.forgive()
	s.nextTry = time.Time{}
	s.do(effect{kind: effDisarm})
	switch s.cur.phase {
	case absent:
		s.state = StateStopped
	case stopping:
		s.do(effect{kind: effCut, id: s.cur.id})
		s.stopCurrent(false, thenStop)
	default:
		s.stopCurrent(true, thenStop)
	}
}

func (s *step) restartByHand() {
	if s.closing {
		return
	}
	s.held = false
	s.dropCandidate("the server was restarted before the new child was up; it starts with the new command")
	s.adoptRefused()
	s.forgive()
	switch s.cur.phase {
	case absent:
		s.start()
	case stopping:
		s.do(effect{kind: effCut, id: s.cur.id})
		s.stopCurrent(false, thenStart)
	default:
		s.stopCurrent(true, thenStart)
	}
}

func (s *step) replace() {
	id, spec := s.e.id, s.e.spec
	if s.closing {
		s.do(effect{kind: effAnswer, id: id, err: errClosing})
		return
	}
	s.answer(errors.New("a newer replacement took its place"))
	s.retire(s.cand, false)
	s.cand = child{}
	s.refused, s.replaceError = nil, ""
	s.fresh = 0
	old := s.spec
	s.pending = id
	if s.cur.phase == ready && !spec.StopFirst && !old.StopFirst {
		s.lastID++
		s.cand = child{id: s.lastID, phase: starting, spec: spec}
		s.do(effect{kind: effStart, id: s.cand.id, spec: spec})
		return
	}
	s.spec = spec
	s.forgive()
	switch s.cur.phase {
	case ready:
		s.rollback = &old
		s.stopCurrent(true, thenStart)
	case starting:
		s.stopCurrent(false, thenStart)
	case stopping:
		if s.then == thenStop {
			s.answer(nil) // stopped by hand or unused: it runs when it is wanted again
			return
		}
		s.stopCurrent(false, thenStart)
	case absent:
		if s.held || s.state == StateStopped && spec.Lazy || s.state == StateStopped && !old.Lazy {
			s.answer(nil)
			return
		}
		s.start()
	}
}

func (s *step) retune() {
	wasLazy := s.spec.Lazy
	s.spec = s.spec.retuned(s.e.spec)
	s.cur.spec = s.cur.spec.retuned(s.e.spec)
	if s.refused != nil {
		r := s.refused.retuned(s.e.spec)
		s.refused = &r
	}
	if s.rollback != nil {
		r := s.rollback.retuned(s.e.spec)
		s.rollback = &r
	}
	if s.held || s.closing || !wasLazy || s.spec.Lazy {
		return
	}
	switch s.state { // it is eager now
	case StateStopped:
		s.start()
	case StateFailed:
		s.do(effect{kind: effArm, delay: max(s.nextTry.Sub(s.e.at), 0)})
	}
}

func (s *step) shutdown() {
	if s.closing {
		return
	}
	s.closing = true
	s.dropCandidate(errClosing.Error())
	s.nextTry = time.Time{}
	s.do(effect{kind: effDisarm})
	if s.cur.phase == absent {
		s.state = StateStopped
		return
	}
	s.stopCurrent(true, thenStop)
}

// explain says how a child ended, with its last words.
func explain(e Exit) string {
	text := e.Reason
	if text == "" {
		text = e.String()
	}
	const show = 3
	if lines := e.Stderr; len(lines) > 0 {
		text += "; stderr: " + strings.Join(lines[max(0, len(lines)-show):], " | ")
	}
	return text
}
