package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a time that only the test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

type bench struct {
	t     *testing.T
	path  string
	clock *clock
	*Ledger
}

func newBench(t *testing.T, limits Limits) *bench {
	b := &bench{t: t, path: filepath.Join(t.TempDir(), "ledger.db"), clock: &clock{now: time.Unix(1_800_000_000, 0)}}
	b.open(limits)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func (b *bench) open(limits Limits) {
	b.Ledger = New(Options{Path: b.path, Limits: limits, Now: b.clock.Now})
}

// reopen is what a new process does.
func (b *bench) reopen() {
	b.t.Helper()
	limits := b.limitsNow()
	if err := b.Close(); err != nil {
		b.t.Fatal(err)
	}
	b.open(limits)
}

func (b *bench) begin(c Call) Finding {
	b.t.Helper()
	f, err := b.Begin(c)
	if err != nil {
		b.t.Fatal(err)
	}
	return f
}

func (b *bench) want(c Call, v Verdict) Finding {
	b.t.Helper()
	f := b.begin(c)
	if f.Verdict != v {
		b.t.Fatalf("verdict %d, want %d: %+v", f.Verdict, v, f.Record)
	}
	if v == Started {
		_ = f.Entry.Abort(nil)
	}
	return f
}

func (b *bench) start(c Call) *Entry {
	b.t.Helper()
	f := b.begin(c)
	if f.Verdict != Started {
		b.t.Fatalf("verdict %d, want it to start", f.Verdict)
	}
	b.ok(f.Entry.Sending())
	return f.Entry
}

func (b *bench) ok(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) stats() Stats {
	b.t.Helper()
	s, err := b.Stats()
	b.ok(err)
	return s
}

func callWith(key, arguments string) Call {
	d, err := DigestOf([]byte(arguments))
	if err != nil {
		panic(err)
	}
	return Call{Principal: "p", Server: "s", Tool: "t", Key: key, Digest: d, Arguments: "a=1"}
}

func TestACallIsStartedOnceAndItsAnswerIsReplayedAlsoByAnotherProcess(t *testing.T) {
	b := newBench(t, Limits{})
	c := callWith("k", `{"a":1}`)
	e := b.start(c)
	b.ok(e.Done([]byte("the answer")))
	for range 2 {
		if f := b.want(c, Replay); string(f.Answer) != "the answer" || f.Record.State != Done {
			t.Errorf("%q %+v", f.Answer, f.Record)
		}
		b.reopen()
	}
	for name, other := range map[string]func(*Call){
		"principal": func(c *Call) { c.Principal = "q" },
		"server":    func(c *Call) { c.Server = "u" },
		"tool":      func(c *Call) { c.Tool = "v" },
		"key":       func(c *Call) { c.Key = "l" },
		"border":    func(c *Call) { c.Server, c.Tool = "", "st" },
	} {
		d := c
		other(&d)
		t.Run("another "+name, func(*testing.T) { b.want(d, Started) })
	}
}

func TestOtherArgumentsAreAConflictWhateverTheStateIs(t *testing.T) {
	b := newBench(t, Limits{})
	c, other := callWith("k", `{"a":1}`), callWith("k", `{"a":2}`)
	e := b.start(c)
	b.want(other, Conflict)
	b.ok(e.Lost(errors.New("gone")))
	b.want(other, Conflict)
	b.want(c, Uncertain)
	d := callWith("l", `{}`)
	b.ok(b.start(d).Done([]byte("x")))
	b.want(callWith("l", `{"b":[]}`), Conflict)
}

func TestArgumentsAreComparedByWhatTheyMean(t *testing.T) {
	base, err := DigestOf([]byte(`{"a":"\u00e9","b":[1,2],"c":12345678901234567890}`))
	if err != nil {
		t.Fatal(err)
	}
	for text, same := range map[string]bool{
		` { "c" : 12345678901234567890, "b":[1 , 2],` + "\n" + `"a":"é"}`: true,
		`{"a":"\u00e9","b":[2,1],"c":12345678901234567890}`:               false,
		`{"a":"\u00e9","b":[1,2],"c":12345678901234567891}`:               false, // the same as a double
		`{"a":"e","b":[1,2],"c":12345678901234567890}`:                    false,
		`{"a":"\u00e9","b":[1,2]}`:                                        false,
	} {
		d, err := DigestOf([]byte(text))
		if err != nil || (d == base) != same {
			t.Errorf("%s: %v, same %v", text, err, d == base)
		}
	}
	if _, err := DigestOf([]byte(`{"a":{"b":1,"b":2}}`)); err == nil {
		t.Error("a name twice has a digest")
	}
	none, _ := DigestOf(nil)
	if empty, _ := DigestOf([]byte(" {} ")); none != empty {
		t.Error("no arguments differ from an empty object")
	}
}

func TestARepeatWaitsForTheCallThatRuns(t *testing.T) {
	b := newBench(t, Limits{})
	c := callWith("k", `{}`)
	e := b.start(c)
	var waiters sync.WaitGroup
	for range 20 {
		f := b.want(c, Wait)
		waiters.Go(func() {
			<-f.Entry.Settled()
			if got := f.Entry.Ending(); got.How != Answered || string(got.Answer) != "x" {
				t.Errorf("%+v", got)
			}
		})
	}
	told := make(chan struct{})
	e.OnSettled(func() { close(told) })
	b.ok(e.Done([]byte("x")))
	waiters.Wait()
	<-told
	e.OnSettled(func() { told = nil })
	if told != nil {
		t.Error("who asks late is not told")
	}
}

func TestOfManyAtTheSameMomentOneStarts(t *testing.T) {
	b := newBench(t, Limits{})
	for round := range 20 {
		c := callWith(fmt.Sprint(round), `{}`)
		var (
			group  sync.WaitGroup
			mu     sync.Mutex
			starts int
		)
		for range 8 {
			group.Go(func() {
				for {
					f, err := b.Begin(c)
					if err != nil {
						t.Error(err)
						return
					}
					switch f.Verdict {
					case Started:
						mu.Lock()
						starts++
						mu.Unlock()
						if err := errors.Join(f.Entry.Sending(), f.Entry.Done([]byte("x"))); err != nil {
							t.Error(err)
						}
						return
					case Wait:
						<-f.Entry.Settled()
						if f.Entry.Ending().How == Withdrawn {
							continue
						}
						return
					case Replay:
						return
					default:
						t.Errorf("verdict %d", f.Verdict)
						return
					}
				}
			})
		}
		group.Wait()
		if starts != 1 {
			t.Fatalf("round %d: %d starts", round, starts)
		}
	}
}

func TestWhatAProcessLeftRunningIsUnknownUntilItIsSettled(t *testing.T) {
	b := newBench(t, Limits{Keep: time.Hour})
	c, d := callWith("k", `{}`), callWith("l", `{}`)
	b.start(c)
	b.start(d)
	b.want(callWith("never sent", `{}`), Started)
	b.reopen()
	if s := b.stats(); s.Unknown != 2 || s.Entries != 2 || s.Running != 0 {
		t.Fatalf("%+v", s)
	}
	b.want(callWith("never sent", `{}`), Started)
	first := b.want(c, Uncertain).Record
	if first.State != Unknown || !strings.Contains(first.Why, "mcpd ended") {
		t.Errorf("%+v", first)
	}
	b.clock.forward(1000 * time.Hour) // it does not settle itself
	b.want(c, Uncertain)

	list, err := b.List(Unknown, 10)
	b.ok(err)
	if len(list) != 2 || list[0].Key != "k" || list[0].Arguments != "a=1" {
		t.Fatalf("%+v", list)
	}
	if _, err := b.Resolve("", true); !errors.Is(err, ErrNotFound) {
		t.Errorf("no id: %v", err)
	}
	if _, err := b.Resolve("zz", true); !errors.Is(err, ErrNotFound) {
		t.Errorf("a wrong id: %v", err)
	}
	_, err = b.Resolve(first.ID, true)
	b.ok(err)
	if f := b.want(c, Replay); f.Answer != nil || !strings.Contains(f.Record.Why, "settled") {
		t.Errorf("%+v", f)
	}
	if _, err := b.Resolve(first.ID, false); !errors.Is(err, ErrNotFound) {
		t.Errorf("settled twice: %v", err)
	}
	_, err = b.Resolve(b.want(d, Uncertain).Record.ID[:8], false)
	b.ok(err)
	b.want(d, Started)
	if s := b.stats(); s.Unknown != 0 {
		t.Errorf("%+v", s)
	}
}

func TestACallThatRunsCannotBeSettledByHand(t *testing.T) {
	b := newBench(t, Limits{})
	c := callWith("k", `{}`)
	e := b.start(c)
	if _, err := b.Resolve(e.ID(), false); !errors.Is(err, ErrNotFound) {
		t.Errorf("settled: %v", err)
	}
	b.want(c, Wait)
	b.ok(e.Done(nil))
}

func TestAnEntryExpiresAndItsRoomIsFree(t *testing.T) {
	b := newBench(t, Limits{Keep: time.Hour, MaxBytes: 3000})
	for i := range 3 {
		b.ok(b.start(callWith(fmt.Sprint(i), `{}`)).Done(bytes.Repeat([]byte("x"), 600)))
	}
	f := b.begin(callWith("one too many", `{}`))
	b.ok(nil)
	if err := f.Entry.Sending(); err != nil {
		t.Logf("full at %+v", b.stats())
		if !errors.Is(err, ErrFull) {
			t.Fatal(err)
		}
		_ = f.Entry.Abort(err)
	} else {
		_ = f.Entry.Abort(nil)
	}
	for i := 0; ; i++ { // fill it
		f := b.begin(callWith(fmt.Sprint("fill", i), `{}`))
		err := f.Entry.Sending()
		if err != nil {
			if !errors.Is(err, ErrFull) {
				t.Fatal(err)
			}
			_ = f.Entry.Abort(err)
			break
		}
		b.ok(f.Entry.Done([]byte("x")))
	}
	if s := b.stats(); s.Bytes > 3000 || s.Entries < 4 {
		t.Errorf("%+v", s)
	}
	b.want(callWith("0", `{}`), Replay) // what is in it is still there
	b.clock.forward(time.Hour)
	b.want(callWith("0", `{}`), Started)
	b.ok(b.start(callWith("new", `{}`)).Done([]byte("x")))
	if s := b.stats(); s.Entries != 1 {
		t.Errorf("%+v", s)
	}
}

func TestAnAnswerThatIsTooLargeIsRecordedWithoutItsBody(t *testing.T) {
	b := newBench(t, Limits{MaxBytes: 2 << 20})
	b.ok(b.start(callWith("k", `{}`)).Done(make([]byte, MaxAnswer+1)))
	if f := b.want(callWith("k", `{}`), Replay); f.Answer != nil || f.Record.HasAnswer || !strings.Contains(f.Record.Why, "bytes") {
		t.Errorf("%d bytes, %+v", len(f.Answer), f.Record)
	}
	for _, key := range []string{"l", "m"} { // together they do not fit
		b.ok(b.start(callWith(key, `{}`)).Done(make([]byte, MaxAnswer)))
	}
	if f := b.want(callWith("m", `{}`), Replay); f.Answer != nil || !strings.Contains(f.Record.Why, "no room") {
		t.Errorf("%d bytes, %+v", len(f.Answer), f.Record)
	}
}

func TestACallThatWasNotMadeLeavesNoTrace(t *testing.T) {
	b := newBench(t, Limits{})
	c := callWith("k", `{}`)
	for _, end := range []func(*Entry) error{
		func(e *Entry) error { return e.Abort(errors.New("the server is not up")) },
		func(e *Entry) error { return e.PassOn([]byte("who are you?")) },
	} {
		e := b.start(c)
		waiting := b.want(c, Wait).Entry
		b.ok(end(e))
		<-waiting.Settled()
		if s := b.stats(); s.Entries != 0 || s.Bytes != 0 || s.Running != 0 {
			t.Errorf("%+v", s)
		}
		b.want(c, Started)
	}
}

func TestAFileThatCannotBeUsedRefusesCallsWithTheReason(t *testing.T) {
	c := callWith("k", `{}`)
	for name, spoil := range map[string]struct {
		do   func(t *testing.T, path string)
		says string
	}{
		"it is no database": {func(t *testing.T, path string) {
			if err := os.WriteFile(path, bytes.Repeat([]byte("nonsense"), 4096), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "cannot be used"},
		"it was cut off": {func(t *testing.T, path string) {
			l := New(Options{Path: path})
			f, err := l.Begin(c)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 50 { // so that the tree has pages behind the cut
				d := c
				d.Key = fmt.Sprint(i)
				f, err := l.Begin(d)
				if err != nil {
					t.Fatal(err)
				}
				_ = f.Entry.Sending()
				_ = f.Entry.Done(bytes.Repeat([]byte("x"), 2000))
			}
			_ = f.Entry.Sending()
			if err := errors.Join(f.Entry.Done([]byte("x")), l.Close(), os.Truncate(path, 3*int64(os.Getpagesize()))); err != nil {
				t.Fatal(err)
			}
		}, "cannot be used"},
		"it is a folder": {func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "cannot be used"},
		"another process holds it": {func(t *testing.T, path string) {
			l := New(Options{Path: path})
			if _, err := l.Begin(c); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
		}, "another process"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ledger.db")
			spoil.do(t, path)
			l := New(Options{Path: path})
			defer func() { _ = l.Close() }()
			for range 2 {
				if f, err := l.Begin(c); err == nil || !strings.Contains(err.Error(), spoil.says) || !strings.Contains(err.Error(), path) {
					t.Errorf("begin: verdict %d, %v", f.Verdict, err)
				}
				if _, err := l.Stats(); err == nil {
					t.Error("the figures do not tell")
				}
			}
		})
	}
}

func TestAFileWhoseMiddleIsOverwrittenNeverEndsTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	l := New(Options{Path: path})
	for i := range 200 {
		f, err := l.Begin(callWith(fmt.Sprint(i), `{}`))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Entry.Sending(), f.Entry.Done(bytes.Repeat([]byte("x"), 300))); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		bad := bytes.Clone(good)
		for range 1 + r.IntN(40) {
			at := r.IntN(len(bad))
			bad[at] = byte(r.Uint32())
		}
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		l := New(Options{Path: path})
		for i := range 20 {
			f, err := l.Begin(callWith(fmt.Sprint(i*10), `{}`))
			if err == nil && f.Verdict == Started {
				_ = f.Entry.Sending()
				_ = f.Entry.Done([]byte("y"))
			}
		}
		_, _ = l.List("", 100)
		_ = l.Close()
	}
}

func TestAClosedLedgerRefuses(t *testing.T) {
	b := newBench(t, Limits{})
	e := b.start(callWith("k", `{}`))
	b.ok(b.Close())
	if _, err := b.Begin(callWith("l", `{}`)); !errors.Is(err, ErrClosed) {
		t.Errorf("begin: %v", err)
	}
	if err := e.Done([]byte("x")); err == nil {
		t.Error("an answer was recorded in a closed file")
	}
	b.open(Limits{})
	b.want(callWith("k", `{}`), Uncertain)
}

func TestALedgerThatNobodyNeedsTouchesNoFile(t *testing.T) {
	b := newBench(t, Limits{})
	b.stats()
	if list, err := b.List("", 10); err != nil || list != nil {
		t.Errorf("%v %v", list, err)
	}
	if _, err := os.Stat(b.path); !os.IsNotExist(err) {
		t.Errorf("there is a file: %v", err)
	}
	b.ok(b.start(callWith("k", `{}`)).Done(nil))
	info, err := os.Stat(b.path)
	b.ok(err)
	if os.PathSeparator == '/' && info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
}

func TestTheTotalsAreThoseOfTheEntries(t *testing.T) {
	b := newBench(t, Limits{Keep: time.Hour})
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		f := b.begin(callWith(fmt.Sprint(r.IntN(20)), fmt.Sprintf(`{"n":%d}`, r.IntN(2))))
		if f.Verdict == Started {
			b.ok(f.Entry.Sending())
			switch r.IntN(4) {
			case 0:
				b.ok(f.Entry.Lost(errors.New("gone")))
			case 1:
				b.ok(f.Entry.Abort(nil))
			default:
				b.ok(f.Entry.Done(make([]byte, r.IntN(100))))
			}
		}
		if f.Verdict == Uncertain && r.IntN(2) == 0 {
			_, err := b.Resolve(f.Record.ID, r.IntN(2) == 0)
			b.ok(err)
		}
		b.clock.forward(time.Minute)
		if r.IntN(50) == 0 {
			b.reopen()
		}
	}
	counted := b.stats()
	b.reopen() // counts anew
	if anew := b.stats(); anew != counted {
		t.Errorf("kept %+v, counted %+v", counted, anew)
	}
}

func BenchmarkACallThroughTheLedger(b *testing.B) {
	l := New(Options{Path: filepath.Join(b.TempDir(), "ledger.db"), Limits: Limits{MaxBytes: 1 << 30}})
	defer func() { _ = l.Close() }()
	answer := bytes.Repeat([]byte("x"), 300)
	var mu sync.Mutex
	n := 0
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			mu.Lock()
			n++
			c := callWith(fmt.Sprint(n), `{}`)
			mu.Unlock()
			f, err := l.Begin(c)
			if err != nil {
				b.Error(err)
				return
			}
			if err := errors.Join(f.Entry.Sending(), f.Entry.Done(answer)); err != nil {
				b.Error(err)
			}
		}
	})
}
