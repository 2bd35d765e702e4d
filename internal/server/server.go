package server

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"pd-router/internal/router"
	"pd-router/internal/status"
)

// Fixed bounds of connections. None of them is on a reply: a stream may take hours.
const (
	headTimeout = 60 * time.Second  // from the first byte of a request to the end of its head
	bodySilence = 60 * time.Second  // between two pieces of a body
	keepAlive   = 620 * time.Second // idle connections; clients pool theirs for 300 s
	headBuffer  = 8 << 10           // longest head of a request
	writeBuffer = 16 << 10
	sendGrace   = 500 * time.Millisecond // in a drain, for clients in the middle of sending a request
	forcedGrace = time.Second            // for cut streams to say so
)

// Options of the edge.
type Options struct {
	MaxBody      int           // bytes of one body
	MaxReading   int64         // bytes of all bodies that are being read; 0: no limit
	DrainTimeout time.Duration // for running requests, when the server stops
	About        status.About  // what the status page says of the program
}

// Page writes a metrics page in the form that accept asks for, and returns its content type.
type Page func(w io.Writer, accept string) (contentType string, err error)

// Server is the edge. Make one with New and call Run once.
type Server struct {
	opts   Options
	router *router.Router
	page   Page
	status *status.Page
	log    *zap.Logger
	http   *fasthttp.Server
	conns  *connections

	base     context.Context // of all requests
	end      context.CancelCauseFunc
	draining atomic.Bool
	reading  atomic.Int64 // bytes reserved for bodies that are being read
}

// New returns a server in front of r.
func New(o Options, r *router.Router, page Page, log *zap.Logger) (*Server, error) {
	s := &Server{opts: o, router: r, page: page, status: status.New(r, o.About), log: log}
	s.base, s.end = context.WithCancelCause(context.Background())
	var err error
	if s.conns, err = newConnections(); err != nil {
		return nil, err
	}
	s.http = &fasthttp.Server{
		Handler:                      s.handle,
		ErrorHandler:                 s.malformed,
		HeaderReceived:               s.headReceived,
		ConnState:                    s.conns.state,
		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
		ReadTimeout:                  headTimeout,
		IdleTimeout:                  keepAlive,
		ReadBufferSize:               headBuffer,
		WriteBufferSize:              writeBuffer,
		StreamRequestBody:            true, // the handler reads bodies itself, into buffers of the right size
		MaxRequestBodySize:           1,    // so many bytes of a body fasthttp waits for before it calls the handler; the limit is readBody's
		DisablePreParseMultipartForm: true,
		LazyRequestTime:              true,
		CloseOnShutdown:              true,
		Concurrency:                  1 << 20,
		Logger:                       quiet{log},
	}
	return s, nil
}

// Connections is how many clients are connected.
func (s *Server) Connections() int { return s.conns.count() }

// quiet takes fasthttp's own messages without their arguments, which hold pieces of requests.
type quiet struct{ log *zap.Logger }

func (q quiet) Printf(format string, _ ...any) { q.log.Debug("http", zap.String("about", format)) }

// Run serves on ln until ctx ends, then drains: the listener closes at once, waiters are refused, running requests get the
// drain time-out. When forced is closed meanwhile, everything ends at once. The error is that of the listener.
func (s *Server) Run(ctx context.Context, ln net.Listener, forced <-chan struct{}) error {
	served := make(chan error, 1) // sent once by the goroutine
	go func() { served <- s.http.Serve(s.conns.wrap(ln)) }()
	watched := make(chan struct{}) // closed by the goroutine
	go func() {
		defer close(watched)
		s.conns.watch()
	}()
	var err error
	select {
	case err = <-served: // the listener failed
	case <-ctx.Done():
		_ = ln.Close() // fasthttp's shutdown closes only what it serves by now
		s.drain(forced)
		err = <-served
	}
	s.end(router.ErrDraining)
	s.status.Close()
	s.conns.stop()
	<-watched
	return err
}

// drain ends service in the order of the promises.
func (s *Server) drain(forced <-chan struct{}) {
	s.draining.Store(true)
	ending, ended := context.WithCancel(context.Background())
	stopped := make(chan struct{}) // closed by the goroutine
	go func() {                    // closes the listener at once; ended by ended
		defer close(stopped)
		_ = s.http.ShutdownWithContext(ending)
	}()
	s.status.Close() // before the waiters, who may be many, are woken
	s.router.Drain()
	s.conns.closeIdle(time.Now().Add(sendGrace))
	timer := time.NewTimer(s.opts.DrainTimeout)
	defer timer.Stop()
	select {
	case <-s.conns.drained():
	case <-timer.C:
		s.cut("drain time-out")
	case <-forced:
		s.cut("second signal")
	}
	ended()
	<-stopped
}

// cut ends the requests that still run: their streams break off with an error event.
func (s *Server) cut(why string) {
	s.log.Warn("running requests are cut off", zap.String("why", why), zap.Int("connections", s.conns.count()))
	s.end(router.ErrDraining)
	timer := time.NewTimer(forcedGrace)
	defer timer.Stop()
	select {
	case <-s.conns.drained():
	case <-timer.C:
		s.conns.closeAll()
	}
}
