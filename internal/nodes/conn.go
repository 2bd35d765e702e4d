package nodes

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"time"
)

const (
	readBuffer = 8 << 10  // holds the head of a usual reply, and some hundred token lines
	maxHead    = 64 << 10 // a longer head is no engine's
)

var (
	errHead     = errors.New("malformed HTTP reply")
	errHeadSize = errors.New("the head of the reply is too long")
)

// conn is one connection with its read buffer: buf[r:w] was received and not used yet.
type conn struct {
	net.Conn
	buf       []byte
	r, w      int
	out       []byte      // scratch for the head of a request
	vec       net.Buffers // scratch for writev
	idleSince time.Time
	peek      peek // for alive
}

func newConn(nc net.Conn) *conn { return &conn{Conn: nc, buf: make([]byte, readBuffer)} }

func (c *conn) close() { _ = c.Conn.Close() }

// fill reads more bytes behind those that are there, growing the buffer up to limit when it is full.
func (c *conn) fill(limit int) error {
	if c.r > 0 {
		c.w = copy(c.buf, c.buf[c.r:c.w])
		c.r = 0
	}
	if c.w == len(c.buf) {
		if len(c.buf) >= limit {
			return errHeadSize
		}
		c.buf = append(c.buf, make([]byte, len(c.buf))...)
	}
	n, err := c.Read(c.buf[c.w:])
	c.w += n
	if n > 0 {
		return nil
	}
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// roundTrip sends the call and reads the head of the reply. On an error the connection is closed.
func (c *conn) roundTrip(ctx context.Context, u *Upstream, call *Call) (*Response, Phase, error) {
	// Whoever ends ctx ends every blocking read and write, from now to the end of the body.
	resp := &Response{conn: c, up: u, idle: call.IdleTimeout, ctx: ctx}
	resp.unwatch = context.AfterFunc(ctx, c.close)
	phase, err := c.exchange(u, call, resp)
	if err != nil {
		resp.unwatch()
		c.close()
		return nil, phase, err
	}
	return resp, phase, nil
}

func (c *conn) exchange(u *Upstream, call *Call, resp *Response) (Phase, error) {
	if call.HeadTimeout > 0 {
		_ = c.SetDeadline(time.Now().Add(call.HeadTimeout))
	}
	writeErr := c.send(u, call)
	if writeErr != nil {
		// An engine that refuses a body early closes before all was written: its answer may be here already.
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
	}
	for {
		end := bytes.Index(c.buf[c.r:c.w], []byte("\r\n\r\n"))
		if end < 0 {
			if err := c.fill(maxHead); err != nil {
				if c.w == c.r {
					return Send, errors.Join(writeErr, err)
				}
				return Head, err
			}
			continue
		}
		head := c.buf[c.r : c.r+end+2]
		c.r += end + 4
		if err := resp.parseHead(head); err != nil {
			return Head, err
		}
		if resp.Status >= 200 { // 1xx replies come before the real one
			break
		}
	}
	if call.HeadTimeout > 0 {
		_ = c.SetDeadline(time.Time{})
	}
	resp.body.begin(resp, call.Method)
	if writeErr != nil {
		resp.closing = true
	}
	return Body, nil
}

// send writes head and body with as few system calls as the kernel allows, and no copy of the body.
func (c *conn) send(u *Upstream, call *Call) error {
	size := 0
	for _, b := range call.Body {
		size += len(b)
	}
	out := append(c.out[:0], call.Method...)
	out = append(out, ' ')
	out = append(out, u.base...)
	out = append(out, call.Path...)
	out = append(out, " HTTP/1.1\r\nHost: "...)
	out = append(out, u.host...)
	out = append(out, "\r\n"...)
	if call.Body != nil || call.Method == "POST" {
		kind := call.ContentType
		if kind == "" {
			kind = "application/json"
		}
		out = append(out, "Content-Type: "...)
		out = append(out, kind...)
		out = append(out, "\r\nContent-Length: "...)
		out = strconv.AppendInt(out, int64(size), 10)
		out = append(out, "\r\n"...)
	}
	out = append(out, call.Header...)
	out = append(out, "\r\n"...)
	c.out = out[:0]
	if size <= 2<<10 { // one small write is cheaper than a writev
		for _, b := range call.Body {
			out = append(out, b...)
		}
		c.out = out[:0]
		_, err := c.Write(out)
		return err
	}
	c.vec = append(append(c.vec[:0], out), call.Body...)
	vec := c.vec
	_, err := vec.WriteTo(c.Conn)
	clear(c.vec[:cap(c.vec)]) // the bodies belong to the requests
	return err
}
