package bridge

import (
	"errors"
	"io"
	"sync"
	"time"
)

// errQueueFull says that the server does not read its stdin.
var errQueueFull = errors.New("the server does not read its input: too much is queued for it")

// coalesceUpTo is how many bytes of small messages are joined into one write.
const coalesceUpTo = 32 << 10

// outbound is one line for a server's stdin. The zero value is ready to send.
type outbound struct {
	// Both are guarded by the writer's mutex.
	buf   *buffer
	state outboundState
}

type outboundState uint8

const (
	unsent    outboundState = iota
	queued                  // in the queue; buf is there
	taken                   // being written, or written: the server may have seen it
	withdrawn               // taken back before a byte was written
)

// writer owns the pipe to a server's stdin: one goroutine writes, everyone
// else only queues, so a server that stops reading never blocks a caller.
type writer struct {
	out   io.WriteCloser
	limit int64

	mu     sync.Mutex
	queue  []*outbound
	head   int   // queue[:head] is taken
	gone   int   // withdrawn lines in queue[head:]
	bytes  int64 // cost of what is queued or being written
	closed error
	wake   chan struct{}
	fail   func(error) // called once, by the writing goroutine
}

func newWriter(out io.WriteCloser, limit int64, fail func(error)) *writer {
	return &writer{out: out, limit: limit, fail: fail, wake: make(chan struct{}, 1)}
}

// send queues one line and takes over its buffer, also when it fails.
func (w *writer) send(o *outbound, buf *buffer) error {
	w.mu.Lock()
	if w.closed != nil || o.state != unsent {
		err := w.closed
		w.mu.Unlock()
		buf.release()
		if err == nil {
			err = errClosed
		}
		return err
	}
	cost := costOf(buf.b)
	if w.bytes > 0 && w.bytes+cost > w.limit {
		w.mu.Unlock()
		buf.release()
		return errQueueFull
	}
	o.buf, o.state = buf, queued
	w.queue = append(w.queue, o)
	w.bytes += cost
	w.mu.Unlock()
	w.signal()
	return nil
}

func (w *writer) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// withdraw takes a line back. It reports true when the server cannot have
// seen any of it, and will not.
func (w *writer) withdraw(o *outbound) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch o.state {
	case taken:
		return false
	case queued:
		w.bytes -= costOf(o.buf.b)
		o.buf.release()
		o.buf = nil
		// A server that reads nothing must not let withdrawn lines pile up.
		if w.gone++; w.gone > 32 && w.gone > (len(w.queue)-w.head)/2 {
			w.compact()
		}
	}
	o.state = withdrawn
	return true
}

// compact drops what is taken or withdrawn from the queue.
func (w *writer) compact() {
	kept := w.queue[:0]
	for _, o := range w.queue[w.head:] {
		if o.state == queued {
			kept = append(kept, o)
		}
	}
	clear(w.queue[len(kept):])
	w.queue, w.head, w.gone = kept, 0, 0
}

// close stops the writer; what is queued is not written any more. It closes
// the pipe, which also ends a write that is stuck in it.
func (w *writer) close(reason error) {
	w.mu.Lock()
	if w.closed == nil {
		w.closed = reason
	}
	w.mu.Unlock()
	w.signal()
	// A pending write on a pipe is only ended by a deadline or by closing it.
	if d, ok := w.out.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = d.SetWriteDeadline(time.Unix(1, 0))
	}
	_ = w.out.Close()
}

// run writes until close or until the pipe breaks.
func (w *writer) run() {
	var (
		batch  []*buffer
		joined []byte
	)
	for range w.wake {
		for {
			batch = w.take(batch[:0])
			if len(batch) == 0 {
				break
			}
			line := batch[0].b
			if len(batch) > 1 {
				joined = joined[:0]
				for _, buf := range batch {
					joined = append(joined, buf.b...)
				}
				line = joined
			}
			_, err := w.out.Write(line)
			w.written(batch, err)
			if err != nil {
				w.fail(err)
				return
			}
		}
		if w.isClosed() {
			return
		}
	}
}

func (w *writer) isClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed != nil
}

// take gives the lines of the next write: one of any size, or several small
// ones. What stays in the queue can still be withdrawn.
func (w *writer) take(batch []*buffer) []*buffer {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed != nil {
		return batch
	}
	size := 0
	for w.head < len(w.queue) {
		o := w.queue[w.head]
		if o.state == withdrawn {
			w.gone--
		} else {
			if len(batch) > 0 && size+len(o.buf.b) > coalesceUpTo {
				break
			}
			size += len(o.buf.b)
			batch = append(batch, o.buf)
			o.buf, o.state = nil, taken
		}
		w.queue[w.head] = nil
		w.head++
	}
	if w.head > len(w.queue)/2 {
		w.compact()
	}
	return batch
}

// written gives the buffers of a write back.
func (w *writer) written(batch []*buffer, err error) {
	w.mu.Lock()
	for _, buf := range batch {
		w.bytes -= costOf(buf.b)
	}
	if err != nil && w.closed == nil {
		w.closed = err
	}
	w.mu.Unlock()
	for i, buf := range batch {
		buf.release()
		batch[i] = nil
	}
}
