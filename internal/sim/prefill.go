package sim

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"pd-router/internal/nixl"
	"pd-router/internal/tilert"

	"github.com/valyala/fasthttp"
)

// Prefill is a simulated vLLM node with the TileRT connector.
type Prefill struct {
	o        PrefillOptions
	protocol tilert.Protocol
	layout   tilert.Layout
	faults   faults
	life     *life
	http     *listener
	kv       *connector
	via      choice
	prefix   *prefixCache
	served   chan struct{} // closed when Serve has returned
	serving  atomic.Bool
	began    time.Time
	tell     func(string)

	mu     sync.Mutex
	freeAt time.Time // when the card has computed all that it was given so far

	requests, refused, aborted, handoffs, failed atomic.Uint64
	prompts, cached                              atomic.Uint64 // tokens
	running, waiting                             atomic.Int64
	computed                                     atomic.Int64 // nanoseconds
}

// PrefillCounters are a node's sums since it began.
type PrefillCounters struct {
	Requests       uint64 // answered with a first token
	Refused        uint64 // answered 4xx
	Aborted        uint64 // left by their client
	Handoffs       uint64 // whose KV was sent whole
	HandoffsFailed uint64 // whose KV was refused, or lost on the way
	Bytes          uint64 // of KV
	PromptTokens   uint64
	CachedTokens   uint64
	BusySeconds    float64 // time for which prompts were computed
}

// NewPrefill checks the options. The node does nothing before Listen.
func NewPrefill(o PrefillOptions) (*Prefill, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Prefill{
		o: o, life: newLife(), prefix: newPrefixCache(), via: choice{want: o.Transport, load: loadNIXL}, served: make(chan struct{}), began: time.Now(),
		tell: func(string) {},
	}
	if p.layout, p.protocol, err = shape(o.Profile, o.KVDType, o.Generation); err != nil {
		return nil, err
	}
	if p.faults, err = parseFaults(o.Faults, prefillFaults); err != nil {
		return nil, err
	}
	p.kv = newConnector(p.layout, p.protocol, o.Senders, o.TransferGBps, p.life)
	return p, nil
}

// Tell has the node tell each fault that a request gets, and each rank that could not send its KV, in a line. Call it before Listen.
func (p *Prefill) Tell(tell func(line string)) { p.tell, p.kv.tell = tell, tell }

// Listen opens the port and the transport. The address is known from then on.
func (p *Prefill) Listen() (err error) {
	if err := p.openTransport(); err != nil {
		return err
	}
	if p.http, err = p.life.listen(p.o.Listen); err != nil {
		return errors.Join(err, p.kv.close())
	}
	return nil
}

// openTransport gives the ranks what they write with. Where the choice is left open that is all there is.
func (p *Prefill) openTransport() error {
	if p.o.KV != KVWrite {
		p.via.made = p.o.Transport + " (no bytes)"
		p.kv.outs = []outlet{noOutlet(p.o.Transport)}
		if p.o.Transport == TransportAuto {
			p.kv.outs = []outlet{noOutlet(TransportNIXL), noOutlet(TransportTCP)}
		}
		return nil
	}
	ok, err := p.via.tryNIXL(func(lib *nixl.Library) error {
		out, err := newNIXLOutlet(p.life.ctx, lib, p.layout, p.o.MaxModelLen, p.o.Senders)
		if err == nil {
			p.kv.outs = append(p.kv.outs, out)
		}
		return err
	})
	if err == nil && (!ok || p.o.Transport == TransportAuto) {
		p.kv.outs = append(p.kv.outs, tcpOutlet{})
	}
	return err
}

// Transport tells how KV bytes leave, and why in that way. It is known once the node listens.
func (p *Prefill) Transport() string { return p.via.made }

// Addr returns host:port.
func (p *Prefill) Addr() string { return p.http.Addr().String() }

// URL returns the address as the router's --vllm-url takes it.
func (p *Prefill) URL() string { return "http://" + p.Addr() }

// Serve runs the node until ctx ends or Close is called, and returns when nothing of it is left.
func (p *Prefill) Serve(ctx context.Context) error {
	p.serving.Store(true)
	defer close(p.served)
	defer context.AfterFunc(ctx, p.stop)()
	p.kv.start()
	p.http.serveHTTP(p.handle)
	p.life.work.Wait()
	return p.kv.close()
}

func (p *Prefill) stop() {
	p.life.end()
	_ = p.http.Close()
}

// Close ends the node and waits until Serve has returned. Without Serve it gives back what Listen took.
func (p *Prefill) Close() error {
	if p.http == nil {
		return nil
	}
	p.stop()
	if p.serving.Load() {
		<-p.served
		return nil
	}
	return p.kv.close()
}

// Counters returns the sums so far.
func (p *Prefill) Counters() PrefillCounters {
	return PrefillCounters{
		Requests: p.requests.Load(), Refused: p.refused.Load(), Aborted: p.aborted.Load(), Handoffs: p.handoffs.Load(), HandoffsFailed: p.failed.Load(),
		Bytes: p.kv.sent.Load(), PromptTokens: p.prompts.Load(), CachedTokens: p.cached.Load(), BusySeconds: time.Duration(p.computed.Load()).Seconds(),
	}
}

// schedule books time on the card for a prompt, after all that was booked before, and returns from when to when.
func (p *Prefill) schedule(tokens int, slow bool) (from, to time.Time) {
	cost := time.Duration(0)
	if p.o.TokensPerSecond > 0 {
		cost = jittered(time.Duration(float64(tokens)/p.o.TokensPerSecond*float64(time.Second)), p.o.Jitter)
	}
	latency := jittered(p.o.Latency, p.o.Jitter)
	if slow {
		cost, latency = 10*cost, 10*latency
	}
	p.computed.Add(int64(cost))
	p.mu.Lock()
	defer p.mu.Unlock()
	from = time.Now().Add(latency)
	if from.Before(p.freeAt) {
		from = p.freeAt
	}
	p.freeAt = from.Add(cost)
	return from, p.freeAt
}

// cachedTokens returns how much of a prompt need not be computed: whole blocks, and never the last token.
func (p *Prefill) cachedTokens(q *prompt) int {
	known := p.prefix.visit(q.parts...)
	n, size := known*blockBytes, 0
	for _, part := range q.parts {
		size += len(part)
	}
	if size > 0 {
		n = n * q.tokens / size
	}
	if p.o.CachedShare >= 0 {
		n = int(p.o.CachedShare * float64(q.tokens))
	}
	return min(n, q.tokens-1) / blockTokens * blockTokens
}

// lastChunk is how many tokens vLLM computes at a time. The connector begins to send with the last chunk of a prompt.
const lastChunk = 8192

// handOff begins to send a prompt's KV, which is computed between two points of time. Nothing is sent for a request
// that the connector does not claim.
func (p *Prefill) handOff(q *prompt, rid string, c *content, fault string, from, to time.Time) (abort func()) {
	if q.kv == nil || p.o.KV == KVNone || fault == kvNone {
		return func() {}
	}
	if p.o.TokensPerSecond > 0 {
		if chunk := time.Duration(lastChunk / p.o.TokensPerSecond * float64(time.Second)); to.Sub(from) > chunk {
			from = to.Add(-chunk)
		}
	}
	if !p.o.Pipeline {
		from = to
	}
	ctx, cancel := context.WithCancelCause(p.life.ctx)
	p.kv.push(&handoff{
		ctx: ctx, host: q.kv.Host, port: q.kv.Port, rid: rid, content: c, fault: fault, began: from, ends: to,
		done: func(ok bool) {
			cancel(nil)
			if ok {
				p.handoffs.Add(1)
			} else {
				p.failed.Add(1)
			}
		},
	})
	return func() { cancel(errAborted) }
}

// errAborted is how a handoff ends whose request was left by its client.
var errAborted = errors.New("the request was aborted")

func (p *Prefill) handle(ctx *fasthttp.RequestCtx) {
	switch path := string(ctx.Path()); {
	case path == "/v1/chat/completions" && ctx.IsPost():
		p.complete(ctx, true)
	case path == "/v1/completions" && ctx.IsPost():
		p.complete(ctx, false)
	case path == "/tokenize" && ctx.IsPost():
		p.tokenize(ctx)
	case path == "/detokenize" && ctx.IsPost():
		p.detokenize(ctx)
	case path == "/health":
		ctx.SetStatusCode(200)
	case path == "/v1/models":
		p.models(ctx)
	case path == "/version":
		sayJSON(ctx, 200, map[string]any{"version": "0.26.0"})
	case path == "/metrics":
		ctx.SetContentType("text/plain; version=0.0.4; charset=utf-8")
		ctx.SetBody(p.metrics())
	case path == "/sim/counters":
		sayJSON(ctx, 200, p.Counters())
	case path == "/v1/chat/completions" || path == "/v1/completions" || path == "/tokenize" || path == "/detokenize":
		sayJSON(ctx, 405, map[string]any{"detail": "Method Not Allowed"})
	default:
		sayJSON(ctx, 404, map[string]any{"detail": "Not Found"})
	}
}
