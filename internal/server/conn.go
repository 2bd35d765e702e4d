package server

import (
	"context"
	"io"
	"net"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"

	"pd-router/internal/router"
)

// conn is a client's connection. The watcher marks it gone; a request that runs on it then ends.
type conn struct {
	net.Conn
	all *connections
	id  uint64

	// Of the goroutine that serves it, see arrival.go.
	in          *source
	came, wrote time.Time // the last data that was read; the start of the last write
	hold        bool      // the next write is kept in held, and goes out with the one after it
	held        []byte

	mu     sync.Mutex
	cancel context.CancelCauseFunc // of the running request, nil when there is none
	gone   bool                    // the client has closed its side
	idle   bool                    // between two requests
	unread bool                    // the client may be sending a body that nobody reads
	closed bool
	sendBy time.Time // in a drain: when what clients had begun to send must have come
}

// begin makes the context of a request that runs on c: a child of base that ends when the client leaves.
func (c *conn) begin(base context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(base)
	c.mu.Lock()
	c.cancel = cancel
	gone := c.gone
	c.mu.Unlock()
	if gone {
		cancel(router.ErrClientGone)
	}
	return ctx
}

// end releases what begin made.
func (c *conn) end() {
	c.mu.Lock()
	cancel := c.cancel
	c.cancel = nil
	c.mu.Unlock()
	if cancel != nil {
		cancel(context.Canceled)
	}
}

// maxHeld is the longest write that is copied in order to go out with the one after it.
const maxHeld = 2 << 10

// Write is fasthttp's.
func (c *conn) Write(p []byte) (int, error) {
	hold := c.hold && len(p) <= maxHeld
	c.hold = false
	if hold {
		c.held = append(c.held, p...)
		return len(p), nil
	}
	c.wrote = time.Now()
	if len(c.held) == 0 {
		return c.Conn.Write(p)
	}
	earlier := len(c.held)
	c.held = append(c.held, p...)
	n, err := c.Conn.Write(c.held)
	c.held = c.held[:0]
	return max(n-earlier, 0), err
}

// hangUp is told by the watcher that the client has left. A write that blocks on it ends too.
func (c *conn) hangUp() {
	c.mu.Lock()
	c.gone = true
	cancel := c.cancel
	c.mu.Unlock()
	if cancel != nil {
		cancel(router.ErrClientGone)
		_ = c.SetWriteDeadline(time.Unix(1, 0))
	}
}

// leaveUnread is told that the rest of the request's body is not read: the connection ends with the reply.
func (c *conn) leaveUnread(ctx *fasthttp.RequestCtx) {
	ctx.SetConnectionClose()
	c.sends(true)
}

// sends says whether the client may be sending what nobody reads, in case that the connection ends with this request.
func (c *conn) sends(unread bool) {
	c.mu.Lock()
	c.unread = unread
	c.mu.Unlock()
}

// Close is called by fasthttp when it is done with the connection.
func (c *conn) Close() error {
	c.mu.Lock()
	linger := c.unread && !c.closed
	c.idle = true // a drain does not wait for it
	c.mu.Unlock()
	if linger {
		c.linger()
	}
	return c.drop()
}

// lingerTime is how long a client may go on sending what nobody reads.
const lingerTime = 2 * time.Second

// linger ends our side and takes what still comes: closing at once would reset the connection, and many clients then report the reset
// and not the reply that came before it.
func (c *conn) linger() {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.Copy(io.Discard, c.Conn)
}

// SetReadDeadline is used by fasthttp, and by who reads a body. A drain does not wait for what clients go on to send.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.sendBy.IsZero() && (t.IsZero() || c.sendBy.Before(t)) {
		t = c.sendBy
	}
	return c.Conn.SetReadDeadline(t)
}

// drop closes the connection at once.
func (c *conn) drop() error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	c.mu.Unlock()
	if !first {
		return nil
	}
	c.all.remove(c)
	return c.Conn.Close()
}

// connections are all that is open.
type connections struct {
	watcher *watcher

	mu       sync.Mutex
	open     map[uint64]*conn
	last     uint64
	draining bool
	empty    chan struct{} // closed when draining and nothing is open
}

func newConnections() (*connections, error) {
	w, err := newWatcher()
	if err != nil {
		return nil, err
	}
	return &connections{watcher: w, open: map[uint64]*conn{}, empty: make(chan struct{})}, nil
}

// wrap makes ln hand out conns.
func (cs *connections) wrap(ln net.Listener) net.Listener {
	noteArrivals(ln)
	return &listener{ln, cs}
}

type listener struct {
	net.Listener
	all *connections
}

func (l *listener) Accept() (net.Conn, error) {
	// The connection accepted before this one is served before it, not after, as far as a free slot is concerned: its worker
	// is next to run, and would else be overtaken by that of the next one, as the scheduler runs what was made ready last.
	// In the line the arrival decides.
	runtime.Gosched()
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.all.add(nc), nil
}

func (cs *connections) add(nc net.Conn) *conn {
	cs.mu.Lock()
	cs.last++
	c := &conn{Conn: nc, all: cs, id: cs.last, in: newSource(nc), idle: true}
	cs.open[c.id] = c
	late := cs.draining
	cs.mu.Unlock()
	if late { // accepted in the moment in which the drain began: closeIdle has not seen it
		_ = c.drop()
		return c
	}
	if sc, ok := nc.(syscall.Conn); ok {
		cs.watcher.add(sc, c.id)
	}
	return c
}

func (cs *connections) remove(c *conn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	delete(cs.open, c.id)
	cs.checkLocked()
}

func (cs *connections) checkLocked() {
	if cs.draining && len(cs.open) == 0 {
		select {
		case <-cs.empty:
		default:
			close(cs.empty)
		}
	}
}

func (cs *connections) count() int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return len(cs.open)
}

// state is fasthttp's hook: it says which connections a drain may close.
func (cs *connections) state(nc net.Conn, st fasthttp.ConnState) {
	c, ok := nc.(*conn)
	if !ok {
		return
	}
	c.mu.Lock()
	c.idle = st == fasthttp.StateIdle || st == fasthttp.StateNew
	c.mu.Unlock()
}

// closeIdle closes what is between two requests, now and for the rest of the drain. What is in the middle of sending one has until sendBy.
func (cs *connections) closeIdle(sendBy time.Time) {
	cs.mu.Lock()
	cs.draining = true
	cs.checkLocked()
	var idle []*conn
	for _, c := range cs.open {
		c.mu.Lock()
		if c.idle {
			idle = append(idle, c)
		} else {
			c.sendBy = sendBy
			_ = c.Conn.SetReadDeadline(sendBy)
		}
		c.mu.Unlock()
	}
	cs.mu.Unlock()
	for _, c := range idle {
		_ = c.drop()
	}
}

func (cs *connections) closeAll() {
	cs.mu.Lock()
	all := make([]*conn, 0, len(cs.open))
	for _, c := range cs.open {
		all = append(all, c)
	}
	cs.mu.Unlock()
	for _, c := range all {
		_ = c.drop()
	}
}

// drained is closed when a drain has begun and nothing is open any more.
func (cs *connections) drained() <-chan struct{} { return cs.empty }

// watch tells connections that their clients have left, until stop.
func (cs *connections) watch() {
	cs.watcher.run(func(id uint64) {
		cs.mu.Lock()
		c := cs.open[id]
		cs.mu.Unlock()
		if c != nil {
			c.hangUp()
		}
	})
}

func (cs *connections) stop() { cs.watcher.close() }
