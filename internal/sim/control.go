package sim

import (
	"net"
	"sync"
	"time"

	"pd-router/internal/tilert"
)

// receiver is the receiving side of a decode node: the buffer, who may write into it, and which transfers have arrived.
type receiver struct {
	protocol tilert.Protocol
	layout   tilert.Layout
	senders  int
	buffer   *arena
	in       inlet

	mu       sync.Mutex
	tenancy  *tilert.Receiver
	complete []*tilert.Transfer // arrived, in order, not yet asked for
	arrived  chan struct{}      // has room for one: complete may have grown
}

func newReceiver(l tilert.Layout, p tilert.Protocol, o DecodeOptions, buffer *arena) *receiver {
	return &receiver{
		protocol: p, layout: l, senders: o.Senders, buffer: buffer,
		tenancy: tilert.NewReceiver(tilert.ReceiverOptions{Protocol: p, Senders: o.Senders, MaxSeqLen: o.MaxSeqLen, Age: o.Age}),
		arrived: make(chan struct{}, 1),
	}
}

// converse serves one connection of the control port.
func (r *receiver) converse(c net.Conn) {
	defer c.Close()
	_ = tilert.Serve(deadlineConn{c, tilert.TenancyAge}, r.protocol, r) // how it ended is in the books
}

// Hello is what a sender is told first.
func (r *receiver) Hello() tilert.Hello {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := tilert.Hello{Magic: tilert.Magic, Protocol: r.protocol, LayoutVersion: r.layout.Version, Busy: r.tenancy.Busy(), Senders: r.senders}
	h.SetRegion(r.buffer.region)
	r.in.announce(&h)
	return h
}

// Admit decides about one rank's request.
func (r *receiver) Admit(q *tilert.Request) (tilert.Reply, *tilert.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tenancy.Admit(time.Now(), q)
}

// Done notes that a rank has written all it had.
func (r *receiver) Done(w *tilert.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t, ok := r.tenancy.Done(w); ok {
		r.complete = append(r.complete, t)
		select {
		case r.arrived <- struct{}{}:
		default:
		}
	}
}

// Leave notes that a rank's connection has ended.
func (r *receiver) Leave(w *tilert.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tenancy.Leave(w)
}

// expect announces that a request waits for the rid's KV.
func (r *receiver) expect(rid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tenancy.Expect(rid)
}

// release lets go of the rid's KV.
func (r *receiver) release(rid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tenancy.Release(time.Now(), rid)
}

// take returns the rid's transfer if it has arrived. Transfers of other rids that came before it are dropped and let go
// of: whoever wanted them is not who waits now.
func (r *receiver) take(rid string) *tilert.Transfer {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.complete) > 0 {
		t := r.complete[0]
		r.complete = r.complete[1:]
		if t.RID == rid {
			return t
		}
		r.tenancy.Release(time.Now(), t.RID)
	}
	return nil
}
