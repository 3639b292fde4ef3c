// Package childlog keeps what the children of one server write to stderr, and the lines of their stdout that are no
// messages: a ring in memory for reading back and following, and a rotating file.
package childlog

import (
	"context"
	"iter"
	"log/slog"
	"time"
)

// Stream says where a line came from.
type Stream string

// The streams.
const (
	Stderr Stream = "stderr"
	Stdout Stream = "stdout"
	Mcpd   Stream = "mcpd" // what mcpd itself notes about the child
)

// Line is one line of the log, safe to show on a terminal.
type Line struct {
	Time   time.Time
	Stream Stream
	Text   string
}

// Options of a Log.
type Options struct {
	// Path of the file; empty keeps the ring only.
	Path   string
	Logger *slog.Logger
}

// Log is the log of one server.
type Log struct{}

// Open makes a log. It does not fail: a file that cannot be written is warned about once and its lines are counted.
func Open(o Options) *Log { return &Log{} }

// Write adds a line.
func (l *Log) Write(s Stream, line []byte) {}

// Tail gives the last n lines, oldest first.
func (l *Log) Tail(n int) []Line { return nil }

// Follow yields the last tail lines and then each new one until ctx ends or the log is closed.
func (l *Log) Follow(ctx context.Context, tail int) iter.Seq[Line] { return func(func(Line) bool) {} }

// Dropped counts lines that did not reach the file.
func (l *Log) Dropped() uint64 { return 0 }

// Close flushes and releases the file.
func (l *Log) Close() error { return nil }
