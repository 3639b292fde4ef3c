package bridge

import "sync"

// Buffers above this size are left to the garbage collector: keeping them
// would make one huge message the daemon's memory for good.
const largestPooledBuffer = 4 << 20

// buffer is a byte slice that goes back to a pool. Exactly one party owns it
// at a time; release ends the ownership.
type buffer struct{ b []byte }

// buffers are shared by all connections: the pool is a cache, not state.
var buffers = sync.Pool{New: func() any { return &buffer{b: make([]byte, 0, 2048)} }}

func newBuffer() *buffer {
	b := buffers.Get().(*buffer)
	b.b = b.b[:0]
	return b
}

func (b *buffer) release() {
	if b == nil || cap(b.b) > largestPooledBuffer {
		return
	}
	buffers.Put(b)
}
