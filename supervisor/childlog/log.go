// Package childlog keeps what the children of one server write to stderr, and the lines of their stdout that are no
// messages: a ring in memory for reading back and following, and a rotating file that only the user can read.
//
// A child never waits for its log: lines go to the ring at once and to the file through a bounded buffer that one
// goroutine empties. A full disk or a folder that cannot be written costs lines in the file, which are counted, and
// nothing else. Everything is made safe to print on a terminal before it is kept.
package childlog

import (
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/DeRuina/timberjack"
)

// Stream says where a line came from.
type Stream string

// The streams.
const (
	Stderr Stream = "stderr"
	Stdout Stream = "stdout" // lines that are no messages
	Mcpd   Stream = "mcpd"   // what mcpd itself notes about the child
)

// Line is one line of the log, safe to show on a terminal.
type Line struct {
	Time   time.Time `json:"time"`
	Stream Stream    `json:"stream"`
	Text   string    `json:"text"`
}

// Options of a Log. Zero sizes take the defaults.
type Options struct {
	// Path of the file, which gets mode 0600; its folder is made with 0700. Empty keeps the ring only.
	Path string
	// MaxSizeMB is the size in MiB at which the file is rotated; default 10.
	MaxSizeMB int
	// MaxFiles is how many files are kept in all, the current one included; default 3.
	MaxFiles int
	// RingLines and RingBytes bound what is kept in memory; defaults 2000 lines, 512 KiB.
	RingLines, RingBytes int
	// Logger gets the one warning about a file that cannot be written; nil discards it.
	Logger *slog.Logger
}

const (
	// maxPending bounds what waits for the disk. More than this is dropped and counted.
	maxPending = 1 << 20
	// keepBuffer is how much of a buffer is kept for the next lines after a flood.
	keepBuffer = 64 << 10
	// retryWrite is how long a file that could not be written is left alone.
	retryWrite = 30 * time.Second
)

// Log is the log of one server. All methods can be called from any goroutine.
type Log struct {
	path   string
	logger *slog.Logger

	mu      sync.Mutex
	ring    ring
	changed chan struct{} // closed and renewed with each line; closed for good when the log is
	closed  bool
	pending []byte // formatted lines on their way to the file
	lines   uint64 // how many lines are in pending
	skipped uint64 // lines that found no room in pending since the last write

	wake    chan struct{} // capacity 1: pending has something
	done    chan struct{} // closed when the writer has ended; nil without a file
	dropped atomic.Uint64
}

// Open makes a log. It does not fail: a file that cannot be written is warned about once, its lines are counted. Close
// releases it.
func Open(o Options) *Log {
	def := func(n *int, v int) {
		if *n <= 0 {
			*n = v
		}
	}
	def(&o.MaxSizeMB, 10)
	def(&o.MaxFiles, 3)
	def(&o.RingLines, 2000)
	def(&o.RingBytes, 512<<10)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Log{
		path:    o.Path,
		logger:  o.Logger,
		ring:    ring{maxLines: o.RingLines, maxBytes: o.RingBytes},
		changed: make(chan struct{}),
		wake:    make(chan struct{}, 1),
	}
	if o.Path != "" {
		l.done = make(chan struct{})
		file := &timberjack.Logger{
			Filename: o.Path, MaxSize: o.MaxSizeMB, MaxBackups: max(o.MaxFiles-1, 1), FileMode: 0o600,
			Compression: "none", BackupTimeFormat: "2006-01-02T15-04-05.000",
		}
		go l.writeFile(file)
	}
	return l
}

// Write adds one line, without its line end. It never blocks on the disk and keeps nothing of line.
func (l *Log) Write(s Stream, line []byte) {
	l.add(Line{Time: time.Now(), Stream: s, Text: Sanitize(line)})
}

// Notef adds a line of mcpd's own.
func (l *Log) Notef(format string, args ...any) {
	l.Write(Mcpd, fmt.Appendf(nil, format, args...))
}

func (l *Log) add(line Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.ring.add(line)
	close(l.changed)
	l.changed = make(chan struct{})
	if l.done == nil {
		return
	}
	if len(l.pending)+len(line.Text)+64 > maxPending {
		l.skipped++
		l.dropped.Add(1)
		return
	}
	l.pending = appendLine(l.pending, line)
	l.lines++
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// appendLine is the form of a line in the file.
func appendLine(b []byte, line Line) []byte {
	b = line.Time.AppendFormat(b, "2006-01-02T15:04:05.000Z07:00")
	b = append(b, ' ')
	b = append(b, line.Stream...)
	b = append(b, ' ')
	b = append(b, line.Text...)
	return append(b, '\n')
}

// Tail gives the last n lines, oldest first; all that are kept when n is negative.
func (l *Log) Tail(n int) []Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ring.tail(n)
}

// Follow yields the last tail lines and then each new one until ctx ends or the log is closed. Where the reader is
// slower than the ring is long, a line of mcpd's own says how many were skipped.
func (l *Log) Follow(ctx context.Context, tail int) iter.Seq[Line] {
	return func(yield func(Line) bool) {
		l.mu.Lock()
		next := l.ring.end() - uint64(len(l.ring.tail(tail)))
		l.mu.Unlock()
		for {
			l.mu.Lock()
			lines, lost := l.ring.from(next)
			next = l.ring.end()
			changed, closed := l.changed, l.closed
			l.mu.Unlock()
			if lost > 0 && !yield(Line{
				Time: time.Now(), Stream: Mcpd, Text: fmt.Sprintf("… %d lines skipped: they came faster than they were read …", lost),
			}) {
				return
			}
			for _, line := range lines {
				if ctx.Err() != nil || !yield(line) {
					return
				}
			}
			if closed {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}
}

// Path is where the file is; empty without one.
func (l *Log) Path() string { return l.path }

// Dropped counts the lines that did not reach the file since Open.
func (l *Log) Dropped() uint64 { return l.dropped.Load() }

// Close writes what is pending, releases the file and ends every Follow. Lines that come later are ignored.
func (l *Log) Close() error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.changed)
		close(l.wake)
	}
	l.mu.Unlock()
	if l.done != nil {
		<-l.done
	}
	return nil
}

// writeFile empties pending into the file until the log is closed.
func (l *Log) writeFile(file *timberjack.Logger) {
	defer close(l.done)
	defer func() { _ = file.Close() }()
	var (
		buf    []byte
		warned bool
		failed time.Time // of the last failed write; zero after one that worked
	)
	for open := true; open; {
		_, open = <-l.wake
		l.mu.Lock()
		buf, l.pending = l.pending, buf[:0]
		lines, skipped := l.lines, l.skipped
		l.lines, l.skipped = 0, 0
		l.mu.Unlock()
		if skipped > 0 {
			buf = appendLine(buf, Line{Time: time.Now(), Stream: Mcpd, Text: fmt.Sprintf("… %d lines dropped: they came faster than the disk took them …", skipped)})
		}
		if len(buf) == 0 {
			continue
		}
		if !failed.IsZero() && time.Since(failed) < retryWrite && open {
			l.dropped.Add(lines)
			continue
		}
		if err := write(file, l.path, buf); err != nil {
			l.dropped.Add(lines)
			failed = time.Now()
			if !warned {
				warned = true
				l.logger.Warn("the log file of a server cannot be written; the server runs on, lines are kept in memory only",
					"path", l.path, "error", err, "hint", "make room on the disk or mend the folder's permissions")
			}
			continue
		}
		failed = time.Time{}
		if cap(buf) > keepBuffer {
			buf = nil
		}
	}
}

// write makes sure of the modes, which the rotating writer leaves as it finds them, and appends.
func write(file io.Writer, path string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(path, 0o600); err != nil {
			return err
		}
	}
	_, err := file.Write(b)
	return err
}
