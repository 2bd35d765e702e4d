package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"pd-router/internal/config"
	"pd-router/internal/logging"
	"pd-router/internal/metrics"
	"pd-router/internal/nodes"
	"pd-router/internal/openai"
	"pd-router/internal/parser"
	"pd-router/internal/router"
	"pd-router/internal/server"
	"pd-router/internal/staging"
	"pd-router/internal/status"
	"pd-router/internal/token"
	"pd-router/internal/tracing"
)

// serve builds the router, runs it and ends it: the body of the root command.
func serve(cmd *cobra.Command, cfg config.Config) error {
	log, err := logging.New(cmd.ErrOrStderr(), cfg.LogFormat, cfg.LogLevel, cfg.LogSample)
	if err != nil {
		return err
	}
	defer log.Sync() //nolint:errcheck // stderr may be a pipe that is gone
	tracer, err := tracing.New(cmd.Context(), cfg.OTLPEndpoint, version)
	if err != nil {
		return fmt.Errorf("--otlp-endpoint: %w", err)
	}
	defer endTraces(tracer, log)
	p, err := build(cfg, tracer, log)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", cfg.Addr())
	if err != nil {
		return fmt.Errorf("--host %s --port %d: %w", cfg.Host, cfg.Port, err)
	}
	return p.run(cmd.Context(), cfg, ln, log)
}

// endTraces sends what is left of the traces, and does not hold up the end for long.
func endTraces(t *tracing.Tracer, log *zap.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := t.Shutdown(ctx); err != nil {
		log.Warn("traces were lost", zap.Error(err))
	}
}

// parts are what a running router is made of.
type parts struct {
	router  *router.Router
	server  *server.Server
	metrics *metrics.Metrics
}

// fillState is called for each scrape, which the server serves: it is there by then.
func (p *parts) fillState(s *metrics.State) {
	p.router.FillState(s)
	s.Connections = p.server.Connections()
}

// page is the metrics page of cfg. Without the prefill node's own page, ours is served alone.
func (p *parts) page(cfg config.Config) server.Page {
	if !cfg.ReexportVLLMMetrics {
		return p.metrics.Write
	}
	return func(w io.Writer, accept string) (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		reply, err := p.router.Pass(ctx, "GET", "/metrics", nil, nil)
		if err != nil || reply.Status != 200 {
			return p.metrics.Write(w, accept)
		}
		return p.metrics.WriteMerged(w, accept, reply.Body)
	}
}

func metricsOptions(cfg config.Config, o metrics.Options) metrics.Options {
	o.Version, o.Revision, o.ModelName = version, revision(), cfg.Model
	return o
}

// build makes the router of cfg. Nothing runs yet.
func build(cfg config.Config, tracer *tracing.Tracer, log *zap.Logger) (*parts, error) {
	tok, err := loadTokenizer(cfg)
	if err != nil {
		return nil, err
	}
	defaults, err := openai.ResolveDefaults(openai.DefaultsOptions{
		GenerationConfig: cfg.GenerationConfig, ModelPath: cfg.ModelPath, Model: cfg.Model,
		Temperature: optional(cfg.DefaultTemperature), TopP: optional(cfg.DefaultTopP), TopK: optional(cfg.DefaultTopK),
		RepetitionPenalty: optional(cfg.DefaultRepetitionPenalty),
	})
	if err != nil {
		return nil, err
	}
	gate := &openai.Gate{
		Defaults: defaults, HasTokenizer: tok != nil, HasParser: cfg.Parser != "none",
		ForceIncludeUsage: cfg.ForceIncludeUsage,
		Thinking:          thinking(cfg),
	}
	backends := router.Backends{VLLM: cfg.VLLMURL, Connect: nodes.Options{ConnectTimeout: cfg.ConnectTimeout}}
	names := make([]string, 0, len(cfg.Decode))
	for _, n := range cfg.Decode {
		a := nodes.Address{Host: n.Host, CtrlPort: n.Ctrl, HTTPPort: n.HTTP}
		backends.Decode = append(backends.Decode, a)
		names = append(names, a.String())
	}
	p := &parts{}
	o := routerOptions(cfg)
	o.Tracer = tracer
	p.metrics = metrics.New(prometheus.NewRegistry(), metricsOptions(cfg, router.MetricsOptions(o, names, p.fillState)))
	p.router, err = router.New(o, backends, gate, tok, p.metrics, log)
	return p, err
}

// thinking is how the gate learns whether the model thinks: by the parser's rule for the template arguments of the
// request over those that vLLM adds.
func thinking(cfg config.Config) func(kwargs json.RawMessage) bool {
	defaults := map[string]json.RawMessage{}
	_ = json.Unmarshal(cfg.DefaultChatTemplateKwargs, &defaults) // an object, as config has checked; or nothing
	return func(kwargs json.RawMessage) bool {
		if len(defaults) == 0 {
			return parser.ThinkingDefault(cfg.Parser, kwargs)
		}
		merged := maps.Clone(defaults)
		_ = json.Unmarshal(kwargs, &merged) // an object, as the gate has checked; or nothing
		both, err := json.Marshal(merged)
		if err != nil {
			return parser.ThinkingDefault(cfg.Parser, kwargs)
		}
		return parser.ThinkingDefault(cfg.Parser, both)
	}
}

// optional is the text of a flag that may be unset.
func optional[T int | float64](v *T) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(*v)
}

func loadTokenizer(cfg config.Config) (*token.Tokenizer, error) {
	if cfg.ModelPath == "" {
		return nil, nil
	}
	tok, err := token.Load(cfg.ModelPath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &config.Error{Setting: "--model-path=" + cfg.ModelPath, Text: "no tokenizer.json in this folder"}
	}
	if err != nil {
		return nil, fmt.Errorf("--model-path: %w", err)
	}
	debug.FreeOSMemory() // the file and what it was parsed from: the next collection may be minutes away
	return tok, nil
}

func routerOptions(cfg config.Config) router.Options {
	return router.Options{
		Arena:        arenaOptions(cfg),
		QueueTimeout: cfg.QueueTimeout, QueueMax: cfg.QueueMax, QueueMaxBytes: cfg.QueueMaxBytes,
		PrefillTimeout: cfg.PrefillTimeout, KVTimeout: cfg.KVTimeout, StreamIdleTimeout: cfg.StreamIdleTimeout,
		DefaultMaxTokens: cfg.DefaultMaxTokens, Parser: cfg.Parser, ReasoningAlias: cfg.ReasoningAlias, PrefillAhead: cfg.PrefillAhead,
	}
}

// arenaOptions are nil for direct handoff.
func arenaOptions(cfg config.Config) *router.ArenaOptions {
	if !cfg.Staged() {
		return nil
	}
	o := &router.ArenaOptions{
		Slots: cfg.KVArenaSlots, Bytes: cfg.KVArenaBytes, Host: cfg.KVArenaHost, Port: cfg.KVArenaPort,
		Huge: cfg.KVArenaHugepages, Library: cfg.NIXLLibrary, Verify: cfg.KVVerify,
	}
	for _, s := range cfg.KVArenaSizes {
		o.Sizes = append(o.Sizes, staging.Size{Slots: s.Slots, MaxSeqLen: s.Tokens})
	}
	return o
}

// errNotReady ends a router whose nodes never answered: a launcher that waits for it must see it end.
var errNotReady = errors.New("the nodes did not answer within --startup-timeout")

// run serves behind ln until ctx ends, and gives ln back closed.
func (p *parts) run(ctx context.Context, cfg config.Config, ln net.Listener, log *zap.Logger) error {
	var err error
	p.server, err = server.New(server.Options{
		MaxBody: int(cfg.MaxBody), MaxReading: cfg.QueueMaxBytes, DrainTimeout: cfg.DrainTimeout,
		About: status.About{Version: version, Settings: settings(cfg)},
	}, p.router, p.page(cfg), log)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	log.Info("listening", zap.String("addr", ln.Addr().String()), zap.String("version", version),
		zap.String("prefill", cfg.VLLMURL), zap.Stringers("decode", cfg.Decode), zap.Duration("queue_timeout", cfg.QueueTimeout))

	side, err := listenSide(cfg)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	stopping, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	nodesCtx, stopNodes := context.WithCancel(context.WithoutCancel(ctx)) // they are watched to the end of the drain
	var g errgroup.Group
	if side != nil {
		log.Info("listening for scrapes", zap.String("addr", side.Addr().String()))
		g.Go(func() error { return p.server.ServeSide(nodesCtx, side, cfg.Pprof) })
	}
	if cfg.Preflight {
		withhold(p.router)
		g.Go(func() error {
			preflight(stopping, p.router, targets(cfg), probeOptions(cfg), preflightPause, log)
			return nil
		})
	}
	g.Go(func() error {
		err := p.router.Run(nodesCtx)
		if err != nil {
			stop(err)
		}
		return err
	})
	g.Go(func() error { return awaitReady(stopping, cfg.StartupTimeout, p.router, log, stop) })
	g.Go(func() error {
		announce(stopping, os.Getenv("NOTIFY_SOCKET"), p.router.Ready(), cfg.DrainTimeout, log)
		return nil
	})
	g.Go(func() error {
		defer stopNodes()
		defer stop(nil) // a listener that failed ends the rest
		err := p.server.Run(stopping, ln, forced(ctx))
		log.Info("stopped", zap.Error(err))
		return err
	})
	return g.Wait()
}

// listenSide opens the listener of --metrics-addr; nil without one.
func listenSide(cfg config.Config) (net.Listener, error) {
	if cfg.MetricsAddr == "" {
		return nil, nil
	}
	ln, err := net.Listen("tcp", cfg.MetricsAddr)
	if err != nil {
		return nil, fmt.Errorf("--metrics-addr: %w", err)
	}
	return ln, nil
}

// awaitReady ends the router with an error when its nodes have not answered in time.
func awaitReady(ctx context.Context, bound time.Duration, r *router.Router, log *zap.Logger, stop context.CancelCauseFunc) error {
	start := time.Now()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-r.Ready():
		log.Info("ready", zap.Duration("after", time.Since(start)))
		return nil
	case <-ctx.Done():
		return nil
	case <-timer.C:
		err := fmt.Errorf("%w (%s): %s", errNotReady, bound, strings.Join(r.Missing(), "; "))
		stop(err)
		return err
	}
}
