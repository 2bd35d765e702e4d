package server

import (
	"context"
	"net"

	"github.com/valyala/fasthttp"
	"github.com/valyala/fasthttp/pprofhandler"

	"pd-router/internal/openai"
)

// sidePages are what the second listener serves.
var sidePages = map[string]bool{"/metrics": true, "/health": true, "/pool_status": true}

// ServeSide serves the status pages alone on ln, and Go profiles when asked for, until ctx ends: a listener for
// operators, that clients of the API need not reach.
func (s *Server) ServeSide(ctx context.Context, ln net.Listener, profiles bool) error {
	http := &fasthttp.Server{
		Handler: func(ctx *fasthttp.RequestCtx) {
			path := string(ctx.Path())
			switch {
			case profiles && len(path) > 12 && path[:13] == "/debug/pprof/":
				pprofhandler.PprofHandler(ctx)
			case !sidePages[path]:
				s.fail(ctx, openai.Errorf(openai.TypeNotFound, "no such page: see /metrics, /health, /pool_status"))
			case !ctx.IsGet() && !ctx.IsHead():
				s.fail(ctx, openai.Errorf(openai.TypeMethodNotAllowed, "use GET"))
			default:
				routes[path].methods["GET"](s, ctx, nil)
			}
		},
		ErrorHandler:          s.malformed,
		NoDefaultServerHeader: true,
		ReadTimeout:           headTimeout,
		IdleTimeout:           keepAlive,
		ReadBufferSize:        headBuffer,
		MaxRequestBodySize:    4 << 10, // none is wanted
		CloseOnShutdown:       true,
		Logger:                quiet{s.log},
	}
	stopped := make(chan error, 1) // sent once by the goroutine
	go func() {
		<-ctx.Done()
		err := http.Shutdown()
		_ = ln.Close() // Shutdown closes what is served by then
		stopped <- err
	}()
	if err := http.Serve(ln); err != nil && ctx.Err() == nil {
		return err
	}
	return <-stopped
}
