package ledger

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Options describes a ledger. Path has to be there.
type Options struct {
	// Path is the file, in a folder that only its owner can read.
	Path string
	// Limits are the first ones; SetLimits replaces them.
	Limits Limits
	Logger *slog.Logger     // nil logs nothing
	Now    func() time.Time // nil is time.Now
}

// Limits bounds what is kept.
type Limits struct {
	// Keep is how long a finished call is remembered from its end on.
	Keep time.Duration
	// MaxBytes bounds records and answers together, in bytes. The file itself
	// may be larger: freed pages stay in it and are used again.
	MaxBytes int64
}

// DefaultLimits are the limits where nobody chose any.
func DefaultLimits() Limits { return Limits{Keep: 24 * time.Hour, MaxBytes: 64 << 20} }

// MaxAnswer is the largest answer that is kept, in bytes. Of a larger one only
// the fact is recorded.
const MaxAnswer = 1 << 20

// Errors of a ledger that works. Anything else means that it cannot be used.
var (
	// ErrFull says that nothing more fits in until entries expire or are settled.
	ErrFull = errors.New("the ledger is full")
	// ErrClosed says that the ledger was closed.
	ErrClosed = errors.New("the ledger is closed")
	// ErrNotFound is an entry that is not there, or not unknown any more.
	ErrNotFound = errors.New("no such entry")
	// ErrAmbiguous is the beginning of more than one entry's id.
	ErrAmbiguous = errors.New("more than one entry begins like this")
)

// Ledger is one file of remembered calls. It opens the file when it is first
// needed, and again a while after that failed.
type Ledger struct {
	o Options

	mu      sync.Mutex // guards what follows; never held while the disk is at work
	limits  Limits
	running map[id]*Entry
	closed  bool

	opening sync.Mutex // held while the file is opened or closed; guards what follows
	file    *file
	failed  error     // the last attempt to open it
	again   time.Time // when to try next
}

// reopenAfter is how long a failure to open the file stands.
const reopenAfter = 5 * time.Second

// New makes a Ledger. No file is touched yet.
func New(o Options) *Ledger {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	l := &Ledger{o: o, running: make(map[id]*Entry)}
	l.SetLimits(o.Limits)
	return l
}

// SetLimits replaces the limits. What is kept already keeps its time.
func (l *Ledger) SetLimits(n Limits) {
	d := DefaultLimits()
	if n.Keep <= 0 {
		n.Keep = d.Keep
	}
	if n.MaxBytes <= 0 {
		n.MaxBytes = d.MaxBytes
	}
	l.mu.Lock()
	l.limits = n
	l.mu.Unlock()
}

func (l *Ledger) limitsNow() Limits {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.limits
}

// Close closes the file. Entries that are still running become unknown when it
// is opened again.
func (l *Ledger) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.opening.Lock()
	defer l.opening.Unlock()
	if l.file == nil {
		return nil
	}
	err := l.file.close()
	l.file = nil
	return err
}

// open gives the file, opening it where needed.
func (l *Ledger) open() (*file, error) {
	l.opening.Lock()
	defer l.opening.Unlock()
	l.mu.Lock()
	closed := l.closed
	l.mu.Unlock()
	now := l.o.Now()
	switch {
	case closed:
		return nil, ErrClosed
	case l.file != nil:
		return l.file, nil
	case l.failed != nil && now.Before(l.again):
		return nil, l.failed
	}
	f, interrupted, err := openFile(l.o.Path, now)
	if err != nil {
		l.failed, l.again = err, now.Add(reopenAfter)
		l.o.Logger.Error("the ledger of keyed calls cannot be used", "file", l.o.Path, "error", err)
		return nil, err
	}
	if interrupted > 0 {
		l.o.Logger.Warn("keyed calls were interrupted when mcpd ended, and their outcome is unknown; mcpd ledger list shows them",
			"calls", interrupted)
	}
	l.file, l.failed = f, nil
	return f, nil
}

// id names an entry: a digest of who calls what with which key.
type id [sha256.Size]byte

func (i id) String() string { return hex.EncodeToString(i[:12]) }

// Digest identifies the arguments of a call.
type Digest [sha256.Size]byte

// MarshalText implements encoding.TextMarshaler.
func (d Digest) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, d[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Digest) UnmarshalText(text []byte) error {
	if hex.DecodedLen(len(text)) != len(d) {
		return errors.New("a digest has the wrong length")
	}
	_, err := hex.Decode(d[:], text)
	return err
}

// DigestOf digests arguments, raw JSON. White space, the order of members and
// the spelling of strings make no difference; the spelling of numbers does,
// since two large ones can round to the same. nil stands for no arguments.
func DigestOf(arguments []byte) (Digest, error) {
	if len(arguments) == 0 {
		arguments = []byte("{}")
	}
	v := jsontext.Value(arguments).Clone()
	err := v.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))
	if err != nil {
		return Digest{}, fmt.Errorf("the arguments have no canonical form: %w", err)
	}
	return sha256.Sum256(v), nil
}

// Call is a call with an idempotency key.
type Call struct {
	Principal string // who calls: a key of one principal is none of another's
	Server    string
	Tool      string
	Key       string
	Digest    Digest
	// Arguments is what a person is shown of the arguments; no secrets.
	Arguments string
}

func (c *Call) id() id {
	h := sha256.New()
	for _, part := range []string{"mcpd ledger 1", c.Principal, c.Server, c.Tool, c.Key} {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		h.Write(n[:])
		h.Write([]byte(part))
	}
	return id(h.Sum(nil))
}

// State is how far a call is.
type State string

// The states of a call.
const (
	Running State = "running"
	Done    State = "done"
	Unknown State = "unknown"
)

// Record is what is remembered of a call, but for its answer.
type Record struct {
	ID        string    `json:"id"` // for people
	State     State     `json:"state"`
	Principal string    `json:"principal"`
	Server    string    `json:"server"`
	Tool      string    `json:"tool"`
	Key       string    `json:"key"`                 // clipped
	Arguments string    `json:"arguments,omitempty"` // a summary
	Begun     time.Time `json:"begun"`
	Ended     time.Time `json:"ended,omitzero"`
	Expires   time.Time `json:"expires,omitzero"` // zero: not before it is settled
	// Why says why the outcome is unknown, or the answer missing.
	Why string `json:"why,omitempty"`
	// HasAnswer is whether the answer is kept.
	HasAnswer bool `json:"has_answer"`
	// Bytes is what the entry counts for.
	Bytes int64 `json:"bytes"`
}

// Verdict says what becomes of a call.
type Verdict int

const (
	// Started: the call is the caller's to make. It owns the Entry and must end
	// it with exactly one of Done, Lost, PassOn or Abort.
	Started Verdict = iota
	// Wait: the same call is running; the Entry tells when it has ended.
	Wait
	// Replay: it is done; Answer is its answer, nil where that was not kept.
	Replay
	// Conflict: the key was used with other arguments.
	Conflict
	// Uncertain: its outcome is unknown, and it must not be made again.
	Uncertain
)

// Finding is what the ledger knows of a call.
type Finding struct {
	Verdict Verdict
	Entry   *Entry // for Started and Wait
	Record  Record // for Replay, Conflict and Uncertain
	Answer  []byte // for Replay
}

// Begin looks a call up, and reserves it for the caller where it is new.
// Nothing is written yet. An error means that the call must not be made.
func (l *Ledger) Begin(c Call) (Finding, error) {
	f, err := l.open()
	if err != nil {
		return Finding{}, err
	}
	key := c.id()
	e := &Entry{l: l, file: f, id: key, call: c, begun: l.o.Now(), settled: make(chan struct{})}
	l.mu.Lock()
	if other := l.running[key]; other != nil {
		l.mu.Unlock()
		if other.call.Digest != c.Digest {
			return Finding{Verdict: Conflict, Record: other.record(Running)}, nil
		}
		return Finding{Verdict: Wait, Entry: other}, nil
	}
	if l.closed {
		l.mu.Unlock()
		return Finding{}, ErrClosed
	}
	l.running[key] = e
	l.mu.Unlock()

	s, answer, found, err := f.find(key)
	if err == nil && (!found || s.expired(e.begun)) {
		return Finding{Verdict: Started, Entry: e}, nil
	}
	// Whoever waits meanwhile looks it up for itself.
	e.settle(Ending{How: Withdrawn})
	if err != nil {
		return Finding{}, err
	}
	finding := Finding{Record: s.Record}
	switch {
	case s.Digest != c.Digest:
		finding.Verdict = Conflict
	case s.State == Done:
		finding.Verdict, finding.Answer = Replay, answer
	default:
		// Running on disk but not in this process: its end could not be
		// written. What became of it is in nobody's memory any more.
		finding.Verdict = Uncertain
	}
	return finding, nil
}

// Stats is what the ledger says about itself.
type Stats struct {
	Entries  int   // on disk, of every state
	Bytes    int64 // of their records and answers
	MaxBytes int64
	Unknown  int // entries whose outcome is unknown
	Running  int // calls under way in this process
}

// Stats reports the current figures. A ledger without a file has none.
func (l *Ledger) Stats() (Stats, error) {
	l.mu.Lock()
	s := Stats{MaxBytes: l.limits.MaxBytes, Running: len(l.running)}
	l.mu.Unlock()
	f, err := l.openExisting()
	if f == nil || err != nil {
		return s, err
	}
	t, err := f.totals()
	s.Entries, s.Bytes, s.Unknown = int(t.Entries), t.Bytes, int(t.Unknown)
	return s, err
}

// List gives what is remembered, in order of the calls' beginning and the
// newest `most` of it; a state other than "" leaves out the others.
func (l *Ledger) List(state State, most int) ([]Record, error) {
	f, err := l.openExisting()
	if f == nil || err != nil {
		return nil, err
	}
	return f.list(state, most, l.o.Now())
}

// Resolve settles an unknown outcome by the beginning of the entry's id. A call
// that did take effect is remembered as done, without an answer; one that did
// not is forgotten, so that its key can be used again.
func (l *Ledger) Resolve(prefix string, tookEffect bool) (Record, error) {
	f, err := l.openExisting()
	if err != nil {
		return Record{}, err
	}
	if f == nil {
		return Record{}, ErrNotFound
	}
	// Of one that runs the outcome is not unknown yet.
	isRunning := func(key id) bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.running[key] != nil
	}
	return f.resolve(prefix, tookEffect, l.o.Now(), l.limitsNow().Keep, isRunning)
}

// openExisting is open where there is something to open; nil, nil otherwise.
func (l *Ledger) openExisting() (*file, error) {
	l.opening.Lock()
	have := l.file != nil
	l.opening.Unlock()
	if !have && !exists(l.o.Path) {
		return nil, nil
	}
	return l.open()
}
