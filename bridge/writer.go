package bridge

import (
	"errors"
	"io"
	"sync"
	"time"
)

// errQueueFull says that the server does not read its stdin.
var errQueueFull = errors.New("the server does not read its input: too much is queued for it")

// coalesceBelow is the size under which queued messages are joined into one
// write.
const coalesceBelow = 16 << 10

// outbound is one line for a server's stdin.
type outbound struct {
	buf *buffer
	// state is guarded by the writer's mutex.
	state outboundState
}

type outboundState uint8

const (
	queued    outboundState = iota
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
	bytes  int64
	closed error
	wake   chan struct{}
	done   chan struct{}
	fail   func(error) // called once, by the writing goroutine
}

func newWriter(out io.WriteCloser, limit int64, fail func(error)) *writer {
	return &writer{out: out, limit: limit, fail: fail, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// send queues one line and takes over its buffer, also when it fails.
func (w *writer) send(buf *buffer) (*outbound, error) {
	w.mu.Lock()
	if w.closed != nil {
		err := w.closed
		w.mu.Unlock()
		buf.release()
		return nil, err
	}
	if len(w.queue) > 0 && w.bytes+int64(len(buf.b)) > w.limit {
		w.mu.Unlock()
		buf.release()
		return nil, errQueueFull
	}
	o := &outbound{buf: buf}
	w.queue = append(w.queue, o)
	w.bytes += int64(len(buf.b))
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return o, nil
}

// withdraw takes a line back. It reports true when the server cannot have
// seen any of it.
func (w *writer) withdraw(o *outbound) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch o.state {
	case queued:
		o.state = withdrawn
		return true
	case withdrawn:
		return true
	}
	return false
}

// close stops the writer; what is queued is not written any more. It closes
// the pipe, which also ends a write that is stuck in it.
func (w *writer) close(reason error) {
	w.mu.Lock()
	if w.closed == nil {
		w.closed = reason
	}
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	// A pending write on a pipe is only ended by a deadline or by closing it.
	if d, ok := w.out.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = d.SetWriteDeadline(time.Unix(1, 0))
	}
	_ = w.out.Close()
}

// run writes until close or until the pipe breaks.
func (w *writer) run() {
	defer close(w.done)
	var joined []byte
	for range w.wake {
		for {
			w.mu.Lock()
			batch, closed := w.queue, w.closed
			w.queue, w.bytes = nil, 0
			if closed == nil {
				for _, o := range batch {
					if o.state == queued {
						o.state = taken
					}
				}
			}
			w.mu.Unlock()
			if closed != nil {
				for _, o := range batch {
					o.buf.release()
				}
				return
			}
			if len(batch) == 0 {
				break
			}
			var err error
			joined, err = w.write(batch, joined[:0])
			if err != nil {
				w.mu.Lock()
				if w.closed == nil {
					w.closed = err
				}
				w.mu.Unlock()
				w.fail(err)
				return
			}
			if cap(joined) > 4*coalesceBelow {
				joined = nil
			}
		}
	}
}

func (w *writer) write(batch []*outbound, joined []byte) ([]byte, error) {
	var err error
	flush := func() {
		if err == nil && len(joined) > 0 {
			_, err = w.out.Write(joined)
		}
		joined = joined[:0]
	}
	for _, o := range batch {
		// withdraw may run at any time, but not on a line that is taken.
		if o.state == taken {
			switch {
			case len(batch) > 1 && len(o.buf.b) < coalesceBelow:
				if len(joined)+len(o.buf.b) > 2*coalesceBelow {
					flush()
				}
				joined = append(joined, o.buf.b...)
			default:
				flush()
				if err == nil {
					_, err = w.out.Write(o.buf.b)
				}
			}
		}
		o.buf.release()
	}
	flush()
	return joined, err
}
