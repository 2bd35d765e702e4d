package server

import (
	"encoding/json"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"pd-router/internal/openai"
)

// health answers 200 once the router was ready, and says what is missing now.
func (s *Server) health(ctx *fasthttp.RequestCtx, _ *conn) {
	h, ok := s.router.Health()
	if !ok || s.draining.Load() {
		ctx.SetStatusCode(503)
	}
	s.json(ctx, h)
}

func (s *Server) pool(ctx *fasthttp.RequestCtx, _ *conn) { s.json(ctx, s.router.Pool()) }

func (s *Server) json(ctx *fasthttp.RequestCtx, v any) {
	page, err := json.Marshal(v)
	if err != nil {
		panic("BUG: a status page that is no JSON: " + err.Error())
	}
	ctx.SetContentType("application/json")
	ctx.Response.SetBodyRaw(page)
}

func (s *Server) metrics(ctx *fasthttp.RequestCtx, _ *conn) {
	kind, err := s.page(ctx, string(ctx.Request.Header.Peek("Accept")))
	if err != nil {
		s.log.Error("metrics", zap.Error(err))
		ctx.Response.ResetBody()
		s.fail(ctx, openai.Errorf(openai.TypeInternalError, "the metrics page failed"))
		return
	}
	ctx.SetContentType(kind)
}

// models passes vLLM's list on.
func (s *Server) models(ctx *fasthttp.RequestCtx, c *conn) {
	p := s.router.Models(c.begin(s.base), forward(&ctx.Request.Header))
	if p == nil {
		c.end()
		s.fail(ctx, openai.Errorf(openai.TypePrefillFailed, "the prefill node did not tell its models"))
		return
	}
	s.write(ctx, c, p)
}
