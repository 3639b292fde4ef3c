package ledger

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// Entry is one call that runs in this process.
type Entry struct {
	l     *Ledger
	file  *file
	id    id
	call  Call
	begun time.Time
	sent  bool // of the owner's goroutine

	mu      sync.Mutex
	settled chan struct{}
	ending  Ending
	notify  []func()
}

// How says in which way a call ended.
type How int

const (
	// Withdrawn: it was never made. Who waited for it may make it.
	Withdrawn How = iota
	// Answered: Answer is there.
	Answered
	// Lost: its outcome is unknown, and Why says why.
	Lost
	// Passed: Answer is one that asks the client for more. The call did not end,
	// and goes on with the same key.
	Passed
)

// Ending is how a call ended.
type Ending struct {
	How    How
	Answer []byte
	Why    error
	Record Record
}

// Settled is closed when the call has ended.
func (e *Entry) Settled() <-chan struct{} { return e.settled }

// Ending is how the call ended. It may be asked once Settled is closed.
func (e *Entry) Ending() Ending {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ending
}

// OnSettled has fn called when the call has ended, at once where it has. fn
// must not block.
func (e *Entry) OnSettled(fn func()) {
	e.mu.Lock()
	select {
	case <-e.settled:
		e.mu.Unlock()
		fn()
	default:
		e.notify = append(e.notify, fn)
		e.mu.Unlock()
	}
}

// ID names the entry to a person.
func (e *Entry) ID() string { return e.id.String() }

// Sending records, synced to disk, that the call is about to be made. Where it
// fails, the call must not be made.
func (e *Entry) Sending() error {
	if e.sent {
		return nil
	}
	if err := e.file.begin(e.id, e.stored(Running), e.l.limitsNow()); err != nil {
		return err
	}
	e.sent = true
	return nil
}

// Done records the answer, synced to disk, and ends the entry. The error says
// that the answer could not be recorded: it is still the right one, but a repeat
// will find the outcome unknown.
func (e *Entry) Done(answer []byte) error {
	s := e.stored(Done)
	s.Ended = e.l.o.Now()
	limits := e.l.limitsNow()
	s.Expires = s.Ended.Add(limits.Keep)
	err := e.file.done(e.id, s, answer, limits)
	e.settle(Ending{How: Answered, Answer: answer, Record: s.Record})
	return err
}

// Lost records that the outcome is unknown and ends the entry.
func (e *Entry) Lost(why error) error {
	s := e.stored(Unknown)
	s.Ended, s.Why = e.l.o.Now(), clip(why.Error(), mostWhy)
	err := e.file.put(e.id, s)
	e.settle(Ending{How: Lost, Why: why, Record: s.Record})
	return err
}

// PassOn ends the entry with an answer that is not final. Nothing is
// remembered: the call goes on as a new one with the same key.
func (e *Entry) PassOn(answer []byte) error {
	err := e.forget()
	e.settle(Ending{How: Passed, Answer: answer})
	return err
}

// Abort ends the entry of a call of which the server has seen nothing.
func (e *Entry) Abort(why error) error {
	err := e.forget()
	e.settle(Ending{How: Withdrawn, Why: why})
	return err
}

func (e *Entry) forget() error {
	if !e.sent {
		return nil
	}
	return e.file.remove(e.id)
}

func (e *Entry) settle(how Ending) {
	e.l.mu.Lock()
	delete(e.l.running, e.id)
	e.l.mu.Unlock()
	e.mu.Lock()
	e.ending = how
	notify := e.notify
	e.notify = nil
	close(e.settled)
	e.mu.Unlock()
	for _, fn := range notify {
		fn()
	}
}

// Bounds of what a record holds in text, in bytes.
const (
	mostKey = 80
	mostWhy = 400
)

func (e *Entry) record(state State) Record {
	return Record{
		ID: e.id.String(), State: state, Principal: e.call.Principal, Server: e.call.Server, Tool: clip(e.call.Tool, mostKey),
		Key: clip(e.call.Key, mostKey), Arguments: e.call.Arguments, Begun: e.begun,
	}
}

func (e *Entry) stored(state State) *stored {
	return &stored{Record: e.record(state), Digest: e.call.Digest}
}

// clip bounds a text.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// unusable says what to do about a file that cannot be used.
func unusable(path string, cause any) error {
	return fmt.Errorf("the ledger %s cannot be used: %v; calls with an idempotency key are refused until it can be "+
		"(moving the file away begins a new one, which knows nothing of the calls before)", path, cause)
}
