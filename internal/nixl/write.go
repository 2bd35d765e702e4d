package nixl

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

// smallWrite is how many bytes are posted on the goroutine of the caller. To go to another goroutine and back would cost a third of the time
// that such a write takes. Posting it has nothing to wait for: the library does not copy more than this before it returns, and what holds
// its lock for long is a change of the agent, beside which no write is posted here.
const smallWrite = 64 << 10

// yieldAfter is how long a goroutine asks the library, in one write or in a row of small ones, before it passes through Go's scheduler. One that
// has not for 10 ms loses its processor in the midst of a C call, and the runtime's monitor then keeps waking for a while, on the very cores that
// move the data: a tenth of the time of a 4 KB write on two cores.
const yieldAfter = 8 * time.Millisecond

// Span is one piece of a write: Len bytes from Off in the region to Addr in the peer's address space.
type Span struct {
	Off, Len int
	Addr     uint64
}

// transfer is a write from its begin to the moment when the library has let go of it. Its request belongs to one goroutine at a time: the one
// that starts it, then the poller, then the one that tears the agent down.
type transfer struct {
	peer      *Peer
	region    *Region
	mem       MemType // of the peer's side
	req       handle
	abandoned atomic.Bool   // nobody waits
	done      chan struct{} // closed by settle, after err is set
	err       error
}

// Write copies spans of r into the peer's memory and returns nil when all of it is there. A stopped peer never reports an
// error, so ctx must have a deadline.
//
// Each span must lie within one piece that the peer registered; which kind of memory that is, is taken from its metadata. An error
// other than ErrUncertain means that the library reads r no more; how much has arrived is then unknown, and nothing if the error is
// ErrRange, ErrRefused or ErrClosed from before the start. ErrUncertain comes with ctx's end: see UncertainError.
// After ErrPeerLost the peer has ended, and other writes to it will end likewise; AddPeer with the metadata of a new hello makes a new one.
func (p *Peer) Write(ctx context.Context, r *Region, spans []Span) error {
	if _, ok := ctx.Deadline(); !ok {
		return fmt.Errorf("nixl: write to %s: the context has no deadline", p.name)
	}
	if len(spans) == 0 {
		return nil
	}
	a := p.agent
	list := a.lists.Get().(*[]span)
	t, err := p.prepare(ctx, r, spans, list)
	if err != nil {
		a.lists.Put(list)
		return err
	}
	if small(*list) && len(a.turn) == 0 {
		a.post(t, list)
		_ = a.yield()
	} else {
		go a.post(t, list)
	}
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
	}
	t.abandoned.Store(true)
	select {
	case <-t.done: // it ended in the same moment
		return t.err
	default:
		return &UncertainError{Settled: t.done, Peer: p.name, Cause: context.Cause(ctx)}
	}
}

// prepare counts a write, checks it, and waits for a place. When it fails, nothing is counted and nothing has been sent.
func (p *Peer) prepare(ctx context.Context, r *Region, spans []Span, list *[]span) (*transfer, error) {
	a := p.agent
	t, err := a.begin(p, r)
	if err != nil {
		return nil, err
	}
	if t.mem, err = p.resolve(r, spans, list); err == nil {
		err = a.place(ctx, p)
	}
	if err != nil {
		a.posted(t)
		a.settle(t, err, false)
		return nil, err
	}
	return t, nil
}

// place waits until few enough writes are inside their first C calls.
func (a *Agent) place(ctx context.Context, p *Peer) error {
	if ctx.Err() == nil {
		select {
		case a.posts <- struct{}{}:
			return nil
		case <-ctx.Done():
		}
	}
	return fmt.Errorf("nixl: write to %s: not begun: %w", p.name, context.Cause(ctx))
}

// resolve turns spans into addresses and finds the kind of memory that holds all of them.
func (p *Peer) resolve(r *Region, spans []Span, out *[]span) (MemType, error) {
	if r.agent != p.agent {
		return 0, fmt.Errorf("nixl: write to %s: the region belongs to another agent: %w", p.name, ErrRange)
	}
	list := (*out)[:0]
	for i, s := range spans {
		if s.Off < 0 || s.Len < 0 || s.Off > r.n || s.Len > r.n-s.Off {
			return 0, fmt.Errorf("nixl: write to %s: span %d, %d bytes at %d of %d: %w", p.name, i, s.Len, s.Off, r.n, ErrRange)
		}
		list = append(list, span{local: r.addr + uint64(s.Off), remote: s.Addr, len: uint64(s.Len)})
	}
	*out = list
	worst := 0 // the first span without a place, in the kind that holds most
	for k := range p.mem {
		bad := p.mem[k].place(list)
		if bad < 0 {
			return p.mem[k].mem, nil
		}
		worst = max(worst, bad)
	}
	return 0, fmt.Errorf("nixl: write to %s: span %d, %d bytes at %#x there: %w", p.name, worst, spans[worst].Len, spans[worst].Addr, ErrRange)
}

// small tells whether a write is posted on its caller's goroutine.
func small(list []span) bool {
	var n uint64
	for i := range list {
		n += list[i].len
	}
	return n <= smallWrite
}

// place sets the device of each span, or returns the first that lies in no registered piece of this kind.
func (k *kind) place(list []span) int {
	at := 0
	for i := range list {
		if at = k.covers(list[i].remote, list[i].len, at); at < 0 {
			return i
		}
		list[i].dev = k.descs[at].Dev
	}
	return -1
}

// begin counts a write with all that it uses. It is the one place where a write can be turned away.
func (a *Agent) begin(p *Peer, r *Region) (*transfer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closing:
		return nil, fmt.Errorf("nixl: write to %s: agent %s: %w", p.name, a.name, ErrClosed)
	case p.ended != nil:
		return nil, p.ended
	case r.closed:
		return nil, fmt.Errorf("nixl: write to %s: region: %w", p.name, ErrClosed)
	}
	a.calls++
	p.posting++
	p.users++
	r.users++
	return &transfer{peer: p, region: r, done: make(chan struct{})}, nil
}

// post begins the write and sees it through if it is a small one; the others go to the poller.
func (a *Agent) post(t *transfer, list *[]span) {
	s := a.drv.start(a.h, t.peer.name, t.mem, *list)
	a.lists.Put(list)
	<-a.posts
	if s.code == InProgress {
		t.req = s.req
		s.code, s.call = a.eager(t), "get_xfer_status"
	}
	switch {
	case s.code == InProgress:
		a.poller.add(t)
	case s.code == Success:
		a.settle(t, nil, false)
	case s.posted:
		a.settle(t, lost(s.call, t.peer.name, s.code), true)
	default:
		a.settle(t, &CallError{Call: s.call, Peer: t.peer.name, Code: s.code, Kind: ErrRefused}, false)
	}
	a.posted(t)
}

// eager looks at a write that has just begun, for a short while, and releases it if it has ended.
func (a *Agent) eager(t *transfer) Code {
	reqs, status := []handle{t.req}, []Code{InProgress}
	for end := time.Now().Add(eagerStart); status[0] == InProgress; {
		if a.yield().After(end) {
			return InProgress
		}
		a.drv.poll(a.h, reqs, status, tick{spin: spin})
	}
	_ = a.drv.release(a.h, t.req) // the end is known: a leak inside the library is all that this can tell
	return status[0]
}

// yield keeps yieldAfter, and returns the time.
func (a *Agent) yield() time.Time {
	now := time.Now()
	last := a.yielded.Load()
	if now.UnixNano()-last > int64(yieldAfter) && a.yielded.CompareAndSwap(last, now.UnixNano()) {
		runtime.Gosched()
	}
	return now
}

// posted says that the write is out of its first C calls, and that its request is in the poller's hands if it has one.
func (a *Agent) posted(t *transfer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t.peer.posting--
	a.leaveLocked()
}

// settle ends a write, once: nothing uses its request or reads its memory any more. A write that failed on the way takes its peer with
// it, as the library can only be brought to connect again by loading the metadata anew.
func (a *Agent) settle(t *transfer, err error, peerLost bool) {
	a.mu.Lock()
	t.region.users--
	t.peer.users--
	if peerLost && t.peer.ended == nil {
		t.peer.ended = err
	}
	if t.peer.users == 0 && t.peer.unused != nil {
		close(t.peer.unused)
	}
	a.mu.Unlock()
	t.err = err
	close(t.done)
}

func lost(call, peer string, code Code) error {
	return &CallError{Call: call, Peer: peer, Code: code, Kind: ErrPeerLost}
}
