package supervisor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

// lineSession is a conversation of lines: the child says "ready …" first; a call "N text" is answered by "N text".
type lineSession struct {
	p        Pipes
	greeting string
	done     chan struct{} // closed by the reader at its end
	probe    func(context.Context) error

	mu       sync.Mutex
	err      error
	n        int
	calls    map[string]chan string
	held     int // extra calls, for tests of the watch
	subs     int
	last     time.Time
	draining bool
	drained  chan struct{}
}

var errDraining = errors.New("draining")

func (s *lineSession) Done() <-chan struct{} { return s.done }

func (s *lineSession) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *lineSession) Load() Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Load{Calls: len(s.calls) + s.held, Subscriptions: s.subs, LastActivity: s.last}
}

func (s *lineSession) Probe(ctx context.Context) error {
	if s.probe != nil {
		// Like any session, this one counts a probe as a call, and its bytes as traffic, the cancellation included.
		s.mu.Lock()
		s.last = time.Now()
		s.held++
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			s.last = time.Now().Add(time.Millisecond).Round(0)
			s.held--
			s.mu.Unlock()
		}()
		return s.probe(ctx)
	}
	_, err := s.Call(ctx, "probe")
	return err
}

func (s *lineSession) Drain(ctx context.Context) error {
	s.mu.Lock()
	s.draining = true
	s.settle()
	drained := s.drained
	s.mu.Unlock()
	select {
	case <-drained:
		return nil
	case <-s.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settle closes drained when the last call of a draining session is over. mu is held.
func (s *lineSession) settle() {
	if s.draining && len(s.calls)+s.held == 0 && !isClosed(s.drained) {
		close(s.drained)
	}
}

func (s *lineSession) Close(cause error) {
	_ = s.p.Stdin.Close()
	_ = s.p.Stdout.Close()
	<-s.done
}

// Call sends a line and waits for its echo.
func (s *lineSession) Call(ctx context.Context, text string) (string, error) {
	s.mu.Lock()
	if s.draining {
		s.mu.Unlock()
		return "", errDraining
	}
	s.n++
	id := fmt.Sprint(s.n)
	answer := make(chan string, 1)
	s.calls[id] = answer
	s.last = time.Now()
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.calls, id)
		s.settle()
		s.mu.Unlock()
	}()
	if _, err := fmt.Fprintf(s.p.Stdin, "%s %s\n", id, text); err != nil {
		return "", err
	}
	select {
	case a := <-answer:
		return a, nil
	case <-s.done:
		return "", s.Err()
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (s *lineSession) read(r *bufio.Reader) {
	defer close(s.done)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			s.mu.Lock()
			s.err = err
			s.mu.Unlock()
			return
		}
		id, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		s.mu.Lock()
		answer := s.calls[id]
		s.last = time.Now()
		s.mu.Unlock()
		if answer == nil {
			s.p.Junk([]byte(strings.TrimSuffix(line, "\n")))
			continue
		}
		answer <- text
	}
}

// lineDialer waits for the greeting. Its hooks are set before Run.
type lineDialer struct {
	probe func(context.Context) error
	dial  func(ctx context.Context, p Pipes) error // before the handshake

	mu      sync.Mutex
	readied []uint64
}

func (d *lineDialer) Dial(ctx context.Context, p Pipes) (*lineSession, error) {
	if d.dial != nil {
		if err := d.dial(ctx, p); err != nil {
			return nil, err
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = p.Stdout.Close() })
	defer stop()
	r := bufio.NewReader(p.Stdout)
	greeting, err := r.ReadString('\n')
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		} else if errors.Is(err, io.EOF) {
			err = errors.New("end of stdout")
		}
		return nil, err
	}
	s := &lineSession{
		p: p, greeting: strings.TrimSpace(greeting), done: make(chan struct{}), probe: d.probe,
		calls: map[string]chan string{}, last: time.Now(), drained: make(chan struct{}),
	}
	go s.read(r)
	return s, nil
}

func (d *lineDialer) Ready(s *lineSession) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.readied = append(d.readied, s.p.Incarnation)
}

// running is a server whose Run has been called.
type running struct {
	*Server[*lineSession]
	stop func() // ends Run and waits for it
}

func run(t *testing.T, spec Spec, o Options[*lineSession]) running {
	t.Helper()
	if o.Dialer == nil {
		o.Dialer = &lineDialer{}
	}
	s := New(spec, o)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return running{s, stop}
}

// until waits for a published state that satisfies ok.
func until[S Session](t *testing.T, s *Server[S], what string, ok func(Status) bool) Status {
	t.Helper()
	for {
		v := s.view.Load()
		if ok(s.Status()) {
			return s.Status()
		}
		select {
		case <-v.changed:
		case <-s.finished:
			if ok(s.Status()) {
				return s.Status()
			}
			t.Fatalf("Run ended before: %s", what)
		case <-t.Context().Done():
			t.Fatalf("never came: %s", what)
		}
	}
}

func inState(want State) func(Status) bool {
	return func(st Status) bool { return st.State == want }
}

func mustAcquire(t *testing.T, s running) *lineSession {
	t.Helper()
	sess, err := s.Acquire(t.Context())
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return sess
}

func mustCall(t *testing.T, sess *lineSession, text string) {
	t.Helper()
	got, err := sess.Call(t.Context(), text)
	if err != nil || got != text {
		t.Fatalf("Call(%q) = %q, %v", text, got, err)
	}
}

func unavailable(t *testing.T, err error) *UnavailableError {
	t.Helper()
	u, ok := errors.AsType[*UnavailableError](err)
	if !ok {
		t.Fatalf("error %v (%T) is no UnavailableError", err, err)
	}
	return u
}
