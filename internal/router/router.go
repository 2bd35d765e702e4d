package router

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"

	"pd-router/internal/engine"
	"pd-router/internal/metrics"
	"pd-router/internal/nodes"
	"pd-router/internal/openai"
	"pd-router/internal/queue"
	"pd-router/internal/tilert"
	"pd-router/internal/token"
	"pd-router/internal/tracing"
)

// Options are the bounds and habits of a request's life.
type Options struct {
	QueueTimeout      time.Duration // longest wait for a slot in all; 0: refuse at once
	QueueMax          int           // most requests that wait at once
	QueueMaxBytes     int64         // most bytes of waiting bodies
	PrefillTimeout    time.Duration // to the head of the prefill node's answer
	KVTimeout         time.Duration // to the head of the decode node's answer, which comes when the KV is there
	StreamIdleTimeout time.Duration // silence in a token stream
	DefaultMaxTokens  int           // when the client names no length; 0: up to the node's window
	Parser            string        // output parser, "none" for none
	ReasoningAlias    bool          // write reasoning beside reasoning_content
	PrefillAhead      bool          // prefill the next request while the slot still decodes, on nodes of protocol 2
	Arena             *ArenaOptions // staged handoff; nil: prefill writes the KV into the decode node
	Tracer            *tracing.Tracer
}

// Router serves requests over one prefill node and any number of decode nodes.
type Router struct {
	opts      Options
	gate      *openai.Gate
	tokenizer *token.Tokenizer
	line      *queue.Queue // where a request waits that has just come: queue, or before the arena
	queue     *queue.Queue // before the decode slots
	arena     *arena       // nil: direct handoff
	prefill   *nodes.Prefill
	backends  []*backend
	engine    engine.TileRT
	metrics   *metrics.Metrics
	buffers   buffers
	journal   journal
	log       *zap.Logger

	drained   chan struct{} // closed by Drain
	drainOnce sync.Once
	answered  chan struct{} // closed when the prefill node and one decode node have answered
	ready     chan struct{} // closed when they have, and nobody withholds the router
	once      struct{ answered, ready, greeted sync.Once }
	withheld  atomic.Pointer[string] // why the router is not to be ready, nil for no reason

	background context.Context // of settling; ended by Run's return
	stop       context.CancelFunc
	prefillMu  sync.Mutex // as backend.mu, for the prefill node and the queue
	sender     atomic.Pointer[sender]
	kvGrace    time.Duration // as the constant, but for tests
	listWait   time.Duration // likewise
	settling   sync.WaitGroup
}

// backend is a decode node with its slot.
type backend struct {
	*nodes.Decode
	slot     *queue.Slot
	meter    *metrics.Node
	sequence atomic.Int64  // tokens in the node's cache, 0 when it is idle
	epoch    atomic.Uint32 // how often it has gone down: what was on it before is gone
	track    track

	mu        sync.Mutex // makes reading the node's state and applying it to the slot one step
	noGrammar bool       // it has refused a grammar as unsupported
}

// Backends say where the nodes are.
type Backends struct {
	VLLM    string
	Decode  []nodes.Address
	Connect nodes.Options
}

// New returns a router that knows its nodes but not yet whether they are there: Run finds out.
func New(o Options, b Backends, gate *openai.Gate, tok *token.Tokenizer, m *metrics.Metrics, log *zap.Logger) (*Router, error) {
	r := &Router{opts: o, gate: gate, tokenizer: tok, metrics: m, log: log, kvGrace: kvGrace, listWait: listWait, answered: make(chan struct{}), ready: make(chan struct{}), drained: make(chan struct{})}
	r.background, r.stop = context.WithCancel(context.Background())
	var err error
	if err = r.makeLines(); err != nil {
		return nil, err
	}
	r.line.Pause() // until the prefill node has answered
	r.sender.Store(newSender())
	if r.prefill, err = nodes.NewPrefill(b.VLLM, b.Connect, r.prefillChanged); err != nil {
		return nil, fmt.Errorf("--vllm-url: %w", err)
	}
	for _, a := range b.Decode {
		be := &backend{}
		if be.Decode, err = nodes.NewDecode(a, b.Connect, func(_ *nodes.Decode, up bool, cause error) { r.decodeChanged(be, up, cause) }); err != nil {
			return nil, fmt.Errorf("--decode: %w", err)
		}
		be.slot, be.meter = r.queue.Add(a.String(), 0), m.Node(a.String())
		be.slot.Down()
		be.begin()
		r.backends = append(r.backends, be)
	}
	return r, nil
}

// makeLines makes the line before the decode slots, and for a staged router the one before the arena. Who came there first is older in
// both; who stands in the second was let in by the first.
func (r *Router) makeLines() (err error) {
	o := queue.Options{MaxWaiters: r.opts.QueueMax, MaxBytes: r.opts.QueueMaxBytes, SettleGrace: time.Second, Observe: r.waited}
	if r.opts.Arena == nil {
		r.queue = queue.New(o)
		r.line = r.queue
		return nil
	}
	o.Tickets = queue.NewTickets()
	r.line, r.queue = queue.New(o), queue.New(queue.Options{Tickets: o.Tickets, SettleGrace: o.SettleGrace})
	r.arena, err = newArena(*r.opts.Arena, r.line)
	return err
}

// Run watches the nodes until ctx ends, then waits for what is still settling and closes the connections. An error, which comes
// before that, is an arena that cannot be.
func (r *Router) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { r.prefill.Run(ctx); return nil })
	for _, be := range r.backends {
		g.Go(func() error { be.Run(ctx); return nil })
	}
	if r.arena != nil {
		g.Go(func() error { return r.runArena(ctx) })
	}
	err := g.Wait()
	r.stop()
	r.settling.Wait()
	r.prefill.Close()
	for _, be := range r.backends {
		be.Close()
	}
	return err
}

// Drain refuses all that wait and all that come, from now on. Running requests go on.
func (r *Router) Drain() {
	r.drainOnce.Do(func() { close(r.drained) })
	r.line.Drain()
	r.queue.Drain()
}

// prefillChanged stops grants while the prefill node cannot be reached: a request that waits for it holds no slot. was is what has
// happened; the node may be another process by now, and what the one before had not sent does not come.
func (r *Router) prefillChanged(p *nodes.Prefill, was bool, cause error) {
	r.prefillMu.Lock()
	defer r.prefillMu.Unlock()
	up := p.Up()
	if up {
		r.line.Resume()
	} else {
		r.line.Pause()
	}
	if !was && !nodes.IsTimeout(cause) { // else it may only be late
		r.sender.Swap(newSender()).end(errPrefillGone)
	}
	r.checkReady()
	r.log.Log(levelOf(up), "prefill node", zap.Bool("up", up), zap.String("addr", p.Addr()), zap.Error(cause))
}

// decodeChanged applies what is known of a node to its slot. was is what has happened; the node may be back by now, and empty.
func (r *Router) decodeChanged(be *backend, was bool, cause error) {
	be.mu.Lock()
	defer be.mu.Unlock()
	be.slot.SetTraits(be.traitsLocked())
	up := be.Up()
	be.heard(up)
	if !was {
		be.epoch.Add(1)
	}
	if up {
		be.slot.Up()
	} else {
		be.slot.Down()
	}
	if r.arena != nil && be.Hello() != nil {
		r.once.greeted.Do(func() { close(r.arena.greeted) })
	}
	r.checkReady()
	told := []zap.Field{zap.String("node", be.slot.Name()), zap.Bool("up", up), zap.Error(cause)}
	if up {
		told = append(told, zap.Any("capabilities", be.Capabilities()))
	}
	if h := be.Hello(); up && h != nil {
		told = append(told, zap.Int("protocol", int(h.Protocol)), zap.Int("max_seq_len", h.MaxSeqLen))
	}
	r.log.Log(levelOf(up), "decode node", told...)
}

// levelOf is how loud a change of a node is told.
func levelOf(up bool) zapcore.Level {
	if up {
		return zap.InfoLevel
	}
	return zap.WarnLevel
}

// checkReady tells those who wait for Ready.
func (r *Router) checkReady() {
	if r.haveAnswered() {
		r.once.answered.Do(func() { close(r.answered) })
	}
	if r.WasReady() {
		r.once.ready.Do(func() { close(r.ready) })
	}
}

// Ready is closed when the prefill node and one decode node have answered for the first time, and nobody withholds the router.
func (r *Router) Ready() <-chan struct{} { return r.ready }

// traitsLocked are the node's capabilities in the terms of the gate.
func (be *backend) traitsLocked() queue.Traits {
	caps := be.Capabilities()
	var n openai.Needs
	if caps.Penalties {
		n |= openai.NeedPenalties
	}
	if caps.IgnoreEOS {
		n |= openai.NeedIgnoreEOS
	}
	if caps.LogProbs {
		n |= openai.NeedLogProbs
	}
	// No page declares grammars: a node of protocol 2 counts as able until it has said no. One of protocol 1 would
	// ignore the constraint and answer without it; it has neither the page nor the protocol.
	if h := be.Hello(); caps.Page && !be.noGrammar && (h == nil || h.Protocol >= tilert.Protocol2) {
		n |= openai.NeedGrammar
	}
	return queue.Traits(n)
}

// refusesGrammars remembers that the node's engine has none.
func (be *backend) refusesGrammars() {
	be.mu.Lock()
	defer be.mu.Unlock()
	be.noGrammar = true
	be.slot.SetTraits(be.traitsLocked())
}

// rereadWait bounds what a request waits for pages of capabilities: a node that hangs is no reason to hang.
const rereadWait = 2 * time.Second

// able refuses a request that no node can serve, before it waits. A page of capabilities that could not be read is no reason for it: the
// page is read once more first.
func (r *Router) able(ctx context.Context, req *openai.Request) *openai.Error {
	e := r.lacking(req)
	if e != nil && r.reread(ctx) {
		e = r.lacking(req)
	}
	return e
}

// reread has the pages read again that could not be read, and waits until that was tried. A node that is down has its turn when it is up.
func (r *Router) reread(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, rereadWait)
	defer cancel()
	var tries []<-chan struct{}
	for _, be := range r.backends {
		if !be.Up() {
			continue
		}
		if tried := be.Reread(); tried != nil {
			tries = append(tries, tried)
		}
	}
	for _, tried := range tries {
		select {
		case <-tried:
		case <-ctx.Done():
		}
	}
	return len(tries) > 0
}

// lacking says what a request needs that the nodes do not have. What openai.Everywhere names must be on all of them, as far as they have
// ever answered: a client that depends on it is told so, and not left with the share of the nodes that have it (spec 4.6). All that the
// request needs must be together on one.
func (r *Router) lacking(req *openai.Request) *openai.Error {
	if req.Needs == 0 {
		return nil
	}
	var last, some, partial openai.Needs // of the last node; of any; of Everywhere, but not on all
	able := false
	for _, be := range r.backends {
		be.mu.Lock()
		last = openai.Needs(be.traitsLocked())
		be.mu.Unlock()
		some |= last
		if be.Seen() {
			partial |= openai.Everywhere &^ last
		}
		able = able || last&req.Needs == req.Needs
	}
	if e := req.Refusal(some &^ partial); e != nil || able {
		return e
	}
	return req.Refusal(last) // each ability is there, but not all on one node
}

// backendOf is the node of a slot.
func (r *Router) backendOf(s *queue.Slot) *backend {
	i := slices.IndexFunc(r.backends, func(be *backend) bool { return be.slot == s })
	return r.backends[i]
}

// window is the longest sequence that the node's cache holds, 0 when nobody has told.
func (r *Router) window(be *backend) int {
	if h := be.Hello(); h != nil && h.MaxSeqLen > 0 {
		return h.MaxSeqLen
	}
	return r.prefill.Models().MaxModelLen
}
