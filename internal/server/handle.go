package server

import (
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"pd-router/internal/openai"
)

// route is what a path answers: one handler per method.
type route struct {
	methods map[string]func(*Server, *fasthttp.RequestCtx, *conn)
	allow   string
}

var routes = map[string]route{
	"/health":              get((*Server).health),
	"/pool_status":         get((*Server).pool),
	"/metrics":             get((*Server).metrics),
	"/":                    get((*Server).live),
	"/queue":               get((*Server).snapshot),
	"/status/feed":         get((*Server).feed),
	"/v1/models":           get((*Server).models),
	"/v1/chat/completions": post(func(s *Server, ctx *fasthttp.RequestCtx, c *conn) { s.generate(ctx, c, openai.Chat) }),
	"/v1/completions":      post(func(s *Server, ctx *fasthttp.RequestCtx, c *conn) { s.generate(ctx, c, openai.Completions) }),
	"/tokenize":            post((*Server).pass),
	"/detokenize":          post((*Server).pass),
}

func get(f func(*Server, *fasthttp.RequestCtx, *conn)) route {
	return route{map[string]func(*Server, *fasthttp.RequestCtx, *conn){"GET": f, "HEAD": f}, "GET, HEAD"}
}

func post(f func(*Server, *fasthttp.RequestCtx, *conn)) route {
	return route{map[string]func(*Server, *fasthttp.RequestCtx, *conn){"POST": f}, "POST"}
}

// handle is fasthttp's handler, and the outermost frame of a request: fasthttp does not recover from a panic.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	defer func() {
		if v := recover(); v != nil {
			s.log.Error("panic in a handler", zap.Any("panic", v), zap.ByteString("stack", debug.Stack()))
			ctx.Response.Reset()
			s.fail(ctx, openai.Errorf(openai.TypeInternalError, "internal error"))
			ctx.SetConnectionClose()
		}
	}()
	c, ok := ctx.Conn().(*conn)
	if !ok {
		panic(fmt.Sprintf("BUG: a connection of type %T", ctx.Conn()))
	}
	// Without a deadline of our own fasthttp keeps a reply back for that to the next request, when the client has sent that already: it may wait
	// for half an hour. There is none that this undoes, as a hang-up sets it within a request only.
	_ = ctx.SetWriteDeadline(time.Time{})
	c.sends(false)
	if name, ok := forbidden(&ctx.Request.Header); ok {
		s.fail(ctx, openai.Errorf(openai.TypeBadRequest, "the header %.40q holds bytes that HTTP forbids", name))
		c.leaveUnread(ctx)
		return
	}
	r, ok := routes[string(ctx.Path())]
	if !ok {
		s.turnAway(ctx, c, openai.Errorf(openai.TypeNotFound, "no such path: %.80q; see /v1/chat/completions, /v1/completions, /v1/models, /health, /pool_status, /metrics", ctx.Path()))
		return
	}
	f, ok := r.methods[string(ctx.Method())]
	if !ok {
		ctx.Response.Header.Set("Allow", r.allow)
		s.turnAway(ctx, c, openai.Errorf(openai.TypeMethodNotAllowed, "%.20q is not allowed here: use %s", ctx.Method(), r.allow))
		return
	}
	f(s, ctx, c)
}

// turnAway refuses a request whose body nobody looks at. If it is short, fasthttp passes over it; else the connection ends.
func (s *Server) turnAway(ctx *fasthttp.RequestCtx, c *conn, e *openai.Error) {
	s.fail(ctx, e)
	c.sends(ctx.RequestBodyStream() != nil || toldLength(&ctx.Request.Header) > 0)
}

// malformed answers what is no HTTP request. Nothing of it is repeated or logged.
func (s *Server) malformed(ctx *fasthttp.RequestCtx, err error) {
	if c, ok := ctx.Conn().(*conn); ok {
		c.sends(true)
	}
	var small *fasthttp.ErrSmallBuffer
	var timeout net.Error
	switch {
	case errors.As(err, &small):
		s.fail(ctx, openai.Errorf(openai.TypeHeaderTooLarge, "the head of the request is longer than %d bytes", headBuffer))
	case errors.As(err, &timeout) && timeout.Timeout() && s.draining.Load():
		s.fail(ctx, draining())
	case errors.As(err, &timeout) && timeout.Timeout():
		s.fail(ctx, refuse(408, openai.TypeBadRequest, "the request did not come to its end in time"))
	default:
		s.fail(ctx, openai.Errorf(openai.TypeBadRequest, "malformed HTTP request"))
	}
}

// refuse is an error whose status is not that of its type.
func refuse(status int, kind, text string) *openai.Error {
	e := openai.Errorf(kind, "%s", text)
	e.Status = status
	return e
}

// fail answers with an error.
func (s *Server) fail(ctx *fasthttp.RequestCtx, e *openai.Error) {
	ctx.SetStatusCode(e.Status)
	ctx.SetContentType("application/json")
	if e.RetryAfter > 0 {
		ctx.Response.Header.Set("Retry-After", strconv.Itoa(e.RetryAfter))
	}
	ctx.Response.SetBodyRaw(e.JSON(""))
}

// forbidden finds a header whose name or value holds bytes that RFC 9110 forbids there; fasthttp lets some pass.
func forbidden(h *fasthttp.RequestHeader) (name []byte, found bool) {
	for k, v := range h.All() {
		for _, b := range k {
			if !tokenByte[b] {
				return k, true
			}
		}
		for _, b := range v {
			if b < ' ' && b != '\t' || b == 0x7f {
				return k, true
			}
		}
		if len(k) == 0 {
			return k, true
		}
	}
	return nil, false
}

// tokenByte are the bytes of a header name.
var tokenByte = func() (t [256]bool) {
	for b := '0'; b <= '9'; b++ {
		t[b] = true
	}
	for b := 'a'; b <= 'z'; b++ {
		t[b], t[b-'a'+'A'] = true, true
	}
	for _, b := range "!#$%&'*+-.^_`|~" {
		t[b] = true
	}
	return t
}()
