package staging

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"pd-router/internal/nixl"
	"pd-router/internal/tilert"
)

const (
	// sendLimit bounds a Send whose context does not: a node keeps a sender's connection no longer (spec 2.1).
	sendLimit = tilert.TenancyAge
	dialLimit = 5 * time.Second
	// stepLimit is how long a node may take for its hello and for its answer: both come at once, or not at all.
	stepLimit = 10 * time.Second
)

var errSendLimit = fmt.Errorf("not over within %v", sendLimit)

// Send writes the KV into a decode node and returns nil when all of it is there and the node knows that. It asks as a prefill node's
// ranks would, as many as the node's hello wants, with either protocol, and comes again while the node says that it is busy, for 3 s. A
// node that has let go of the rid, after a decode that failed say, does not take it again; one that has all of it since an earlier Send is
// left alone. ctx should end with the request: a node that hangs reports nothing. Send may be called again, to another node or to the same.
//
// An error is an *Error. What has arrived at the node is then unknown, and it has not been told done. When it also is nixl.ErrUncertain, the
// write may go on; the KV is still good.
func (kv *KV) Send(ctx context.Context, to Target) error {
	a := kv.s.a
	in := kv.arrived()
	if !a.enter() {
		return kv.notSent(to, Closed, false, ErrClosed)
	}
	defer a.work.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(a.ctx, func() { cancel(ErrClosed) })()
	ctx, stop := context.WithTimeoutCause(ctx, sendLimit, errSendLimit)
	defer stop()

	p := &push{kv: kv, in: in, end: kv.sending(Sending), to: to, ctx: ctx, written: make(chan struct{})}
	began := time.Now()
	err := p.rank(ctx, 0, p.lead)
	took := time.Since(began)
	p.letGo(err)
	kv.sending(Held)
	if errors.Is(err, tilert.ErrRankDone) && !p.admitted() { // rank 0 itself, which is done last
		return nil
	}

	var failed *Error
	if err != nil {
		failed = kv.notSent(to, reasonOf(ctx, err, p.asked.Load()), p.admitted(), err)
	}
	t := kv.account(Out, failed)
	t.Node, t.Seconds = to.String(), took.Seconds()
	a.report(t)
	if failed != nil {
		return failed
	}
	return nil
}

func (kv *KV) notSent(to Target, why Reason, admitted bool, err error) *Error {
	e := kv.failed(Out, why, err)
	e.Node, e.Admitted = to.String(), admitted
	return e
}

// sending changes the slot's state and returns what to send from.
func (kv *KV) sending(st State) *endpoint {
	s := kv.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setLocked(st)
	return s.end
}

// push is one Send. Rank 0 leads: it asks for the node's buffer, then the others join it, one write brings the bytes of all, and each tells
// the node that it is done, rank 0 last.
type push struct {
	kv    *KV
	in    *arrival
	end   *endpoint
	to    Target
	ctx   context.Context
	asked atomic.Bool // a refusal was of the kind that passes

	mu    sync.Mutex
	conns []net.Conn // that were let in: the node's live writers

	written chan struct{} // closed by lead, after err is set
	err     error
}

// rank runs one rank of the transfer, on as many connections as it takes. write is called once at most, when the rank was let in.
func (p *push) rank(ctx context.Context, rank int, write func(*tilert.Hello) error) error {
	sender := &tilert.Sender{Request: p.in.request(rank)}
	for {
		err := p.converse(ctx, sender, write)
		var again *tilert.RetryError
		if !errors.As(err, &again) {
			return err
		}
		if again.Detail == tilert.NoConsumer {
			return fmt.Errorf("%w: %w", errForgotten, err)
		}
		p.asked.Store(true)
		if !sleep(ctx, again.Pause) {
			return fmt.Errorf("%w while waiting: %w", context.Cause(ctx), err)
		}
	}
}

// converse is one connection.
func (p *push) converse(ctx context.Context, sender *tilert.Sender, write func(*tilert.Hello) error) error {
	dialer := net.Dialer{Timeout: dialLimit}
	conn, err := dialer.DialContext(ctx, "tcp", p.to.String())
	if err != nil {
		return err
	}
	_ = conn.SetDeadline(time.Now().Add(stepLimit))
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })() // long ago: ends reads and writes
	in := false
	defer func() {
		if !in {
			_ = conn.Close()
		}
	}()
	hello, frame, err := readHello(conn)
	if err != nil {
		return err
	}
	if err := p.want(hello, sender); err != nil {
		return err
	}
	again := struct {
		io.Reader
		io.Writer
	}{io.MultiReader(bytes.NewReader(frame), conn), conn} // Converse reads the hello for itself
	return sender.Converse(again, func(h *tilert.Hello) error {
		in = true
		p.keep(conn)
		err := write(h)
		if err == nil { // the bytes are there: only the done is missing, for which there is time whatever ctx says
			_ = conn.SetDeadline(time.Now().Add(stepLimit))
		}
		return err
	})
}

// readHello returns the hello and the frame that it came in.
func readHello(r io.Reader) (*tilert.Hello, []byte, error) {
	var frame bytes.Buffer
	b, err := tilert.ReadFrame(io.TeeReader(r, &frame), nil)
	if err != nil {
		return nil, nil, fmt.Errorf("hello: %w", err)
	}
	h, err := tilert.ParseHello(b)
	if err != nil {
		return nil, nil, &tilert.HelloError{Field: "form", Got: err.Error(), Want: "a TileRT decode node's"}
	}
	return h, frame.Bytes(), nil
}

// want sets what the node must be, by its own protocol and number of senders: the arena can send in both ways and with any number of ranks.
func (p *push) want(h *tilert.Hello, sender *tilert.Sender) error {
	layout := p.kv.s.a.o.Layout
	sender.Want = tilert.Want{Protocol: tilert.Protocol2, LayoutVersion: layout.Version, Transport: transport}
	if h.Magic != tilert.Magic {
		return nil // Converse says so
	}
	if h.Protocol == tilert.Protocol1 {
		sender.Want.Protocol = tilert.Protocol1
	}
	if h.Senders < 1 || h.Senders > maxSenders {
		return &tilert.HelloError{Field: "senders", Got: fmt.Sprint(h.Senders), Want: fmt.Sprintf("1 to %d", maxSenders)}
	}
	return checkGeneration(layout, h.Protocol)
}

// lead is rank 0 once it was let in: it sees the others in, writes all bytes, and has the others say done.
func (p *push) lead(h *tilert.Hello) error {
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	var others errgroup.Group
	admitted := make(chan error, h.Senders)
	for rank := 1; rank < h.Senders; rank++ {
		others.Go(func() error { return p.follow(ctx, rank, h, admitted) })
	}
	for range h.Senders - 1 {
		if p.err = <-admitted; p.err != nil {
			break
		}
	}
	if p.err == nil {
		p.err = p.write(h)
	}
	if p.err != nil {
		cancel()
	}
	close(p.written)
	if err := others.Wait(); p.err == nil {
		return err
	}
	return p.err
}

// follow is another rank. It tells on admitted, once, that it was let in, or why not.
func (p *push) follow(ctx context.Context, rank int, lead *tilert.Hello, admitted chan<- error) error {
	in := false
	err := p.rank(ctx, rank, func(h *tilert.Hello) error {
		if !sameNode(lead, h) {
			return &tilert.HelloError{Field: "nixl_meta", Got: "another", Want: "that of rank 0: the node has started again"}
		}
		in = true
		admitted <- nil
		<-p.written
		return p.err
	})
	if !in {
		admitted <- fmt.Errorf("rank %d: %w", rank, err)
	}
	return err
}

func sameNode(a, b *tilert.Hello) bool {
	return bytes.Equal(a.NixlMeta, b.NixlMeta) && a.MaxSeqLen == b.MaxSeqLen && a.Senders == b.Senders &&
		slices.Equal(a.KVBase, b.KVBase) && slices.Equal(a.PEBase, b.PEBase) && slices.Equal(a.KIBase, b.KIBase)
}

// write brings the bytes of all ranks from the slot's layout into the node's, in one go.
func (p *push) write(h *tilert.Hello) error {
	layout, n := p.kv.s.a.o.Layout, p.in.seqLen
	to := h.Region()
	if err := layout.CheckRegion(to, n); err != nil {
		return &tilert.HelloError{Field: "kv_base", Got: err.Error(), Want: "room"}
	}
	peer, err := p.end.peer(p.ctx, p.to.String(), h.NixlMeta)
	if err != nil {
		return err
	}
	spans := make([]nixl.Span, 0, layout.Layers*int(tilert.NumPlanes))
	for layer := range layout.Layers {
		for _, w := range layout.LayerWrites(p.end.planes, to, layer, n) {
			spans = append(spans, nixl.Span{Off: int(w.Src - p.end.region.Addr()), Len: w.Len, Addr: w.Dst})
		}
	}
	if err := peer.Write(p.ctx, p.end.region, spans); err != nil {
		return err
	}
	return p.kv.unchanged()
}

// keep notes a connection that was let in. It stays open to the end of the push, whatever becomes of its rank: the node must not think its
// writer gone while another rank's write is under way.
func (p *push) keep(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, conn)
}

func (p *push) admitted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns) > 0
}

// letGo closes the connections, now or, when the write's end is not known, as soon as it is (invariant 4). All ranks have returned.
func (p *push) letGo(err error) {
	var uncertain *nixl.UncertainError
	if !errors.As(err, &uncertain) {
		closeAll(p.conns)
		return
	}
	s := p.kv.s
	s.mu.Lock()
	s.open++
	s.mu.Unlock()
	s.a.late.Go(func() { // ended by the write's end, or by the arena's
		select {
		case <-uncertain.Settled:
		case <-s.a.gone:
		}
		closeAll(p.conns)
		s.mu.Lock()
		s.open--
		s.mu.Unlock()
		s.nudge()
	})
}

func closeAll(conns []net.Conn) {
	for _, c := range conns {
		_ = c.Close()
	}
}

// sleep waits, and reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
