package router

import (
	"context"
	"time"

	"go.uber.org/zap"

	"pd-router/internal/engine"
	"pd-router/internal/nodes"
	"pd-router/internal/openai"
	"pd-router/internal/queue"
	"pd-router/internal/tilert"
	"pd-router/internal/tracing"
)

// maxAttempts is how many pairs of legs one request may cost.
const maxAttempts = 3

// Call is a request as it came from a client, read to its end.
type Call struct {
	Endpoint    openai.Endpoint
	Body        []byte
	Start       time.Time // when its head was there
	ReadBody    time.Duration
	Arrived     time.Time // when its last byte was there, which gives its place in the line; zero: now
	ClientID    string    // X-Request-ID, for the log only
	Correlation string    // X-Correlation-ID, for the log only
	TellPlace   bool      // the client wants to know where it stands while it waits, see telling.go
	Forward     []byte    // header lines for the prefill node
	Traceparent string    // W3C trace context, for the prefill node too
	Tracestate  string
}

// life is one request. It belongs to one goroutine.
type life struct {
	r    *Router
	ctx  context.Context
	call Call
	req  *openai.Request

	// Of the wait: what has gone of the bound, and the place in the line.
	waited time.Duration
	ticket queue.Ticket
	avoid  *queue.Slot // of the node that the next attempt must not have
	other  *otherWait  // the wait for another slot, while the node is busy for somebody else

	// Of a staged router: the room in its arena, what prefill has told of the prompt's length (0: nothing), and whether no room
	// is large enough for it.
	stage        *stage
	promptTokens int
	direct       bool

	// Of the present attempt.
	attempts   int
	lease      *queue.Lease
	node       *backend
	nodeName   string
	epoch      uint32        // of the node at the grant, see backend
	back       chan struct{} // see comeBack; nil but between two attempts
	from       *sender       // that was asked for the KV
	prefilled  *engine.Prefilled
	dispatched bool     // a decode POST went out
	nodeEnded  bool     // the node itself has reported an end
	strike     bool     // the attempt counts against the node
	asked      []string // rids of prefills that have not answered: their KV may have begun to come, or begin yet
	begun      string   // rid of KV that may have come in part, and will not begin again; "" when its end is known
	decode     *nodes.Response
	line       tilert.Line
	reply      *openai.Reply
	tokens     int   // ids received from the node
	held       []int // a first id that left no text, see tokenLine
	heldRows   openai.Rows
	top        [][]openai.Candidate // scratch of candidates
	flat       []openai.Candidate
	body       []byte // of a whole reply

	span tracing.Span // of the request
	step tracing.Span // of decoding

	tell     *flusher // where the client is told its place while it waits, or nil
	unserved bool     // the stream begins before there is a slot

	times    times
	finished bool
}

// Serve runs the life of one request. ctx ends with ErrClientGone or ErrDraining as its cause. When the Reply
// has a stream, the caller must call its WriteTo or Close; the tokens are pumped there.
func (r *Router) Serve(ctx context.Context, call Call) (reply *Reply) {
	l := r.begin(ctx, call)
	defer l.onPanic(&reply)
	if f := l.admit(); f != nil {
		return l.refuse(f)
	}
	if call.TellPlace && l.req.Stream {
		l.unserved = true
		return l.streamed()
	}
	if f := l.serve(); f != nil {
		return l.refuse(f)
	}
	if l.req.Stream {
		return l.streamed()
	}
	return l.whole()
}

// Refuse ends a request that the edge has refused, so that it is accounted for like any other. When the client has
// left meanwhile, that is how it ended.
func (r *Router) Refuse(ctx context.Context, call Call, e *openai.Error) *Reply {
	l := r.begin(ctx, call)
	if f := ended(ctx); f != nil {
		return l.refuse(f)
	}
	outcome := Invalid
	switch e.Type {
	case openai.TypeDraining:
		outcome = Draining
	case openai.TypeQueueFull:
		outcome = QueueFull
	}
	return l.refuse(&failure{outcome: outcome, err: e})
}

// serve makes attempts until one is good, or none may follow. After a later attempt got no slot, it is the
// failure of the earlier one that the client is told.
func (l *life) serve() *failure {
	var before *failure
	for {
		f := l.attempt()
		switch {
		case f == nil:
			return nil
		case f == errMoved:
			continue
		case f.outcome == QueueTimeout && before != nil:
			l.endLease(0) // of a slot that it was given ahead
			return before.later(f.err.RetryAfter)
		}
		if f.retry != never { // else the slot is free before the client hears of it
			l.back = make(chan struct{})
		}
		l.endLease(0)
		if !l.again(f) {
			l.comeBack()
			return f
		}
		before = f
	}
}

// comeBack is called when a request between two attempts stands in a line again, and so ahead of all that came later, or is certain not
// to: the slot of its earlier attempt is given on only then (see endLease).
func (l *life) comeBack() {
	if l.back != nil {
		close(l.back)
		l.back = nil
	}
}

// begin starts a life; finish ends it.
func (r *Router) begin(ctx context.Context, call Call) *life {
	l := &life{r: r, ctx: ctx, call: call}
	l.times.start = call.Start
	l.span = r.opts.Tracer.Request(call.Endpoint.String(), call.Traceparent, call.Tracestate, call.Start)
	return l
}

// admit reads the body's top level and refuses what cannot be honoured, before any work.
func (l *life) admit() *failure {
	view, e := openai.Parse(l.call.Body)
	if e == nil {
		l.req, e = l.r.gate.Check(l.call.Endpoint, view)
	}
	if e != nil {
		if e.Status == 501 {
			return &failure{outcome: Unavailable, err: e}
		}
		return &failure{outcome: Invalid, err: e}
	}
	if e := l.r.able(l.ctx, l.req); e != nil {
		if f := ended(l.ctx); f != nil {
			return f
		}
		return &failure{outcome: Unavailable, err: e}
	}
	return nil
}

// attempt is one pair of legs. For a streaming client it ends with the first line of the node's stream in hand, for
// a blocking one with the whole reply.
func (l *life) attempt() *failure {
	if l.r.arena != nil && !l.direct {
		return l.attemptStaged()
	}
	if l.lease == nil {
		if f := l.wait(); f != nil {
			return f
		}
	}
	l.attempts++
	if f := l.prefill(); f != nil {
		return f
	}
	if f := l.own(); f != nil {
		return f
	}
	return l.decodeLeg()
}

// decodeLeg is what an attempt does with its slot once the KV is made.
func (l *life) decodeLeg() *failure {
	if f := l.dispatch(); f != nil {
		return f
	}
	if l.req.Stream {
		return nil
	}
	return l.collect()
}

// again decides about another attempt after f, whose lease is on its way back.
func (l *life) again(f *failure) bool {
	if f.retry == never || l.attempts >= maxAttempts || l.ctx.Err() != nil {
		return false
	}
	if f.outcome == PrefillFailed {
		l.direct = false // while its prefill node is down, only the line before the arena stands still
	}
	l.avoid = nil
	if l.node != nil && (f.retry == elsewhere || l.left() <= 0) {
		if !l.r.anotherUp(l.node) {
			return false
		}
		l.avoid = l.node.slot
	}
	l.r.metrics.Upstream.Retried(retryPair)
	l.r.log.Info("another attempt", zap.Int("attempt", l.attempts+1), zap.String("node", l.nodeName),
		zap.String("after", f.outcome.String()), zap.Error(f.cause))
	return true
}

// anotherUp says whether a node other than be is up.
func (r *Router) anotherUp(be *backend) bool {
	for _, other := range r.backends {
		if other != be && other.Up() {
			return true
		}
	}
	return false
}

// left is what remains of the bound on waiting.
func (l *life) left() time.Duration { return l.r.opts.QueueTimeout - l.waited }

// onPanic is the outermost frame of our own code: the slot comes back and the client gets an answer.
func (l *life) onPanic(reply **Reply) {
	p := recover()
	if p == nil {
		return
	}
	cause := panicked(l.r.log, p)
	l.endLease(0)
	*reply = l.refuse(&failure{outcome: Internal, cause: cause, err: openai.Errorf(openai.TypeInternalError, "internal error")})
}
