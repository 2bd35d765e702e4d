package server

import (
	"bytes"
	"io"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"pd-router/internal/openai"
	"pd-router/internal/router"
)

// generate serves chat and text completions.
func (s *Server) generate(ctx *fasthttp.RequestCtx, c *conn, ep openai.Endpoint) {
	start := time.Now()
	head := &ctx.Request.Header
	body, e := s.acceptBody(ctx, c)
	call := router.Call{
		Endpoint: ep, Body: body, Start: start, ReadBody: time.Since(start), Arrived: c.arrived(),
		ClientID: clip(head.Peek("X-Request-ID")), Correlation: clip(head.Peek("X-Correlation-ID")),
		TellPlace:   len(head.Peek("X-PD-Tell-Place")) > 0,
		Forward:     forward(head),
		Traceparent: string(head.Peek("traceparent")), Tracestate: string(head.Peek("tracestate")),
	}
	if e != nil {
		s.write(ctx, c, s.router.Refuse(c.begin(s.base), call, e))
		c.leaveUnread(ctx)
		return
	}
	s.write(ctx, c, s.router.Serve(c.begin(s.base), call))
}

// acceptBody reads the body of a request that is let in.
func (s *Server) acceptBody(ctx *fasthttp.RequestCtx, c *conn) ([]byte, *openai.Error) {
	if s.draining.Load() {
		return nil, draining()
	}
	if kind := ctx.Request.Header.ContentType(); bytes.HasPrefix(kind, []byte("multipart/")) {
		return nil, openai.Errorf(openai.TypeUnsupportedMediaType, "Content-Type %.60q: send application/json", kind)
	}
	return s.readBody(ctx, c)
}

// draining refuses what comes too late.
func draining() *openai.Error {
	e := openai.Errorf(openai.TypeDraining, "the router is shutting down: send the request again in a moment")
	e.RetryAfter = 1
	return e
}

// write hands a reply to fasthttp.
func (s *Server) write(ctx *fasthttp.RequestCtx, c *conn, p *router.Reply) {
	h := &ctx.Response.Header
	ctx.SetStatusCode(p.Status)
	h.SetContentType(p.ContentType)
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	if p.RID != "" {
		h.Set("X-PD-RID", p.RID)
	}
	if p.Node != "" {
		h.Set("X-PD-Node", p.Node)
		h.Set("X-PD-Wait", strconv.FormatFloat(p.Wait.Seconds(), 'f', 3, 64))
	}
	if p.Timing != "" {
		h.Set("Server-Timing", p.Timing)
	}
	if !p.Stream() {
		c.end()
		ctx.Response.SetBodyRaw(p.Body)
		return
	}
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // a proxy in between must not gather the stream
	stream := &stream{c: c, reply: p}
	if !ctx.Request.Header.IsHTTP11() { // no chunks there: the whole reply, with its length
		var whole bytes.Buffer
		_, err := p.WriteTo(&whole)
		_ = stream.Close()
		if err != nil {
			s.fail(ctx, openai.Errorf(openai.TypeDecodeStreamFailed, "the reply broke off"))
			return
		}
		ctx.Response.SetBodyRaw(whole.Bytes())
		return
	}
	ctx.Response.SetBodyStream(stream, -1)
}

// stream is the body of a streamed reply. fasthttp calls WriteTo in the connection's goroutine after the handler
// has returned, frames each Write as one chunk and flushes it, and calls Close in any case.
type stream struct {
	c     *conn
	reply *router.Reply
}

// SupportsBodyWriteTo says that WriteTo stands for Read.
func (st *stream) SupportsBodyWriteTo() bool { return true }

func (st *stream) WriteTo(w io.Writer) (int64, error) { return st.reply.WriteTo(&chunks{w, st.c}) }

// Read is not used: see SupportsBodyWriteTo.
func (st *stream) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func (st *stream) Close() error {
	st.reply.Close()
	st.c.end()
	return nil
}

// chunks writes the chunks of a stream. The last one goes out together with the end of the body, which fasthttp writes as soon as WriteTo has
// returned: a system call less, and a packet.
type chunks struct {
	io.Writer
	c *conn
}

// NextIsLast is called by the router, see router.Reply.
func (k *chunks) NextIsLast() { k.c.hold = true }

// clip keeps a client's header short and printable, for the log.
func clip(b []byte) string {
	const limit = 128
	return string(bytes.ToValidUTF8(b[:min(len(b), limit)], []byte("?")))
}

// forward copies the client's credentials, which the engine may check; the request dies with the handler.
func forward(h *fasthttp.RequestHeader) []byte {
	v := h.Peek("Authorization")
	if len(v) == 0 {
		return nil
	}
	return append(append([]byte("Authorization: "), v...), "\r\n"...)
}

// pass sends a request to the prefill node as it is.
func (s *Server) pass(ctx *fasthttp.RequestCtx, c *conn) {
	body, e := s.readBody(ctx, c)
	if e != nil {
		s.fail(ctx, e)
		c.leaveUnread(ctx)
		return
	}
	p, err := s.router.Pass(c.begin(s.base), "POST", string(ctx.Path()), forward(&ctx.Request.Header), body)
	if err != nil {
		c.end()
		s.log.Warn("pass-through failed", zap.ByteString("path", ctx.Path()), zap.Error(err))
		s.fail(ctx, openai.Errorf(openai.TypePrefillFailed, "the prefill node did not answer"))
		return
	}
	s.write(ctx, c, p)
}
