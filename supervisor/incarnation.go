package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mcpd/supervisor/childlog"
)

const (
	// afterExit is how long the pipes of a dead child may go on giving what is still in them. A descendant that
	// escaped the kill can hold them open for ever.
	afterExit = 2 * time.Second
	// lostGrace is how long a child that ended its conversation by itself has to exit before it is told to.
	lostGrace = time.Second
	// dialGrace is how long after a failed handshake the end of the child counts as the cause and not as what followed.
	dialGrace = 250 * time.Millisecond
	// tailLines and tailBytes bound what is kept of the last words of a child.
	tailLines = 20
	tailBytes = 400
)

// incarnation is one child from its start to the moment when nothing of it is left.
type incarnation[S Session] struct {
	id    uint64
	spec  Spec // at its start; the limits in force are in limits
	limit time.Duration
	first bool // its command line never came up before
	began time.Time

	pid    atomic.Int64
	limits atomic.Pointer[Spec]
	tuned  chan struct{} // capacity 1: limits has changed
	asked  atomic.Bool   // it was told to stop

	// The goroutine of Run closes these, each once.
	stop chan struct{} // end, after calls in flight
	cut  chan struct{} // wait for no call

	// session is set before evUp is reported and not after.
	session S

	mu    sync.Mutex
	words []string
}

func newIncarnation[S Session](id uint64, spec Spec, limit time.Duration, first bool) *incarnation[S] {
	inc := &incarnation[S]{
		id: id, spec: spec, limit: limit, first: first, began: time.Now(),
		tuned: make(chan struct{}, 1),
		stop:  make(chan struct{}),
		cut:   make(chan struct{}),
	}
	inc.limits.Store(&spec)
	return inc
}

// askStop tells the incarnation to end. Only the goroutine of Run calls it.
func (inc *incarnation[S]) askStop(drain bool) {
	inc.asked.Store(true)
	if !isClosed(inc.stop) {
		close(inc.stop)
	}
	if !drain && !isClosed(inc.cut) {
		close(inc.cut)
	}
}

func (inc *incarnation[S]) retune(spec Spec) {
	limits := inc.spec.retuned(spec)
	inc.limits.Store(&limits)
	select {
	case inc.tuned <- struct{}{}:
	default:
	}
}

// hear keeps a line of stderr.
func (inc *incarnation[S]) hear(text string) {
	if len(text) > tailBytes {
		text = text[:tailBytes] + "…"
	}
	inc.mu.Lock()
	defer inc.mu.Unlock()
	if len(inc.words) == tailLines {
		inc.words = slices.Delete(inc.words, 0, 1)
	}
	inc.words = append(inc.words, text)
}

// lastWords are the last lines of its stderr, oldest first.
func (inc *incarnation[S]) lastWords() []string {
	inc.mu.Lock()
	defer inc.mu.Unlock()
	return slices.Clone(inc.words)
}

// dialed is the outcome of a handshake.
type dialed[S Session] struct {
	session S
	err     error
}

// live runs the incarnation from its start to its end. When it returns the process and what it started are dead, and
// every goroutine made here or in the session has ended.
func (s *Server[S]) live(inc *incarnation[S]) ending {
	proc, err := s.starter.Start(Command{Name: inc.spec.Command, Args: inc.spec.Args, Env: inc.spec.Env, Dir: inc.spec.Dir})
	if err != nil {
		return notStarted(err)
	}
	inc.pid.Store(int64(proc.PID()))
	s.log.Notef("started, pid %d", proc.PID())
	s.logger.Info("the child was started", "pid", proc.PID(), "incarnation", inc.id)
	s.events <- report[S]{event{kind: evBoot, id: inc.id}, inc}

	b := &body[S]{
		s: s, inc: inc, proc: proc,
		stdin:  &closeOnce{close: proc.Stdin().Close},
		stdout: &closeOnce{close: proc.Stdout().Close},
		exited: make(chan struct{}),
		heard:  make(chan struct{}),
		dialed: make(chan dialed[S], 1),
	}
	go func() {
		defer close(b.heard)
		// An error here is a broken pipe of a child that ends anyway.
		_ = s.log.Copy(childlog.Stderr, proc.Stderr(), inc.hear)
	}()
	go func() {
		defer close(b.exited)
		b.exit = proc.Wait()
	}()
	return b.live()
}

// notStarted is the end of a child that never was.
func notStarted(err error) ending {
	end := ending{exit: Exit{Code: -1, At: time.Now(), Reason: err.Error()}}
	if se, ok := errors.AsType[*StartError](err); ok {
		end.permanent = se.Permanent
	}
	return end
}

// body is an incarnation that has a process.
type body[S Session] struct {
	s      *Server[S]
	inc    *incarnation[S]
	proc   Process
	stdin  *closeOnce
	stdout *closeOnce

	exited chan struct{} // exit is set, group and job are dead
	exit   Exit
	heard  chan struct{} // stderr is read to its end
	dialed chan dialed[S]

	terminated, killed bool // what it took to end it
}

// live is the handshake, the time of service, and the end.
func (b *body[S]) live() ending {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		var d dialed[S]
		d.session, d.err = b.s.dialer.Dial(ctx, Pipes{
			Stdin:       writeEnd{b.proc.Stdin(), b.stdin},
			Stdout:      readEnd{b.proc.Stdout(), b.stdout},
			PID:         b.proc.PID(),
			Incarnation: b.inc.id,
			Junk:        func(line []byte) { b.s.log.Write(childlog.Stdout, line) },
		})
		b.dialed <- d
	}()
	limit := time.NewTimer(b.inc.limit)
	defer limit.Stop()

	var end ending
	exited := b.exited
	for {
		select {
		case d := <-b.dialed:
			if d.err == nil {
				b.inc.session = d.session
				reason := b.serve()
				return b.ended(ending{}, reason, d.session)
			}
			reason := fmt.Sprintf("the handshake failed: %v", d.err)
			if retry, ok := errors.AsType[*RetryStart](d.err); ok {
				end.fresh = true
				reason = retry.Error()
			} else if b.deadWithin(dialGrace) {
				reason = "it ended during its handshake"
			}
			b.stdout.Close() // nobody reads it any more: a child that still writes must not hang
			b.shut(lostGrace)
			return b.ended(end, reason, nil)
		case <-exited:
			// What it said at last is still in the pipe: the Dialer may find its answer there, or the end.
			exited = nil
			limit.Reset(afterExit)
		case <-limit.C:
			reason := "it ended during its handshake"
			if !isClosed(b.exited) {
				reason = fmt.Sprintf("it did not finish its handshake within %s", b.inc.limit)
				end.timedOut = true
			}
			return b.abandon(cancel, end, reason)
		case <-b.inc.stop:
			return b.abandon(cancel, end, "it was stopped during its handshake")
		}
	}
}

// abandon ends a child whose handshake has no outcome yet.
func (b *body[S]) abandon(cancel context.CancelFunc, end ending, reason string) ending {
	cancel()
	b.shut(0)
	b.stdout.Close()
	d := <-b.dialed
	if d.err == nil { // it came up at the last moment
		return b.ended(end, reason, d.session)
	}
	return b.ended(end, reason, nil)
}

// serve reports the session and looks after it until the child is to end or has ended. It says why, and leaves a dead
// child behind.
func (b *body[S]) serve() string {
	inc, session := b.inc, b.inc.session
	b.s.events <- report[S]{event{kind: evUp, id: inc.id}, inc}
	w := newWatch(session, &inc.limits, b.s.wall)
	defer w.stop()
	for {
		select {
		case <-inc.stop:
			b.drain()
			b.shut(inc.limits.Load().StopTimeout)
			return "it was stopped"
		case <-session.Done():
			b.s.events <- report[S]{event{kind: evDown, id: inc.id}, inc}
			b.shut(lostGrace)
			return fmt.Sprintf("the conversation ended: %v", session.Err())
		case <-b.exited:
			// The session reads what is left and then ends by itself; see ended.
			b.s.events <- report[S]{event{kind: evDown, id: inc.id}, inc}
			return "it ended by itself"
		case <-inc.tuned:
			w.rearm()
		case <-w.tick():
			if w.due() {
				b.s.events <- report[S]{event{kind: evIdle, id: inc.id}, inc}
			}
		case err := <-w.probed:
			if w.judge(err) {
				b.s.events <- report[S]{event{kind: evDown, id: inc.id}, inc}
				b.shut(lostGrace)
				return fmt.Sprintf("it gave no sign of life %d times in a row: %v", missLimit, err)
			}
		}
	}
}

// drain lets calls in flight end.
func (b *body[S]) drain() {
	if isClosed(b.inc.cut) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), b.inc.limits.Load().DrainTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- b.inc.session.Drain(ctx) }()
	select {
	case err := <-done:
		if err != nil {
			b.s.logger.Warn("calls were still running when the child was stopped", "pid", b.proc.PID(), "calls", b.inc.session.Load().Calls)
		}
		return
	case <-b.inc.cut:
	case <-b.exited:
	}
	cancel()
	<-done
}

// shut ends the process: stdin is closed, then it has polite to exit, then it is asked, then it is killed, with all
// that it started. When shut returns it is dead and reaped.
func (b *body[S]) shut(polite time.Duration) {
	if isClosed(b.exited) {
		return
	}
	step := b.inc.limits.Load().StopTimeout
	b.stdin.Close()
	if polite > 0 && b.deadWithin(min(polite, step)) {
		return
	}
	if err := b.proc.Terminate(); err == nil {
		b.terminated = true
		if b.deadWithin(step) {
			return
		}
	}
	for {
		b.killed = true
		if err := b.proc.Kill(); err != nil {
			b.s.logger.Error("the child cannot be killed", "pid", b.proc.PID(), "error", err)
		}
		if b.deadWithin(max(step, minTick)) {
			return
		}
		b.s.logger.Error("the child does not die although it was killed; the next one starts when it is gone", "pid", b.proc.PID())
	}
}

func (b *body[S]) deadWithin(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-b.exited:
		return true
	case <-t.C:
		return false
	}
}

// ended joins everything of a dead child and says how it ended. session is nil when there is none.
func (b *body[S]) ended(end ending, why string, session Session) ending {
	<-b.exited
	b.stdin.Close()
	end.exit = b.exit
	end.exit.PID = b.proc.PID()
	if end.exit.At.IsZero() {
		end.exit.At = time.Now()
	}
	switch {
	case b.killed:
		why += "; it had to be killed"
	case b.terminated, b.inc.asked.Load():
	default:
		why = fmt.Sprintf("%s (%s)", why, end.exit)
	}
	end.exit.Reason = why

	grace := time.NewTimer(afterExit)
	defer grace.Stop()
	if session != nil {
		select {
		case <-session.Done(): // it has read all that was left
		case <-grace.C:
			grace.Reset(0)
		}
		b.stdout.Close()
		session.Close(errors.New(why))
	}
	b.stdout.Close()
	select {
	case <-b.heard:
	case <-grace.C:
		_ = b.proc.Stderr().Close()
		<-b.heard
	}
	_ = b.proc.Stderr().Close()
	end.exit.Stderr = b.inc.lastWords()
	return end
}

// closeOnce closes one end of a pipe, whoever comes first.
type closeOnce struct {
	once  sync.Once
	close func() error
	err   error
}

func (c *closeOnce) Close() error {
	c.once.Do(func() { c.err = c.close() })
	return c.err
}

type writeEnd struct {
	io.Writer
	io.Closer
}

// SetWriteDeadline works where the system has deadlines for pipes.
func (w writeEnd) SetWriteDeadline(t time.Time) error {
	if d, ok := w.Writer.(interface{ SetWriteDeadline(time.Time) error }); ok {
		return d.SetWriteDeadline(t)
	}
	return os.ErrNoDeadline
}

// MakeRoom has the pipe hold more, where the system can do that.
func (w writeEnd) MakeRoom() { makeRoom(w.Writer) }

type readEnd struct {
	io.Reader
	io.Closer
}

// MakeRoom has the pipe hold more, where the system can do that.
func (r readEnd) MakeRoom() { makeRoom(r.Reader) }
