package nodes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"
)

// Options are the limits of the connections to one upstream.
type Options struct {
	// ConnectTimeout bounds the name look-up and the TCP handshake of a new connection.
	ConnectTimeout time.Duration
	// IdleTimeout is how long a connection is kept for the next call. The engines' servers close an idle
	// connection after 5 s, so the default of 4 s makes sure that it is the router who closes first.
	IdleTimeout time.Duration
	// MaxIdle is how many idle connections are kept; further ones are closed. Default 64.
	MaxIdle int
}

func (o Options) withDefaults() Options {
	if o.ConnectTimeout <= 0 {
		o.ConnectTimeout = 5 * time.Second
	}
	if o.IdleTimeout <= 0 {
		o.IdleTimeout = 4 * time.Second
	}
	if o.MaxIdle <= 0 {
		o.MaxIdle = 64
	}
	return o
}

// Upstream is one HTTP server behind the router. It is safe for concurrent use.
type Upstream struct {
	addr string // host:port to dial
	host string // value of the Host header
	base string // path prefix of the URL, without a slash at its end
	opts Options

	mu     sync.Mutex
	idle   []*conn // oldest first; the youngest is used first
	sweep  *time.Timer
	closed bool
}

// NewUpstream returns the client of the server at base, an http URL whose path, if any, is put before every path.
func NewUpstream(base string, o Options) (*Upstream, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "http" || u.Host == "" {
		return nil, fmt.Errorf("%q: want http://HOST[:PORT]", base)
	}
	port := u.Port()
	if port == "" {
		port = "80"
	}
	path := u.EscapedPath()
	for len(path) > 0 && path[len(path)-1] == '/' {
		path = path[:len(path)-1]
	}
	return &Upstream{addr: net.JoinHostPort(u.Hostname(), port), host: u.Host, base: path, opts: o.withDefaults()}, nil
}

// Addr is the address that is dialled.
func (u *Upstream) Addr() string { return u.addr }

// Close closes the idle connections; those of running calls are closed when the calls end.
func (u *Upstream) Close() {
	u.mu.Lock()
	idle := u.idle
	u.idle, u.closed = nil, true
	if u.sweep != nil {
		u.sweep.Stop()
	}
	u.mu.Unlock()
	for _, c := range idle {
		c.close()
	}
}

// Error is a call that ended without a usable reply.
type Error struct {
	Addr  string
	Phase Phase // how far the call had come
	Err   error
}

// Phase is a step of a call, in the order in which they come.
type Phase uint8

// The phases of a call.
const (
	Connect Phase = iota // no connection: nothing was sent
	Send                 // the request may have been sent in part or whole, no byte of a reply came
	Head                 // the reply began and its head is unusable
	Body                 // the head was good, the body is cut, late or malformed
)

var phaseNames = [...]string{Connect: "connect", Send: "no reply", Head: "reply head", Body: "reply body"}

func (p Phase) String() string { return phaseNames[p] }

func (e *Error) Error() string { return fmt.Sprintf("%s: %s: %v", e.Addr, e.Phase, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

// ErrTimeout is inside an Error when a time bound of the call was over.
var ErrTimeout = errors.New("timed out")

// Call is one request to an upstream.
type Call struct {
	Method string
	Path   string
	// Header holds further header lines, each with its line end, or nil.
	Header []byte
	// ContentType of the body; empty means application/json. Without a body it is not sent.
	ContentType string
	// Body is sent as it is, without being copied; it must not change before Do returns. nil: no body.
	Body [][]byte
	// HeadTimeout bounds sending the request and waiting for the end of the reply's head. 0: none.
	HeadTimeout time.Duration
	// IdleTimeout bounds each silence in the reply's body. 0: none.
	IdleTimeout time.Duration
	// Once keeps Do from sending the call again (invariant 1): the caller does that itself, with another body.
	Once bool
	// Fresh takes a new connection in any case: an earlier try of the same request broke.
	Fresh bool
}

// Do sends the call and returns when the head of the reply is there. The caller owns the Response and must Close
// it. The error is an *Error, or the cause of ctx when that ended first.
func (u *Upstream) Do(ctx context.Context, call *Call) (*Response, error) {
	for {
		c, reused, err := u.connection(ctx, call.Fresh)
		if err != nil {
			return nil, u.failed(ctx, Connect, err)
		}
		resp, phase, err := c.roundTrip(ctx, u, call)
		if err == nil {
			return resp, nil
		}
		if reused && phase == Send && ctx.Err() == nil && !IsTimeout(err) {
			u.dropIdle() // they are as old as the one that was dead
			if !call.Once {
				continue // invariant 1; the next connection is a new one
			}
		}
		return nil, u.failed(ctx, phase, err)
	}
}

func (u *Upstream) failed(ctx context.Context, phase Phase, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		err = ErrTimeout
	}
	return &Error{Addr: u.addr, Phase: phase, Err: err}
}

// connection returns the youngest idle connection that is not known to be dead, or a new one.
func (u *Upstream) connection(ctx context.Context, fresh bool) (c *conn, reused bool, err error) {
	for !fresh {
		if c = u.youngest(); c == nil {
			break
		}
		if c.alive() {
			return c, true, nil
		}
		c.close()
	}
	dialer := net.Dialer{Timeout: u.opts.ConnectTimeout}
	nc, err := dialer.DialContext(ctx, "tcp", u.addr)
	if err != nil {
		return nil, false, err
	}
	return newConn(nc), false, nil
}

// youngest takes an idle connection that is not too old, nil when there is none.
func (u *Upstream) youngest() *conn {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := len(u.idle) - 1
	if n < 0 || time.Since(u.idle[n].idleSince) >= u.opts.IdleTimeout {
		return nil
	}
	c := u.idle[n]
	u.idle[n] = nil
	u.idle = u.idle[:n]
	return c
}

// keep takes back a connection whose reply was read to its end.
func (u *Upstream) keep(c *conn) {
	c.idleSince = time.Now()
	u.mu.Lock()
	if u.closed || len(u.idle) >= u.opts.MaxIdle {
		u.mu.Unlock()
		c.close()
		return
	}
	u.idle = append(u.idle, c)
	if len(u.idle) == 1 {
		u.sweepInLocked(u.opts.IdleTimeout)
	}
	u.mu.Unlock()
}

func (u *Upstream) sweepInLocked(d time.Duration) {
	if u.sweep == nil {
		u.sweep = time.AfterFunc(d, u.closeOld)
	} else {
		u.sweep.Reset(d)
	}
}

// closeOld is the sweep: it closes what has been idle for too long and comes back for the next one.
func (u *Upstream) closeOld() {
	u.mu.Lock()
	n := 0
	for n < len(u.idle) && time.Since(u.idle[n].idleSince) >= u.opts.IdleTimeout {
		n++
	}
	old := append([]*conn(nil), u.idle[:n]...)
	u.idle = append(u.idle[:0], u.idle[n:]...)
	if len(u.idle) > 0 && !u.closed {
		u.sweepInLocked(u.opts.IdleTimeout - time.Since(u.idle[0].idleSince))
	}
	u.mu.Unlock()
	for _, c := range old {
		c.close()
	}
}

func (u *Upstream) dropIdle() {
	u.mu.Lock()
	idle := u.idle
	u.idle = nil
	u.mu.Unlock()
	for _, c := range idle {
		c.close()
	}
}
