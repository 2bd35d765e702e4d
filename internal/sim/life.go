package sim

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"
)

// errClosed is how every wait of a node ends when the node is closed.
var errClosed = errors.New("the simulated node is closed")

// life is what both nodes have in common: a context for all their waits, and their connections, so that Serve can end
// and join everything.
type life struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	work   sync.WaitGroup // connections that were accepted, and workers

	mu    sync.Mutex
	conns map[*conn]struct{}
	over  bool
}

func newLife() *life {
	l := &life{conns: map[*conn]struct{}{}}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	return l
}

// end closes every connection and wakes every wait. It does not wait itself.
func (l *life) end() {
	l.cancel(errClosed)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	for c := range l.conns {
		_ = c.Conn.Close() // its owner notices, and closes c
	}
}

// listener hands out connections that the life knows.
type listener struct {
	net.Listener
	life *life
}

func (l *life) listen(addr string) (*listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &listener{ln, l}, nil
}

func (ln *listener) Accept() (net.Conn, error) {
	raw, err := ln.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, life: ln.life}
	ln.life.mu.Lock()
	defer ln.life.mu.Unlock()
	if ln.life.over {
		_ = raw.Close()
		return nil, net.ErrClosed
	}
	ln.life.conns[c] = struct{}{}
	ln.life.work.Add(1)
	return c, nil
}

// port returns the port that the listener has.
func (ln *listener) port() int { return ln.Addr().(*net.TCPAddr).Port }

// conn is one accepted connection. Whoever serves it closes it once; the life then knows that it is served.
type conn struct {
	net.Conn
	life   *life
	served sync.Once
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.served.Do(func() {
		c.life.mu.Lock()
		delete(c.life.conns, c)
		c.life.mu.Unlock()
		c.life.work.Done()
	})
	return err
}

// SyscallConn lets gone look at the socket.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	sc, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return sc.SyscallConn()
}

// reset ends the connection so that the other side sees a reset and not an end of file.
func (c *conn) reset() {
	if tc, ok := c.Conn.(*net.TCPConn); ok {
		_ = tc.SetLinger(0)
	}
	_ = c.Conn.Close()
}

// each serves every connection of ln in a goroutine of its own, until the listener is closed. serve closes the
// connection, or has it closed; life.work waits for that.
func (ln *listener) each(serve func(c net.Conn)) {
	for {
		c, err := ln.Accept()
		switch {
		case err == nil:
			go serve(c)
		case errors.Is(err, net.ErrClosed):
			return
		default: // out of descriptors, say
			ln.life.wait(10*time.Millisecond, nil, nil)
		}
	}
}

// serveHTTP serves HTTP on ln. It goes without the library's pool of workers, which stays for seconds after the end.
func (ln *listener) serveHTTP(handler fasthttp.RequestHandler) {
	server := newHTTP(handler)
	ln.each(func(c net.Conn) { _ = server.ServeConn(c) }) // how a client left is of no interest
}

// silent drops what fasthttp has to say about clients that leave.
type silent struct{}

func (silent) Printf(string, ...any) {}

func newHTTP(handler fasthttp.RequestHandler) *fasthttp.Server {
	return &fasthttp.Server{
		Handler:               handler,
		Logger:                silent{},
		NoDefaultServerHeader: true,
		NoDefaultDate:         true,
		MaxRequestBodySize:    1 << 30,
		ReadBufferSize:        16 << 10, // headers
	}
}

// why a wait ended.
type wake uint8

const (
	timeUp   wake = iota
	signal        // the channel that was waited for
	leftUs        // the client closed its connection
	shutDown      // the node is closed
)

// hangupPoll is how often a wait looks whether the client is still there.
const hangupPoll = 20 * time.Millisecond

// wait returns after d, or earlier for one of the other reasons. A nil channel never signals; a nil connection is not
// looked at.
func (l *life) wait(d time.Duration, c net.Conn, ch <-chan struct{}) wake {
	if d <= 0 {
		return timeUp
	}
	until := time.Now().Add(d)
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		step := time.Until(until)
		if step <= 0 {
			return timeUp
		}
		if c != nil {
			step = min(step, hangupPoll)
		}
		timer.Reset(step)
		select {
		case <-timer.C:
			if c != nil && gone(c) {
				return leftUs
			}
		case <-ch:
			return signal
		case <-l.ctx.Done():
			return shutDown
		}
	}
}
