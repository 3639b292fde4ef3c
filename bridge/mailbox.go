package bridge

import (
	"bytes"
	"sync"

	"mcpd/bridge/jsonrpc"
)

// inbound is one message from a server, scanned, on its way to one HTTP
// request or to many listeners. It is not changed after it was delivered.
type inbound struct {
	data []byte
	msg  jsonrpc.Message
	buf  *buffer // owner of data when it goes to one reader only; else nil
	// uncounted marks what mcpd itself adds to a stream, a bounded number at
	// a time: it is not the reader's fault that it comes all at once.
	uncounted bool
}

// cost is what a message counts for in a mailbox.
func (in *inbound) cost() int64 {
	if in.uncounted {
		return 0
	}
	return costOf(len(in.data))
}

var inbounds = sync.Pool{New: func() any { return new(inbound) }}

func newInbound() *inbound { return inbounds.Get().(*inbound) }

// release gives the message back. Only the single reader of a message with a
// buffer of its own may call it; messages that went to many are left alone.
func (in *inbound) release() {
	if in == nil || in.buf == nil {
		return
	}
	in.buf.release()
	in.buf, in.data = nil, nil
	inbounds.Put(in)
}

// share makes in safe to be read by many: its bytes leave the pool, and take
// no more room than they need.
func (in *inbound) share() {
	if in.buf == nil {
		return
	}
	if cap(in.data) > 2*len(in.data) {
		in.data = bytes.Clone(in.data)
		in.buf.release()
	}
	in.buf = nil
}

// mailbox hands the messages of one upstream request to the one goroutine that
// writes its HTTP response. Bounded in bytes: a reader that is too slow loses
// its stream, and nobody else waits for it.
type mailbox struct {
	mu    sync.Mutex
	queue []*inbound
	bytes int64
	limit int64
	quiet bool  // nobody reads: notifications are dropped
	ended error // no more messages follow; nil while open
	wake  chan struct{}
	first [1]*inbound // room for the queue of most, to which only the answer comes
}

func newMailbox(limit int64) *mailbox {
	m := &mailbox{limit: limit, wake: make(chan struct{}, 1)}
	m.queue = m.first[:0]
	return m
}

// put appends messages. It reports false when the mailbox has ended, also
// when these very messages overflowed it; the caller then keeps them.
func (m *mailbox) put(messages ...*inbound) bool {
	m.mu.Lock()
	if m.ended != nil {
		m.mu.Unlock()
		return false
	}
	// What counts is what the reader has left unread, not the size of what
	// comes next: a large answer right behind its progress is no slow reader.
	if m.bytes > m.limit {
		m.queue, m.bytes = nil, 0
		m.ended = errSlowReader
		m.mu.Unlock()
		m.signal()
		return false
	}
	for _, in := range messages {
		if m.quiet && in.msg.Kind == jsonrpc.Notification {
			in.release()
			continue
		}
		m.queue = append(m.queue, in)
		m.bytes += in.cost()
	}
	m.mu.Unlock()
	m.signal()
	return true
}

// setQuiet says whether nobody reads for a while, so that notifications, which
// are for the moment, are dropped.
func (m *mailbox) setQuiet(quiet bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.quiet = quiet
}

// end closes the mailbox with a reason. Messages already queued are still
// read first. Idempotent: the first reason stays.
func (m *mailbox) end(reason error) {
	m.mu.Lock()
	if m.ended == nil {
		m.ended = reason
	}
	m.mu.Unlock()
	m.signal()
}

// take removes the next message. With none left it returns why the mailbox
// ended, or nil, nil when the caller has to wait for wake.
func (m *mailbox) take() (*inbound, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.queue) > 0 {
		in := m.queue[0]
		m.queue[0] = nil
		m.queue = m.queue[1:]
		m.bytes -= in.cost()
		return in, nil
	}
	return nil, m.ended
}

func (m *mailbox) signal() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}
