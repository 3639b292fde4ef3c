package bridge

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Buffers are pooled by size, so that a short message does not sit in the
// buffer of a long one while it waits. Each class holds a message whose payload
// is a power of two together with what is around the payload.
var bufferClasses = [...]int{2 << 10, 16 << 10, 72 << 10, 264 << 10, 1<<20 + 8<<10, 4<<20 + 8<<10}

// Buffers above this size are left to the garbage collector: keeping them
// would let one huge message weigh on the daemon until the pools are emptied.
const largestPooledBuffer = 4<<20 + 8<<10

// messageOverhead is what a queued message takes beyond its bytes. Without it,
// a bound in bytes would be none at all for a flood of tiny messages.
const messageOverhead = 2 << 10

// costOf is what a message of size bytes in a queue counts for.
func costOf(size int) int64 { return int64(size) + messageOverhead }

// buffer is a byte slice that goes back to a pool. Exactly one party owns it
// at a time, and release ends the ownership; retain makes one more owner.
type buffer struct {
	b      []byte
	others atomic.Int32 // owners beyond the first
}

// The pools are shared by all connections: they are caches, not state. The
// garbage collector empties those that are not used.
var bufferPools [len(bufferClasses)]sync.Pool

// newBuffer gives an empty buffer for a message of about size bytes.
func newBuffer(size int) *buffer {
	for class, most := range bufferClasses {
		if size > most {
			continue
		}
		if b, ok := bufferPools[class].Get().(*buffer); ok {
			return b
		}
		return &buffer{b: make([]byte, 0, most)}
	}
	return &buffer{b: make([]byte, 0, size)}
}

// retain makes one more owner. The bytes must not change while there are more
// than one.
func (b *buffer) retain() *buffer {
	b.others.Add(1)
	return b
}

// release ends the ownership of one owner. nil owns nothing.
func (b *buffer) release() {
	switch {
	case b == nil:
		return
	case b.others.Add(-1) >= 0:
		return
	}
	b.others.Store(0)
	size := cap(b.b)
	if size > largestPooledBuffer {
		return
	}
	for class := len(bufferClasses) - 1; class >= 0; class-- {
		if size >= bufferClasses[class] {
			b.b = b.b[:0]
			bufferPools[class].Put(b)
			return
		}
	}
}

// grow makes room for n more bytes. Only a sole owner may call it.
func (b *buffer) grow(n int) {
	if cap(b.b)-len(b.b) >= n {
		return
	}
	size := max(len(b.b)+n, 2*cap(b.b))
	if size > largestPooledBuffer {
		b.b = slices.Grow(b.b, size-len(b.b))
		return
	}
	larger := newBuffer(size)
	larger.b = append(larger.b, b.b...)
	b.b, larger.b = larger.b, b.b
	larger.release()
}
