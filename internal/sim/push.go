package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"pd-router/internal/tilert"
)

// handoff is the KV of one request on its way: what all ranks share.
type handoff struct {
	ctx     context.Context // ends when the request is aborted, or the node closed
	host    string
	port    int
	rid     string
	content *content
	fault   string
	began   time.Time // the first layer's computation
	ends    time.Time // the last layer's
	left    atomic.Int32
	failed  atomic.Bool
	done    func(ok bool) // once, after the last rank
}

// ready returns when a layer has been computed.
func (h *handoff) ready(layer int) time.Time {
	return h.began.Add(h.ends.Sub(h.began) / time.Duration(h.content.layout.Layers) * time.Duration(layer+1))
}

// connector is the sending side of a prefill node: a worker for each rank, strictly one request after the other.
type connector struct {
	layout   tilert.Layout
	protocol tilert.Protocol
	senders  int
	bytesPS  float64  // bytes a second of all ranks together, 0 is no limit
	outs     []outlet // the transports that it has, the best first
	life     *life
	tell     func(string)
	queues   []rankQueue
	sent     atomic.Uint64 // bytes
}

// rankQueue is what a rank has still to do. The worker takes from it, push adds.
type rankQueue struct {
	mu   sync.Mutex
	jobs []*handoff
	wake chan struct{}
}

func newConnector(l tilert.Layout, p tilert.Protocol, senders int, gbps float64, life *life) *connector {
	c := &connector{layout: l, protocol: p, senders: senders, bytesPS: gbps * 1e9, life: life, tell: func(string) {}}
	c.queues = make([]rankQueue, senders)
	for rank := range c.queues {
		c.queues[rank].wake = make(chan struct{}, 1)
	}
	return c
}

// start runs the workers until the node's life ends.
func (c *connector) start() {
	for rank := range c.queues {
		c.life.work.Go(func() { c.work(rank) })
	}
}

// close ends the transports. No rank works any more.
func (c *connector) close() (err error) {
	for _, out := range c.outs {
		err = errors.Join(err, out.close())
	}
	return err
}

// push hands a request to all ranks.
func (c *connector) push(h *handoff) {
	h.left.Store(int32(c.senders))
	for rank := range c.queues {
		q := &c.queues[rank]
		q.mu.Lock()
		q.jobs = append(q.jobs, h)
		q.mu.Unlock()
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
}

func (c *connector) work(rank int) {
	q := &c.queues[rank]
	for {
		q.mu.Lock()
		var h *handoff
		if len(q.jobs) > 0 {
			h, q.jobs = q.jobs[0], q.jobs[1:]
		}
		q.mu.Unlock()
		if h != nil {
			if err := c.send(h, rank); err != nil {
				h.failed.Store(true)
				c.tell(fmt.Sprintf("rank %d did not send the KV of %s: %v", rank, h.rid, err))
			}
			if h.left.Add(-1) == 0 {
				h.done(!h.failed.Load())
			}
			continue
		}
		select {
		case <-q.wake:
		case <-c.life.ctx.Done():
			return
		}
	}
}

// send is one rank's part of a request, with as many connections as it takes.
func (c *connector) send(h *handoff, rank int) error {
	s := &tilert.Sender{
		Request: tilert.Request{RID: h.rid, Rank: rank, SeqLen: h.content.tokens},
		Want:    tilert.Want{Protocol: c.protocol, LayoutVersion: c.layout.Version, Senders: c.senders},
	}
	if c.protocol == tilert.Protocol1 {
		s.Want.Senders = 0
	}
	for outs := c.outs; ; {
		s.Want.Transport = outs[0].name()
		err := c.attempt(h, s, outs[0])
		var other *tilert.HelloError
		var again *tilert.RetryError
		switch {
		case errors.As(err, &other) && other.Field == "transport" && len(outs) > 1:
			outs = outs[1:]
		case !errors.As(err, &again):
			return err
		case !sleep(h.ctx, again.Pause):
			return context.Cause(h.ctx)
		}
	}
}

// attempt is one connection. It stays open while bytes are on their way, even if the request has been aborted: as long as
// the receiver sees a writer it gives the buffer to nobody else.
func (c *connector) attempt(h *handoff, s *tilert.Sender, out outlet) error {
	var d net.Dialer
	conn, err := d.DialContext(h.ctx, "tcp4", net.JoinHostPort(h.host, strconv.Itoa(h.port)))
	if err != nil {
		return err
	}
	stop := context.AfterFunc(h.ctx, func() { _ = conn.Close() })
	defer func() {
		stop()
		_ = conn.Close()
	}()
	return s.Converse(deadlineConn{conn, dataTimeout}, func(hello *tilert.Hello) error {
		if !stop() {
			return context.Cause(h.ctx)
		}
		return c.write(h, hello, s.Rank, out)
	})
}

// errLost is the end of a rank that the fault kv-lost kills.
var errLost = errors.New("this rank dies here")

// write moves the rank's layers, each when it has been computed.
func (c *connector) write(h *handoff, hello *tilert.Hello, rank int, out outlet) error {
	dst := hello.Region()
	if err := c.layout.CheckRegion(dst, h.content.tokens); err != nil {
		return err
	}
	if h.content.blob == nil { // a handshake without bytes
		if !sleep(h.ctx, time.Until(h.ends)) {
			return context.Cause(h.ctx)
		}
		return nil
	}
	st, err := out.open(h.ctx, h.host, h.port, hello)
	if err != nil {
		return err
	}
	defer st.close()
	var began time.Time // of the first byte
	moved := int64(0)
	for layers := c.layout.RankLayers(rank, c.senders); len(layers) > 0; {
		if !sleep(h.ctx, time.Until(h.ready(layers[0]))) {
			return context.Cause(h.ctx)
		}
		if moved == 0 {
			began = time.Now()
		}
		n := 1
		for n < len(layers) && !time.Now().Before(h.ready(layers[n])) {
			n++
		}
		size, err := c.group(st, h, dst, layers[:n])
		if err != nil {
			return err
		}
		moved, layers = moved+size, layers[n:]
		if c.bytesPS > 0 {
			due := began.Add(time.Duration(float64(moved*int64(c.senders)) / c.bytesPS * float64(time.Second)))
			if !sleep(h.ctx, time.Until(due)) {
				return context.Cause(h.ctx)
			}
		}
	}
	if err := st.flush(); err != nil {
		return err
	}
	c.sent.Add(uint64(moved))
	if h.fault == kvLost && rank == c.senders-1 {
		return errLost
	}
	return nil
}

// group sends layers that are ready together, as the real connector does.
func (c *connector) group(st stream, h *handoff, dst tilert.Region, layers []int) (size int64, err error) {
	for _, layer := range layers {
		if h.ctx.Err() != nil {
			return size, context.Cause(h.ctx)
		}
		for _, w := range c.layout.LayerWrites(dst, dst, layer, h.content.tokens) {
			if err := c.piece(st, h, w); err != nil {
				return size, err
			}
			size += int64(w.Len)
		}
	}
	return size, st.group()
}

// piece sends one write, with the fault that the request has. Faults of single pieces hit the PE plane of layer 0.
func (c *connector) piece(st stream, h *handoff, w tilert.Write) error {
	size := h.content.row(w.Plane)
	hit := w.Plane == tilert.PE && w.Layer == 0
	switch {
	case hit && h.fault == kvOffset:
		w.Dst += uint64(size)
	case hit && h.fault == kvSize:
		w.Len += size
	case hit && h.fault == kvShort:
		w.Len -= size
	}
	err := st.write(w, size, func(part []byte, from int) {
		h.content.fill(part, w.Plane, w.Layer, from/size)
		if hit && h.fault == kvFlip && from == 0 {
			part[size-1] ^= 1
		}
	})
	if err != nil {
		return fmt.Errorf("layer %d, %s plane: %w", w.Layer, w.Plane, err)
	}
	return nil
}

// sleep waits, and reports false if the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// deadlineConn bounds each read and write, as the peer's sockets do.
type deadlineConn struct {
	net.Conn
	each time.Duration
}

func (c deadlineConn) Read(p []byte) (int, error) {
	_ = c.SetReadDeadline(time.Now().Add(c.each))
	return c.Conn.Read(p)
}

func (c deadlineConn) Write(p []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(c.each))
	return c.Conn.Write(p)
}
