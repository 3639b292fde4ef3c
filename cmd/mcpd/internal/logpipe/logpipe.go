// Package logpipe lets a daemon log without waiting for whoever reads its log.
//
// It owns the one goroutine that writes to the log. A terminal that was
// stopped, or a full pipe that nobody reads, then costs log lines, and never
// holds up a request or a child. It never changes a line.
package logpipe

import (
	"context"
	"fmt"
	"io"
	"sync"
)

const (
	maxLines = 4096
	maxBytes = 4 << 20
)

// Writer is an io.Writer that never blocks. Each Write is one line.
type Writer struct {
	out  io.Writer
	wake chan struct{}
	done chan struct{} // closed when run has ended

	mu      sync.Mutex
	queue   [][]byte
	bytes   int
	dropped int
	closed  bool
}

// New starts writing to out. Close must follow.
func New(out io.Writer) *Writer {
	w := &Writer{out: out, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go w.run()
	return w
}

// Write queues a copy of p. It always succeeds: what does not fit is dropped
// and counted, and the count is logged when there is room again.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	if w.closed || len(w.queue) >= maxLines || w.bytes+len(p) > maxBytes {
		w.dropped++
	} else {
		w.queue = append(w.queue, append([]byte(nil), p...))
		w.bytes += len(p)
	}
	w.mu.Unlock()
	w.signal()
	return len(p), nil
}

// Close writes what is queued and stops. When ctx ends first, it gives up on a
// log that nobody reads and leaves the goroutine in its write.
func (w *Writer) Close(ctx context.Context) error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.signal()
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the end of the log is lost, nobody reads it: %w", ctx.Err())
	}
}

func (w *Writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *Writer) run() {
	defer close(w.done)
	for range w.wake {
		for {
			w.mu.Lock()
			queue, dropped, closed := w.queue, w.dropped, w.closed
			w.queue, w.bytes, w.dropped = nil, 0, 0
			w.mu.Unlock()
			// A log that cannot be written has no place to say so.
			for _, line := range queue {
				_, _ = w.out.Write(line)
			}
			if dropped > 0 && !closed {
				_, _ = fmt.Fprintf(w.out, "level=WARN msg=\"log lines were dropped: nobody read them in time\" lines=%d\n", dropped)
			}
			if closed {
				return
			}
			if len(queue) == 0 {
				break
			}
		}
	}
}
