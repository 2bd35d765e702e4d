package server

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"pd-router/internal/openai"
)

// readBody reads the request's body to its end, into a buffer of its own that is no larger than needed. The
// error closes the connection, as what is left of the body is not read.
func (s *Server) readBody(ctx *fasthttp.RequestCtx, c *conn) ([]byte, *openai.Error) {
	length := ctx.Request.Header.ContentLength()
	if length <= 0 { // chunks, or no body, or headReceived has done away with it
		switch told := toldLength(&ctx.Request.Header); {
		case told >= 0 && length < 0: // somebody on the way may have believed the length; fasthttp drops it
			return nil, openai.Errorf(openai.TypeBadRequest, "the request has a Content-Length and a Transfer-Encoding")
		case told > s.opts.MaxBody:
			return nil, s.tooLarge(told)
		}
	}
	if ctx.RequestBodyStream() == nil { // neither a length nor chunks
		return nil, refuse(411, openai.TypeBadRequest, "the request has no Content-Length")
	}
	if len(ctx.Request.Header.ContentEncoding()) > 0 && string(ctx.Request.Header.ContentEncoding()) != "identity" {
		return nil, openai.Errorf(openai.TypeUnsupportedMediaType, "Content-Encoding %.40q is not understood: send the body plain", ctx.Request.Header.ContentEncoding())
	}
	r := &bodyReader{s: s, c: c, src: ctx.RequestBodyStream()}
	defer r.done()
	var body []byte
	var err error
	if length >= 0 {
		body, err = r.exactly(length)
	} else {
		body, err = r.chunks()
	}
	if err == nil {
		return body, nil
	}
	var e *openai.Error
	if errors.As(err, &e) {
		return nil, e
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if s.draining.Load() {
			return nil, draining()
		}
		return nil, refuse(408, openai.TypeBadRequest, "the body did not come: nothing was received for 60 s")
	}
	if connectionEnded(err) {
		c.hangUp() // the watcher may be a moment later
	}
	return nil, openai.Errorf(openai.TypeBadRequest, "the body could not be read to its end")
}

// headReceived is fasthttp's hook. It makes a request whose body is too large one without a body, which readBody refuses by the length that
// the client told: else fasthttp waits for the beginning of a body before it calls the handler, and has a client that waits for our word
// first (Expect: 100-continue) go on.
func (s *Server) headReceived(h *fasthttp.RequestHeader) fasthttp.RequestConfig {
	if h.ContentLength() > s.opts.MaxBody {
		h.SetContentLength(0)
		h.Del("Expect")
		h.SetConnectionClose()
	}
	return fasthttp.RequestConfig{}
}

// toldLength is the Content-Length as the client sent it, whatever became of it since; -1 when there is none.
func toldLength(h *fasthttp.RequestHeader) int {
	for line := range bytes.Lines(h.RawHeaders()) {
		if name, value, _ := bytes.Cut(line, []byte(":")); bytes.EqualFold(name, []byte("Content-Length")) {
			n, _ := strconv.Atoi(string(bytes.TrimSpace(value))) // fasthttp has refused what is no number
			return n
		}
	}
	return -1
}

// connectionEnded tells a client that has left from one that sends nonsense.
func connectionEnded(err error) bool {
	var broken *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &broken)
}

func (s *Server) tooLarge(n int) *openai.Error {
	return openai.Errorf(openai.TypePayloadTooLarge, "the body of %d bytes is larger than --max-body allows (%d)", n, s.opts.MaxBody)
}

// bodyReader reads one body against the limits.
type bodyReader struct {
	s        *Server
	c        *conn
	src      io.Reader
	reserved int64
	armed    time.Time
}

// reserve books n more bytes against what all bodies that are being read may take.
func (r *bodyReader) reserve(n int) error {
	r.reserved += int64(n)
	if total := r.s.reading.Add(int64(n)); r.s.opts.MaxReading > 0 && total > r.s.opts.MaxReading {
		e := openai.Errorf(openai.TypeQueueFull, "too many bytes of requests are being read (--queue-max-bytes %d): send the request again later", r.s.opts.MaxReading)
		e.RetryAfter = 1
		return e
	}
	return nil
}

func (r *bodyReader) done() { r.s.reading.Add(-r.reserved) }

// Read bounds the silence between two pieces. The deadline moves at most once a second.
func (r *bodyReader) Read(p []byte) (int, error) {
	if now := time.Now(); now.Sub(r.armed) > time.Second {
		r.armed = now
		_ = r.c.SetReadDeadline(now.Add(bodySilence))
	}
	return r.src.Read(p)
}

func (r *bodyReader) exactly(n int) ([]byte, error) {
	if err := r.reserve(n); err != nil {
		return nil, err
	}
	body := make([]byte, n)
	_, err := io.ReadFull(r, body)
	return body, err
}

// chunks reads a body of unknown length. It grows by half, so that little is copied and little is left over.
func (r *bodyReader) chunks() ([]byte, error) {
	var body []byte
	for {
		if len(body) == cap(body) {
			grow := max(4<<10, cap(body)/2)
			if err := r.reserve(grow); err != nil {
				return nil, err
			}
			next := make([]byte, len(body), cap(body)+grow)
			copy(next, body)
			body = next
		}
		n, err := r.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if len(body) > r.s.opts.MaxBody {
			return nil, r.s.tooLarge(len(body))
		}
		if err == io.EOF {
			return body, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
