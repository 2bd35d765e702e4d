package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/valyala/fasthttp"

	"pd-router/internal/openai"
	"pd-router/internal/status"
)

// live serves the status page. It changes with the program only: a browser keeps it and asks whether it is still the same.
func (s *Server) live(ctx *fasthttp.RequestCtx, _ *conn) {
	page := status.HTML()
	h := &ctx.Response.Header
	h.Set("ETag", page.ETag)
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Security-Policy", page.Policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	closed(h)
	h.SetContentType("text/html; charset=utf-8")
	if bytes.Contains(ctx.Request.Header.Peek("If-None-Match"), []byte(page.ETag)) {
		ctx.SetStatusCode(304)
		return
	}
	ctx.Response.SetBodyRaw(page.HTML)
}

// snapshot serves what the page shows as JSON.
func (s *Server) snapshot(ctx *fasthttp.RequestCtx, _ *conn) {
	h := &ctx.Response.Header
	h.Set("Cache-Control", "no-store")
	closed(h)
	h.SetContentType("application/json")
	ctx.Response.SetBodyRaw(s.status.JSON())
}

// closed keeps other sites from reading an answer, and browsers from guessing what it is.
func closed(h *fasthttp.ResponseHeader) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// feed streams what the page shows until the client leaves or the server stops.
func (s *Server) feed(ctx *fasthttp.RequestCtx, c *conn) {
	h := &ctx.Response.Header
	h.Set("Cache-Control", "no-store")
	closed(h)
	h.SetContentType("text/event-stream; charset=utf-8")
	if ctx.IsHead() {
		return
	}
	w, err := s.status.Watch(func(within time.Duration) { _ = c.SetWriteDeadline(time.Now().Add(within)) })
	switch {
	case errors.Is(err, status.ErrFull):
		e := refuse(503, openai.TypeQueueFull, "as many status pages are open as may be: close one, or ask /queue now and then")
		e.RetryAfter = 5
		s.fail(ctx, e)
		return
	case err != nil:
		s.fail(ctx, openai.Errorf(openai.TypeDraining, "the router is shutting down"))
		return
	}
	h.Set("X-Accel-Buffering", "no")
	ctx.SetConnectionClose() // its write deadline may be spent, and a drain must not wait for a next request
	f := &feed{c: c, ctx: c.begin(s.base), watcher: w}
	if !ctx.Request.Header.IsHTTP11() { // no chunks there: what is true now, with its length
		defer f.Close()
		ctx.Response.SetBodyRaw(w.First())
		return
	}
	ctx.Response.SetBodyStream(f, -1)
}

// feed is the body of a feed, written by fasthttp as stream is. Each event is one Write, and so one flush.
type feed struct {
	c       *conn
	ctx     context.Context
	watcher *status.Watcher
}

// SupportsBodyWriteTo says that WriteTo stands for Read.
func (f *feed) SupportsBodyWriteTo() bool { return true }

func (f *feed) WriteTo(w io.Writer) (n int64, err error) {
	err = f.watcher.Run(f.ctx, func(event []byte) error {
		m, err := w.Write(event)
		n += int64(m)
		return err
	})
	return n, err
}

// Read is not used: see SupportsBodyWriteTo.
func (f *feed) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func (f *feed) Close() error {
	f.watcher.Close()
	f.c.end()
	return nil
}
