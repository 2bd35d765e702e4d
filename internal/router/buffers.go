package router

import "sync"

// buffers recycles the write buffers of streams.
type buffers struct{ pool sync.Pool }

// maxKept is the largest buffer that is kept; a longer one came from an unusual line.
const maxKept = 64 << 10

func (b *buffers) get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return (*p)[:0]
	}
	return make([]byte, 0, 4<<10)
}

func (b *buffers) put(buf []byte) {
	if cap(buf) <= maxKept {
		b.pool.Put(&buf)
	}
}
