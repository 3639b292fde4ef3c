package bridge

import (
	"errors"
	"io"
	"runtime"
	"sync"
	"time"
)

// errQueueFull says that the server does not read its stdin.
var errQueueFull = errors.New("the server does not read its input: too much is queued for it")

// coalesceUpTo is how many bytes of small messages are joined into one write.
const coalesceUpTo = 32 << 10

// line is the text of one line. Where pieces is nil it is all in buf; else it
// is the pieces, which lie in buf and in body.
type line struct {
	buf    *buffer
	pieces [][]byte
	body   *buffer
}

func (l *line) size() int {
	if l.pieces == nil {
		return len(l.buf.b)
	}
	n := 0
	for _, p := range l.pieces {
		n += len(p)
	}
	return n
}

func (l *line) release() {
	l.buf.release()
	l.body.release()
	*l = line{}
}

// outbound is one line for a server's stdin. The zero value is ready to send.
type outbound struct {
	// Both are guarded by the writer's mutex.
	line  line
	state outboundState
}

type outboundState uint8

const (
	unsent    outboundState = iota
	queued                  // in the queue; line is there
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

// send queues one line and takes over its buffers, also when it fails.
func (w *writer) send(o *outbound, l line) error {
	w.mu.Lock()
	if w.closed != nil || o.state != unsent {
		err := w.closed
		w.mu.Unlock()
		l.release()
		if err == nil {
			err = errClosed
		}
		return err
	}
	cost := costOf(l.size())
	if w.bytes > 0 && w.bytes+cost > w.limit {
		w.mu.Unlock()
		l.release()
		return errQueueFull
	}
	o.line, o.state = l, queued
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
		w.bytes -= costOf(o.line.size())
		o.line.release()
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
		batch  []line
		joined []byte
		roomy  bool
	)
	for range w.wake {
		// Who else is about to send something comes first: what is written
		// together costs one write, and wakes the server once.
		runtime.Gosched()
		for {
			batch = w.take(batch[:0])
			if len(batch) == 0 {
				break
			}
			var err error
			switch {
			case len(batch) > 1:
				joined = joined[:0]
				for i := range batch {
					joined = append(joined, batch[i].buf.b...)
				}
				_, err = w.out.Write(joined)
			case batch[0].pieces == nil:
				_, err = w.out.Write(batch[0].buf.b)
			default:
				if !roomy {
					roomy = true
					makeRoom(w.out)
				}
				for _, piece := range batch[0].pieces {
					if _, err = w.out.Write(piece); err != nil {
						break
					}
				}
			}
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

// makeRoom has a pipe hold more, where the system can do that: a long message
// then takes fewer turns between the two ends. A pipe that carries no long
// messages keeps its size, as users have only so much memory for their pipes.
func makeRoom(pipe any) {
	if p, ok := pipe.(interface{ MakeRoom() }); ok {
		p.MakeRoom()
	}
}

func (w *writer) isClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed != nil
}

// take gives the lines of the next write: one of any size, or several small
// ones. What stays in the queue can still be withdrawn.
func (w *writer) take(batch []line) []line {
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
			more := o.line.size()
			if len(batch) > 0 && size+more > coalesceUpTo {
				break
			}
			size += more
			batch = append(batch, o.line)
			o.line, o.state = line{}, taken
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
func (w *writer) written(batch []line, err error) {
	w.mu.Lock()
	for i := range batch {
		w.bytes -= costOf(batch[i].size())
	}
	if err != nil && w.closed == nil {
		w.closed = err
	}
	w.mu.Unlock()
	for i := range batch {
		batch[i].release()
	}
}
