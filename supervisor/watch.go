package supervisor

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// minTick is the shortest time between two looks at a session that carries nothing.
	minTick = 10 * time.Second
	// probeTimeout bounds one probe.
	probeTimeout = 10 * time.Second
	// missLimit misses in a row end a child.
	missLimit = 3
	// probeEcho is how long after a probe something of it may still go over the pipes: its cancellation, a late answer.
	probeEcho = time.Second
	// leap is the difference by which a clock or a timer must be off to mean that the machine slept, or that the
	// daemon was stopped.
	leap = 5 * time.Second
)

// watch looks at a ready session from time to time: is it still used, is it still alive? It belongs to the goroutine
// of its incarnation.
type watch struct {
	session Session
	limits  *atomic.Pointer[Spec]
	wall    func() time.Time

	timer *time.Timer
	armed moment        // when the timer was set
	wait  time.Duration // what it was set to

	usedAt  time.Time // when it was last seen to carry something that is not a probe
	quietAt time.Time // since when there is nothing to see of it: the base of the next probe
	misses  int

	probed     chan error // the outcome of a probe; capacity 1
	cancel     func()     // ends the running probe; nil when none runs
	probeBegan moment     // of the latest probe
	probeEnded time.Time
}

// moment is a point of time on both clocks: the monotonic one stands still while the machine sleeps (on most systems),
// the wall clock does not.
type moment struct{ mono, wall time.Time }

func (w *watch) now() moment { return moment{time.Now(), w.wall().Round(0)} }

// leapt says that more time went by between a and b than the process saw.
func leapt(a, b moment) bool {
	d := b.wall.Sub(a.wall) - b.mono.Sub(a.mono)
	return d > leap || d < -leap
}

func newWatch(session Session, limits *atomic.Pointer[Spec], wall func() time.Time) *watch {
	w := &watch{session: session, limits: limits, wall: wall, probed: make(chan error, 1), timer: time.NewTimer(time.Hour)}
	w.usedAt = time.Now()
	w.quietAt = w.usedAt
	w.rearm()
	return w
}

// stop ends a running probe and joins it.
func (w *watch) stop() {
	w.timer.Stop()
	if w.cancel != nil {
		w.cancel()
		<-w.probed
	}
}

func (w *watch) tick() <-chan time.Time { return w.timer.C }

// look takes note of what the session carries. It is not called while a probe runs, because a session may count the
// probe as a call and its bytes as traffic; for the same reason traffic until shortly after a probe is taken for its
// own. A short call that falls wholly into that window is overlooked: the idle time may then end a little early.
func (w *watch) look() Load {
	load := w.session.Load()
	now := time.Now()
	if load.Calls > 0 || load.Subscriptions > 0 {
		w.usedAt = now
	}
	if load.Calls > 0 {
		w.quietAt = now
		w.misses = 0
	}
	// The session's clock may be the wall clock: take over the distance, not the reading.
	at := now.Add(min(load.LastActivity.Sub(now), 0))
	if !at.Before(w.probeBegan.mono) && !at.After(w.probeEnded.Add(probeEcho)) {
		return load
	}
	w.usedAt = latest(w.usedAt, at)
	if at.After(w.quietAt) {
		w.quietAt = at
		w.misses = 0
	}
	return load
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// rearm sets the timer to the next moment at which something can be due. While a probe runs there is none.
func (w *watch) rearm() {
	w.timer.Stop()
	if w.cancel != nil {
		return
	}
	load := w.look()
	limits := w.limits.Load()
	now := w.now()
	var next time.Duration
	consider := func(d, least time.Duration) {
		if d = max(d, least); next == 0 || d < next {
			next = d
		}
	}
	if limits.IdleStop > 0 {
		// Right after a call the bound is exact; only in use it is looked at again and again, so seldom.
		least := time.Millisecond
		if load.Calls > 0 || load.Subscriptions > 0 {
			least = minTick
		}
		consider(w.usedAt.Add(limits.IdleStop).Sub(now.mono), least)
	}
	if limits.ProbeInterval > 0 {
		after := limits.ProbeInterval
		if w.misses > 0 {
			after = minTick
		}
		consider(w.quietAt.Add(after).Sub(now.mono), minTick)
	}
	if next == 0 {
		return
	}
	w.armed, w.wait = now, next
	w.timer.Reset(next)
}

// due is called when the timer fired. It says whether the child is to be stopped because it is not used, and starts a
// probe where one is due.
func (w *watch) due() (idle bool) {
	defer w.rearm()
	now := w.now()
	if leapt(w.armed, now) || now.mono.Sub(w.armed.mono) > w.wait+leap {
		// The machine slept. What was missed meanwhile says nothing about the child.
		w.misses = 0
		w.quietAt = now.mono
		return false
	}
	load := w.look()
	if load.Calls > 0 {
		return false
	}
	limits := w.limits.Load()
	if limits.IdleStop > 0 && load.Subscriptions == 0 && now.mono.Sub(w.usedAt) >= limits.IdleStop {
		w.usedAt = now.mono // where the report comes at a bad time, another follows
		return true
	}
	after := limits.ProbeInterval
	if w.misses > 0 {
		after = minTick
	}
	if limits.ProbeInterval > 0 && now.mono.Sub(w.quietAt) >= after {
		w.probe(now)
	}
	return false
}

func (w *watch) probe(now moment) {
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	w.cancel, w.probeBegan = cancel, now
	go func() { w.probed <- w.session.Probe(ctx) }()
}

// judge takes the outcome of the probe, and says whether the child is to be given up.
func (w *watch) judge(err error) (dead bool) {
	w.cancel()
	w.cancel = nil
	defer w.rearm()
	began, now := w.probeBegan, w.now()
	load := w.session.Load()
	w.quietAt, w.probeEnded = now.mono, now.mono
	if load.Calls > 0 || load.Subscriptions > 0 {
		w.usedAt = now.mono
	}
	switch {
	case err == nil:
		w.misses = 0
	case load.Calls > 0:
		// A call may keep it busy: it is judged by that call's own timeout.
		w.misses = 0
	case leapt(began, now) || now.mono.Sub(began.mono) > probeTimeout+leap:
		w.misses = 0
	default:
		w.misses++
	}
	return w.misses >= missLimit
}
