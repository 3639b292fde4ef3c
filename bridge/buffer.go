package bridge

import "sync"

const (
	// Buffers above this size are left to the garbage collector: keeping them
	// would let one huge message weigh on the daemon until the pools are emptied.
	largestPooledBuffer = 4 << 20
	// smallBuffer divides the pool in two, so that a short message does not
	// sit in the buffer of a long one while it waits.
	smallBuffer = 4 << 10
)

// messageOverhead is what a queued message takes beyond its bytes. Without it,
// a bound in bytes would be none at all for a flood of tiny messages.
const messageOverhead = 2 << 10

// costOf is what a message in a queue counts for.
func costOf(data []byte) int64 { return int64(len(data)) + messageOverhead }

// buffer is a byte slice that goes back to a pool. Exactly one party owns it
// at a time; release ends the ownership.
type buffer struct{ b []byte }

// The pools are shared by all connections: they are caches, not state.
var (
	smallBuffers = sync.Pool{New: func() any { return &buffer{b: make([]byte, 0, 2048)} }}
	largeBuffers = sync.Pool{New: func() any { return &buffer{b: make([]byte, 0, 4*smallBuffer)} }}
)

// newBuffer gives an empty buffer for a message of about size bytes.
func newBuffer(size int) *buffer {
	pool := &smallBuffers
	if size > smallBuffer {
		pool = &largeBuffers
	}
	b := pool.Get().(*buffer)
	b.b = b.b[:0]
	return b
}

func (b *buffer) release() {
	switch {
	case b == nil || cap(b.b) > largestPooledBuffer:
	case cap(b.b) > smallBuffer:
		largeBuffers.Put(b)
	default:
		smallBuffers.Put(b)
	}
}
