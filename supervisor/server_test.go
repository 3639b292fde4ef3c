package supervisor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

type opts = Options[*lineSession]

func dies(p *fakeChild) Exit {
	p.say("no library here")
	return Exit{Code: 2}
}

func gaps(ts []time.Time) (out []time.Duration) {
	for i := 1; i < len(ts); i++ {
		out = append(out, ts[i].Sub(ts[i-1]))
	}
	return out
}

func TestBackoffDoublesUntilTheBreakerOpensAndOneTryAfterFiveMinutesClosesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStarter{script: func(p *fakeChild) Exit {
			if p.n <= 6 {
				return dies(p)
			}
			return p.echo()
		}}
		s := run(t, Spec{Name: "lib"}, opts{Starter: f, Rand: func() float64 { return 0.999999 }})
		st := until(t, s.Server, "failed", inState(StateFailed))
		for i, want := range []time.Duration{400, 800, 1600, 3200} {
			if got := gaps(f.starts())[i].Round(10 * time.Millisecond); got != want*time.Millisecond {
				t.Errorf("pause %d is %s, want %s", i+1, got, want*time.Millisecond)
			}
		}
		if len(f.starts()) != 5 || !strings.Contains(st.LastError, "ended 5 times within 1m0s") || !strings.Contains(st.LastError, "exit code 2") || !strings.Contains(st.LastError, "no library here") {
			t.Errorf("%d starts, status %+v", len(f.starts()), st)
		}
		// Callers are answered at once and start nothing.
		for range 100 {
			begin := time.Now()
			_, err := s.Acquire(t.Context())
			if u := unavailable(t, err); u.State != StateFailed || u.RetryAfter != 5*time.Minute || time.Since(begin) != 0 {
				t.Fatalf("%+v after %s", u, time.Since(begin))
			}
		}
		time.Sleep(5*time.Minute + time.Millisecond)
		synctest.Wait()
		if st := s.Status(); st.State != StateFailed || len(f.starts()) != 6 {
			t.Errorf("after a half-open try that died: %s, %d starts", st.State, len(f.starts()))
		}
		time.Sleep(5*time.Minute + time.Millisecond)
		synctest.Wait()
		if st := s.Status(); st.State != StateReady || st.LastError != "" || !st.NextTry.IsZero() {
			t.Errorf("after one that lived: %+v", st)
		}
	})
}

func TestJitterNeverGoesBelowTheMinimumNorAboveTheMaximum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, dice := range []float64{0, 0.5, 0.999999} {
			f := &fakeStarter{script: func(p *fakeChild) Exit { return p.lives(time.Second) }}
			s := run(t, Spec{Name: "lib"}, opts{Starter: f, Rand: func() float64 { return dice }})
			time.Sleep(10 * time.Minute)
			s.stop()
			for i, g := range gaps(f.starts()) {
				if g < time.Second+200*time.Millisecond || g > 31*time.Second {
					t.Errorf("dice %v: gap %d is %s", dice, i, g)
				}
			}
			if st := s.Status(); st.LastError != "" && strings.Contains(st.LastError, "failed") {
				t.Errorf("status %+v", st)
			}
		}
	})
}

func TestACrashLoopOfReadyChildrenSlowsDownAndOnlyAStableMinuteForgives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStarter{script: func(p *fakeChild) Exit {
			if p.n == 12 {
				return p.lives(time.Minute)
			}
			return p.lives(10 * time.Millisecond)
		}}
		s := run(t, Spec{Name: "lib"}, opts{Starter: f, Rand: func() float64 { return 0.999999 }})
		for len(f.starts()) < 14 {
			time.Sleep(time.Second)
		}
		s.stop()
		g := gaps(f.starts())
		if got := g[10].Round(time.Second); got != 30*time.Second {
			t.Errorf("the 11th pause is %s, want 30s", got)
		}
		if got := (g[11] - time.Minute).Round(10 * time.Millisecond); got != 400*time.Millisecond {
			t.Errorf("the pause after a stable minute is %s, want 400ms", got)
		}
	})
}

func TestManyCallersWaitForOneStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStarter{script: func(p *fakeChild) Exit {
			time.Sleep(3 * time.Second)
			return p.echo()
		}}
		s := run(t, Spec{Name: "lib", Lazy: true}, opts{Starter: f})
		synctest.Wait()
		if st := s.Status(); st.State != StateStopped || !st.OnDemand || len(f.starts()) != 0 {
			t.Fatalf("a lazy server before any demand: %+v", st)
		}
		begin := time.Now()
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if _, err := s.Acquire(t.Context()); err != nil || time.Since(begin) != 3*time.Second {
					t.Errorf("%v after %s", err, time.Since(begin))
				}
			})
		}
		wg.Wait()
		if n := len(f.starts()); n != 1 {
			t.Errorf("%d starts", n)
		}
	})
}

func TestTheFirstStartOfACommandLineMayTakeLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := &startMemory{}
		f := &fakeStarter{script: func(p *fakeChild) Exit {
			p.say("npm: fetching the library")
			if p.n == 1 {
				time.Sleep(100 * time.Second)
				return p.echo()
			}
			return p.hang()
		}}
		s := run(t, Spec{Name: "lib"}, opts{Starter: f, StartMemory: memory})
		synctest.Wait()
		if st := s.Status(); !st.Installing || st.State != StateStarting || strings.Join(st.StderrTail, "") != "npm: fetching the library" {
			t.Errorf("status %+v", st)
		}
		mustAcquire(t, s) // 100 s are within the 120 s of a first start
		s.stop()

		s = run(t, Spec{Name: "lib"}, opts{Starter: f, StartMemory: memory})
		begin := time.Now()
		_, err := s.Acquire(t.Context())
		u := unavailable(t, err)
		if took := time.Since(begin); took != 30*time.Second || !strings.Contains(u.Reason, "not ready after 30s") || !strings.Contains(u.Reason, "fetching") {
			t.Errorf("%v after %s", u, took)
		}
		synctest.Wait()
		if s.Status().Installing {
			t.Error("a command line that has come up before is not installing")
		}
	})
}

func TestHandshakesThatNeverEndMakeItFailedAfterFive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStarter{script: (*fakeChild).hang}
		s := run(t, Spec{Name: "lib", FirstStartTimeout: 30 * time.Second}, opts{Starter: f})
		st := until(t, s.Server, "failed", inState(StateFailed))
		if len(f.starts()) != 5 || !strings.Contains(st.LastError, "5 times in a row") {
			t.Errorf("%d starts, %+v", len(f.starts()), st)
		}
	})
}

func TestACallerIsAnsweredWhenTwoChildrenDiedInTheirHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStarter{script: dies}
		s := run(t, Spec{Name: "lib", Lazy: true}, opts{Starter: f, Rand: func() float64 { return 0 }})
		begin := time.Now()
		_, err := s.Acquire(t.Context())
		u := unavailable(t, err)
		if took := time.Since(begin); took > time.Second || u.State != StateBackoff || u.RetryAfter <= 0 ||
			!strings.Contains(u.Reason, "exit code 2") || !strings.Contains(u.Reason, "no library here") || len(f.starts()) != 2 {
			t.Errorf("%+v after %s and %d starts", u, took, len(f.starts()))
		}
	})
}

func TestACallerWaitsThroughOneDeathAndTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStarter{script: func(p *fakeChild) Exit {
			if p.n == 1 {
				return dies(p)
			}
			return p.echo()
		}}
		s := run(t, Spec{Name: "lib"}, opts{Starter: f})
		mustCall(t, mustAcquire(t, s), "hello")
	})
}

func TestTheCallersOwnContextEndsItsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := run(t, Spec{Name: "lib"}, opts{Starter: &fakeStarter{script: (*fakeChild).hang}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire: %v", err)
		}
	})
}

func TestAForkThatFailsForNowIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStarter{script: (*fakeChild).echo, fail: func(n int) error {
			if n <= 2 {
				return &StartError{Reason: "the system has no room for another process"}
			}
			return nil
		}}
		s := run(t, Spec{Name: "lib"}, opts{Starter: f})
		until(t, s.Server, "ready", inState(StateReady))
		if len(f.starts()) != 3 {
			t.Errorf("%d starts", len(f.starts()))
		}
	})
}

func TestADialerGetsAFreshProcessTwiceAndNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStarter{script: (*fakeChild).echo}
		d := &lineDialer{dial: func(_ context.Context, p Pipes) error {
			if p.Incarnation <= 2 {
				return fmt.Errorf("probing: %w", &RetryStart{Cause: errors.New("it died of an unknown request")})
			}
			return nil
		}}
		s := run(t, Spec{Name: "lib"}, opts{Starter: f, Dialer: d})
		begin := time.Now()
		mustAcquire(t, s)
		if st := s.Status(); time.Since(begin) != 0 || st.Restarts != 0 || len(f.starts()) != 3 {
			t.Errorf("%+v, %d starts after %s", st, len(f.starts()), time.Since(begin))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStarter{script: (*fakeChild).echo}
		d := &lineDialer{dial: func(context.Context, Pipes) error { return &RetryStart{Cause: errors.New("again")} }}
		s := run(t, Spec{Name: "lib"}, opts{Starter: f, Dialer: d})
		until(t, s.Server, "back-off after the third", inState(StateBackoff))
		if len(f.starts()) != 3 {
			t.Errorf("%d starts", len(f.starts()))
		}
	})
}

func TestAnUnusedChildIsStoppedAndStartedOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStarter{script: (*fakeChild).echo}
		s := run(t, Spec{Name: "lib", IdleStop: 10 * time.Minute, ProbeInterval: 30 * time.Second}, opts{Starter: f})
		sess := mustAcquire(t, s)
		time.Sleep(9 * time.Minute)
		mustCall(t, sess, "hello") // probes are no use, this is
		time.Sleep(9 * time.Minute)
		if st := s.Status(); st.State != StateReady {
			t.Fatalf("%s 9 minutes after the last call", st.State)
		}
		sess.mu.Lock()
		sess.subs = 1
		sess.mu.Unlock()
		time.Sleep(time.Hour)
		if st := s.Status(); st.State != StateReady {
			t.Fatalf("%s with a subscription open", st.State)
		}
		sess.mu.Lock()
		sess.subs = 0
		sess.mu.Unlock()
		time.Sleep(11 * time.Minute)
		if st := s.Status(); st.State != StateStopped || !st.OnDemand || st.Held {
			t.Fatalf("11 minutes without use: %+v", st)
		}
		mustCall(t, mustAcquire(t, s), "hello again")
		if len(f.starts()) != 2 {
			t.Errorf("%d starts", len(f.starts()))
		}
	})
}

// silence makes probes fail while it is set.
type silence struct {
	mu     sync.Mutex
	on     bool
	probes []time.Time
}

func (q *silence) seen() []time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]time.Time(nil), q.probes...)
}

func (q *silence) set(on bool) { q.mu.Lock(); q.on = on; q.mu.Unlock() }

func (q *silence) probe(ctx context.Context) error {
	q.mu.Lock()
	q.probes = append(q.probes, time.Now())
	on := q.on
	q.mu.Unlock()
	if !on {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func TestThreeMissedProbesRestartAChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &silence{on: true}
		f := &fakeStarter{script: (*fakeChild).echo}
		s := run(t, Spec{Name: "lib", ProbeInterval: 30 * time.Second}, opts{Starter: f, Dialer: &lineDialer{probe: q.probe}})
		mustAcquire(t, s)
		time.Sleep(79 * time.Second) // 30 quiet, and three times 10 for the answer with 10 between
		if n := len(f.starts()); n != 1 {
			t.Fatalf("restarted after %d probes", len(q.seen()))
		}
		time.Sleep(2 * time.Second)
		if st := s.Status(); len(f.starts()) != 2 || !strings.Contains(st.LastExit.Reason, "no sign of life 3 times") {
			t.Errorf("%d starts, %+v", len(f.starts()), st.LastExit)
		}
	})
}

func TestMissesInARowAreForgottenByOneAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &silence{}
		f := &fakeStarter{script: (*fakeChild).echo}
		s := run(t, Spec{Name: "lib", ProbeInterval: 30 * time.Second}, opts{Starter: f, Dialer: &lineDialer{probe: q.probe}})
		mustAcquire(t, s)
		for range 20 {
			q.set(true)
			time.Sleep(35 * time.Second) // at most two misses
			q.set(false)
			time.Sleep(85 * time.Second)
		}
		if n := len(f.starts()); n != 1 {
			t.Errorf("%d starts", n)
		}
	})
}

func TestNoProbeWhileACallRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &silence{on: true}
		f := &fakeStarter{script: (*fakeChild).echo}
		s := run(t, Spec{Name: "lib", ProbeInterval: 30 * time.Second}, opts{Starter: f, Dialer: &lineDialer{probe: q.probe}})
		sess := mustAcquire(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour-time.Second)
		defer cancel()
		_, _ = sess.Call(ctx, "mute")
		if len(q.seen()) != 0 || len(f.starts()) != 1 {
			t.Errorf("%d probes, %d starts during a call of an hour", len(q.seen()), len(f.starts()))
		}
	})
}

func TestProbesMissedOverASuspendDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &silence{on: true}
		f := &fakeStarter{script: (*fakeChild).echo}
		var mu sync.Mutex
		var slept time.Duration
		wall := func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			slept += time.Minute // each look is after another nap
			return time.Now().Add(slept)
		}
		s := run(t, Spec{Name: "lib", ProbeInterval: 30 * time.Second}, opts{Starter: f, Dialer: &lineDialer{probe: q.probe}, wall: wall})
		mustAcquire(t, s)
		time.Sleep(time.Hour)
		if n := len(f.starts()); n != 1 {
			t.Errorf("%d starts", n)
		}
	})
}

func TestAQuietServerIsLookedAtSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &silence{}
		s := run(t, Spec{Name: "lib", ProbeInterval: time.Second}, opts{Starter: &fakeStarter{script: (*fakeChild).echo}, Dialer: &lineDialer{probe: q.probe}})
		mustAcquire(t, s)
		time.Sleep(time.Hour)
		if n := len(q.seen()); n < 300 || n > 360 {
			t.Errorf("%d probes in an hour", n)
		}
		for i, g := range gaps(q.seen()) {
			if g < minTick {
				t.Fatalf("gap %d between probes is %s", i, g)
			}
		}
	})
}

func TestAHeldServerAnswersAtOnceUntilItIsStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStarter{script: (*fakeChild).echo}
		s := run(t, Spec{Name: "lib"}, opts{Starter: f})
		mustAcquire(t, s)
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := s.Acquire(t.Context())
		if u := unavailable(t, err); u.State != StateStopped || !strings.Contains(u.Reason, "mcpd start lib") {
			t.Errorf("%+v", u)
		}
		if err := s.Replace(t.Context(), Spec{Name: "lib", Command: "new"}); err != nil {
			t.Errorf("Replace of a stopped server: %v", err)
		}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := f.names(); got != " new" {
			t.Errorf("started %q", got)
		}
	})
}

func TestStopLetsCallsEndUntilASecondStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStarter{script: (*fakeChild).echo}
		s := run(t, Spec{Name: "lib"}, opts{Starter: f})
		sess := mustAcquire(t, s)
		failed := make(chan error, 1)
		go func() { _, err := sess.Call(t.Context(), "mute"); failed <- err }()
		synctest.Wait()
		begin := time.Now()
		first := make(chan error, 1)
		go func() { first <- s.Stop(t.Context()) }()
		time.Sleep(5 * time.Second)
		if st := s.Status(); st.State != StateDraining {
			t.Errorf("%s while a call runs", st.State)
		}
		if err := s.Stop(t.Context()); err != nil || <-first != nil || time.Since(begin) != 5*time.Second {
			t.Errorf("Stop: %v after %s", err, time.Since(begin))
		}
		if <-failed == nil {
			t.Error("the call was answered")
		}
	})
}

func TestRunDrainsWithinItsTimeoutAndThenStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := run(t, Spec{Name: "lib", DrainTimeout: 7 * time.Second}, opts{Starter: &fakeStarter{script: (*fakeChild).echo}})
		sess := mustAcquire(t, s)
		go func() { _, _ = sess.Call(context.Background(), "mute") }()
		synctest.Wait()
		begin := time.Now()
		s.stop()
		if took := time.Since(begin); took != 7*time.Second {
			t.Errorf("Run took %s to end", took)
		}
		_, err := s.Acquire(t.Context())
		unavailable(t, err)
		if err := s.Start(t.Context()); err == nil {
			t.Error("Start after Run")
		}
	})
}

func TestADescendantThatHoldsThePipesDelaysNothingForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStarter{script: func(p *fakeChild) Exit {
			p.held = p.n == 1
			return p.lives(time.Second)
		}}
		s := run(t, Spec{Name: "lib"}, opts{Starter: f})
		until(t, s.Server, "ended", func(st Status) bool { return st.LastExit != nil })
		if took := time.Since(f.starts()[0]); took > time.Second+2*afterExit {
			t.Errorf("%s", took)
		}
	})
}

func TestReplaceDrainsTheOldChildBesideTheNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStarter{script: func(p *fakeChild) Exit {
			time.Sleep(2 * time.Second)
			return p.echo()
		}}
		d := &lineDialer{}
		s := run(t, Spec{Name: "lib", Command: "old"}, opts{Starter: f, Dialer: d})
		old := mustAcquire(t, s)
		old.mu.Lock()
		old.held = 1 // a call in flight
		old.mu.Unlock()
		replaced := make(chan error, 1)
		go func() { replaced <- s.Replace(t.Context(), Spec{Name: "lib", Command: "new"}) }()
		time.Sleep(time.Second)
		if st := s.Status(); st.State != StateReady || !st.Replacing || mustAcquire(t, s) != old {
			t.Errorf("while the new one starts: %+v", st)
		}
		if err := <-replaced; err != nil {
			t.Fatal(err)
		}
		if now := mustAcquire(t, s); now == old {
			t.Error("the old session after the take-over")
		}
		synctest.Wait()
		if _, err := old.Call(t.Context(), "more"); !errors.Is(err, errDraining) {
			t.Errorf("a new call to the old one: %v", err)
		}
		if st := s.Status(); st.Retiring != 1 || isClosed(old.Done()) {
			t.Errorf("the old one did not stay for its call: %+v", st)
		}
		old.mu.Lock()
		old.held = 0
		old.settle()
		old.mu.Unlock()
		until(t, s.Server, "the old one is gone", func(st Status) bool { return st.Retiring == 0 })
		if fmt.Sprint(d.readied) != "[1 2]" || f.most != 2 {
			t.Errorf("readied %v, %d at once", d.readied, f.most)
		}
	})
}

func TestStopFirstNeverRunsTwoAndGoesBackWhenTheNewOneDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStarter{script: func(p *fakeChild) Exit {
			if p.command == "bad" {
				return dies(p)
			}
			return p.echo()
		}}
		s := run(t, Spec{Name: "lib", Command: "old", StopFirst: true}, opts{Starter: f})
		mustAcquire(t, s)
		err := s.Replace(t.Context(), Spec{Name: "lib", Command: "bad", StopFirst: true})
		if err == nil || !strings.Contains(err.Error(), "exit code 2") || !strings.Contains(err.Error(), "the old command runs again") {
			t.Errorf("Replace: %v", err)
		}
		mustAcquire(t, s)
		if err := s.Replace(t.Context(), Spec{Name: "lib", Command: "good", StopFirst: true}); err != nil {
			t.Error(err)
		}
		if f.names() != "old bad old good" || f.most != 1 {
			t.Errorf("started %q, %d at once", f.names(), f.most)
		}
	})
}

func TestAFailedServerIsLeftByReplaceStartAndRestart(t *testing.T) {
	for name, leave := range map[string]func(context.Context, running) error{
		"Replace": func(ctx context.Context, s running) error {
			return s.Replace(ctx, Spec{Name: "lib", Command: "good"})
		},
		"Start":   func(ctx context.Context, s running) error { return s.Start(ctx) },
		"Restart": func(ctx context.Context, s running) error { return s.Restart(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeStarter{script: func(p *fakeChild) Exit {
					if p.n <= 5 {
						return dies(p)
					}
					return p.echo()
				}}
				s := run(t, Spec{Name: "lib"}, opts{Starter: f})
				until(t, s.Server, "failed", inState(StateFailed))
				if err := leave(t.Context(), s); err != nil || s.Status().State != StateReady {
					t.Errorf("%v, %s", err, s.Status().State)
				}
			})
		})
	}
}

func TestRestartTakesUpWhatReplaceAskedForInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStarter{script: func(p *fakeChild) Exit {
			if p.n == 2 {
				return dies(p)
			}
			return p.echo()
		}}
		s := run(t, Spec{Name: "lib", Command: "old"}, opts{Starter: f})
		mustAcquire(t, s)
		if err := s.Replace(t.Context(), Spec{Name: "lib", Command: "new"}); err == nil {
			t.Error("Replace by a child that dies")
		}
		if err := s.Restart(t.Context()); err != nil || f.names() != "old new new" || s.Status().ReplaceError != "" {
			t.Errorf("%v, started %q", err, f.names())
		}
	})
}

func TestRetuneChangesLimitsWithoutANewProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeStarter{script: (*fakeChild).echo}
		s := run(t, Spec{Name: "lib"}, opts{Starter: f})
		mustAcquire(t, s)
		s.Retune(Spec{Name: "lib", Command: "ignored", IdleStop: time.Minute})
		time.Sleep(59 * time.Second)
		if st := s.Status(); st.State != StateReady || len(f.starts()) != 1 {
			t.Errorf("%+v", st)
		}
		time.Sleep(2 * time.Second)
		if st := s.Status(); st.State != StateStopped {
			t.Errorf("%s after the new idle time", st.State)
		}
	})
}

// Whatever is asked at the same time, everybody gets an answer and nothing is left: a deadlock or a goroutine that
// stays makes synctest fail.
func TestConcurrentCommandsNeverDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range 30 {
			f := &fakeStarter{script: func(p *fakeChild) Exit {
				switch (p.n + seed) % 4 {
				case 0:
					return dies(p)
				case 1:
					return p.lives(50 * time.Millisecond)
				default:
					return p.echo()
				}
			}}
			s := run(t, Spec{Name: "lib", StopFirst: seed%3 == 0, Lazy: seed%2 == 0}, opts{Starter: f})
			var wg sync.WaitGroup
			for w := range 8 {
				wg.Go(func() {
					for i := range 20 {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+(i*w*seed)%700)*time.Millisecond)
						switch (w + i + seed) % 6 {
						case 0:
							_ = s.Replace(ctx, Spec{Name: "lib", Command: fmt.Sprint(w, i)})
						case 1:
							_ = s.Stop(ctx)
						case 2:
							_ = s.Restart(ctx)
						case 3:
							_ = s.Start(ctx)
						case 4:
							s.Retune(Spec{Lazy: i%2 == 0})
						default:
							if sess, err := s.Acquire(ctx); err == nil {
								_, _ = sess.Call(ctx, "hello")
							}
						}
						cancel()
					}
				})
			}
			time.Sleep(time.Duration(seed) * 200 * time.Millisecond)
			s.stop()
			wg.Wait()
			if f.living != 0 || s.Status().State != StateStopped {
				t.Fatalf("%d children live, %s", f.living, s.Status().State)
			}
		}
	})
}
