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

// Response is a reply whose head has been read. It belongs to one goroutine.
type Response struct {
	Status      int
	ContentType string

	conn    *conn
	up      *Upstream
	ctx     context.Context
	unwatch func() bool
	idle    time.Duration
	body    body
	length  int64 // Content-Length, -1 when absent
	chunked bool
	closing bool // the connection is not used again
	armed   time.Time
	err     error
}

// parseHead reads the status line and the few headers that matter; head ends with the line end of its last line.
func (r *Response) parseHead(head []byte) error {
	line, rest, _ := bytes.Cut(head, []byte("\r\n"))
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.")) || line[8] != ' ' || (len(line) > 12 && line[12] != ' ') {
		return errHead
	}
	status, err := strconv.Atoi(string(line[9:12]))
	if err != nil || status < 100 {
		return errHead
	}
	r.Status, r.length, r.chunked, r.closing = status, -1, false, line[7] == '0'
	for len(rest) > 0 {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			return errHead
		}
		value = bytes.TrimSpace(value)
		switch len(name) {
		case len("Connection"):
			if isName(name, "connection") && bytes.EqualFold(value, []byte("close")) {
				r.closing = true
			}
		case len("Content-Type"):
			if isName(name, "content-type") {
				r.ContentType = string(value)
			}
		case len("Content-Length"):
			if isName(name, "content-length") {
				n, err := strconv.ParseUint(string(value), 10, 62)
				if err != nil {
					return errHead
				}
				r.length = int64(n)
			}
		case len("Transfer-Encoding"):
			if isName(name, "transfer-encoding") {
				if !bytes.EqualFold(value, []byte("chunked")) {
					return errHead
				}
				r.chunked = true
			}
		}
	}
	return nil
}

func isName(got []byte, lower string) bool { return bytes.EqualFold(got, []byte(lower)) }

// ReadAll reads the rest of the body, up to limit bytes; a longer one is an error.
func (r *Response) ReadAll(limit int) ([]byte, error) {
	if r.length > int64(limit) {
		return nil, r.fail(errors.New("the reply is too long"))
	}
	out := make([]byte, 0, max(r.length, 512))
	for {
		part, err := r.more(limit)
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, r.fail(err)
		}
		if len(out)+len(part) > limit {
			return nil, r.fail(errors.New("the reply is too long"))
		}
		out = append(out, part...)
		r.body.use(r.conn, len(part))
	}
}

// maxLine bounds one line of a token stream: a batch of some hundred tokens with log-probs is far below it.
const maxLine = 16 << 20

// Line returns the next line of the body without its line end; it is valid until the next call. A last line without
// a line end counts. The end of the body is io.EOF, a cut one an *Error, an ended context its cause.
func (r *Response) Line() ([]byte, error) {
	line, err := r.body.line(r)
	if err != nil && err != io.EOF {
		return nil, r.fail(err)
	}
	return line, err
}

// Ready says whether the next Line can be had without waiting.
func (r *Response) Ready() bool { return r.body.ready(r.conn) }

// more returns what of the body lies in the buffer, reading when there is nothing. limit bounds the buffer.
func (r *Response) more(limit int) ([]byte, error) {
	for {
		part, err := r.body.part(r.conn)
		if len(part) > 0 || err != nil {
			return part, err
		}
		if err := r.read(limit); err != nil {
			return nil, err
		}
	}
}

// read blocks for more bytes, under the idle time-out. The deadline is moved at most once a second, as moving
// it costs more than reading a line.
func (r *Response) read(limit int) error {
	if r.idle > 0 {
		if now := time.Now(); now.Sub(r.armed) > time.Second {
			r.armed = now
			_ = r.conn.SetReadDeadline(now.Add(r.idle + time.Second))
		}
	}
	err := r.conn.fill(limit)
	if err != nil && r.body.untilEOF && errors.Is(err, io.ErrUnexpectedEOF) {
		r.body.done = true
		return nil
	}
	return err
}

// fail makes the connection unusable and names the error for the caller.
func (r *Response) fail(err error) error {
	r.closing, r.err = true, err
	return r.up.failed(r.ctx, Body, err)
}

// Drain waits up to d for the end of the body, dropping what comes, and says whether it came.
func (r *Response) Drain(d time.Duration) bool {
	if r.body.done {
		return true
	}
	if r.err != nil {
		return false
	}
	r.idle = 0 // else a read would put the bound on silence in the place of d
	_ = r.conn.SetReadDeadline(time.Now().Add(d))
	for {
		part, err := r.more(maxHead)
		switch {
		case err == io.EOF:
			_ = r.conn.SetReadDeadline(time.Time{})
			return true
		case err != nil:
			r.closing, r.err = true, err
			return false
		}
		r.body.use(r.conn, len(part))
	}
}

// Close ends the call: the connection is kept when the body was read to its end, and closed otherwise, by which
// the other side learns that nobody waits any more. A second call does nothing.
func (r *Response) Close() {
	if r.conn == nil {
		return
	}
	c := r.conn
	r.conn = nil
	watched := r.unwatch()
	if !watched || !r.body.done || r.closing || c.r != c.w {
		c.close()
		return
	}
	if r.idle > 0 {
		_ = c.SetReadDeadline(time.Time{})
	}
	r.up.keep(c)
}

// IsTimeout says whether err is a time bound of a call that was over.
func IsTimeout(err error) bool {
	var n net.Error
	return errors.Is(err, ErrTimeout) || errors.As(err, &n) && n.Timeout()
}
