package scenario

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"
)

// client is one connection to the router with at most one request on it.
type client struct {
	w *world
	c net.Conn
	r *bufio.Reader
}

// dial connects to the router. A connection that hangs for good is ended by a deadline, which fails whoever waits on it.
func (w *world) dial() *client {
	w.t.Helper()
	c, err := net.Dial("tcp", w.router.addr)
	if err != nil {
		w.t.Error(err) // not Fatal: clients are goroutines of their own
		c, _ = net.Pipe()
		_ = c.Close()
	}
	_ = c.SetDeadline(time.Now().Add(2 * patience))
	return &client{w: w, c: c, r: bufio.NewReaderSize(c, 1<<10)}
}

// send writes a whole request.
func (c *client) send(a *ask) {
	c.w.t.Helper()
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: router\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", a.path, len(a.body))
	if _, err := c.c.Write(append([]byte(head), a.body...)); err != nil {
		c.w.t.Errorf("sending a request: %v", err)
		return
	}
	c.w.sent.Add(1)
}

// hangUp closes the connection, with a reset if it is so wanted.
func (c *client) hangUp(rst bool) {
	if rst {
		reset(c.c)
		return
	}
	_ = c.c.Close()
}

// read reads the answer to its end and closes the connection.
func (c *client) read() *answer {
	defer c.c.Close()
	head := c.head()
	if head.err != nil {
		return head
	}
	head.body, head.err = io.ReadAll(head.rest)
	return head
}

// head reads up to the body.
func (c *client) head() *answer {
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return &answer{err: err}
	}
	return &answer{status: resp.StatusCode, header: resp.Header, rest: resp.Body}
}

// begun waits for the first piece of a stream, which is all that it reads.
func (c *client) begun() *answer {
	a := c.head()
	if a.err == nil && a.status == http.StatusOK {
		var b [1]byte
		_, a.err = io.ReadFull(a.rest, b[:])
		a.rest = io.MultiReader(bytes.NewReader(b[:]), a.rest)
	}
	return a
}

// finish reads the rest of what begun has begun.
func (c *client) finish(a *answer) *answer {
	defer c.c.Close()
	if a.err == nil {
		a.body, a.err = io.ReadAll(a.rest)
	}
	return a
}

// answer is what came over the wire.
type answer struct {
	status int
	header http.Header
	rest   io.Reader // not read yet
	body   []byte
	err    error // the answer broke off
}

func reset(c net.Conn) {
	if tc, ok := c.(*net.TCPConn); ok {
		_ = tc.SetLinger(0)
	}
	_ = c.Close()
}

func isReset(err error) bool { return errors.Is(err, syscall.ECONNRESET) }
