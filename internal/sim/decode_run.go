package sim

import (
	"encoding/json"
	"net"
	"strconv"
	"time"

	"pd-router/internal/tilert"

	"github.com/valyala/fasthttp"
)

// decode serves POST /pd/decode (spec 1.4): slot, checks, KV, reply.
func (d *Decode) decode(ctx *fasthttp.RequestCtx) {
	q, wrongs := parseDecode(ctx.PostBody(), d.o.Generation)
	if wrongs != nil {
		sayJSON(ctx, 422, map[string]any{"detail": wrongs})
		return
	}
	fault := d.faults.draw(q.RID, d.tell)
	if fault == faultBusy {
		d.busy.Add(1)
		sayJSON(ctx, 429, map[string]any{"error": "busy", "current_rid": nil})
		return
	}
	j, current := d.begin(q.RID)
	if j == nil {
		sayJSON(ctx, 429, map[string]any{"error": "busy", "current_rid": current})
		return
	}
	handedOver := false // to the stream, which then frees the slot
	defer func() {
		if !handedOver {
			d.finish(j)
		}
	}()
	if d.misbehave(ctx, fault, q.RID) {
		return
	}
	d.recv.expect(q.RID)
	if d.protocol != tilert.Protocol1 {
		if r := q.refuse(d.caps, d.o.Engine); r != nil {
			if d.o.KV != KVNone {
				d.await(j, d.o.Drain) // its KV may be on the way already
			}
			sayJSON(ctx, r.status, map[string]any{"error": r.text, "error_type": r.kind})
			return
		}
	}
	t, why := d.receive(j, q.Timeout)
	if t == nil {
		noKV(ctx, q.RID, why)
		return
	}
	waited := time.Since(j.began)
	r, err := d.inject(q, t)
	if err != nil {
		sayJSON(ctx, 500, map[string]any{"error": err.Error(), "rid": q.RID})
		return
	}
	r.timings.wait = waited
	if fault == faultSlow {
		r.each *= 10
	}
	d.arm(j)
	if q.Stream {
		handedOver = true
		d.stream(ctx, j, q, r, t.SeqLen, fault)
		return
	}
	d.block(ctx, j, q, r, t.SeqLen, fault)
}

// receive waits for the request's KV. With KVNone there is nothing to wait for.
func (d *Decode) receive(j *job, timeout time.Duration) (*tilert.Transfer, wake) {
	if d.o.KV == KVNone {
		return &tilert.Transfer{RID: j.rid}, timeUp
	}
	return d.await(j, timeout)
}

// await returns the transfer of the job's rid, or why there is none. A cancellation is looked for at intervals only, as
// the real node does.
func (d *Decode) await(j *job, timeout time.Duration) (*tilert.Transfer, wake) {
	deadline := time.Now().Add(timeout)
	for look := j.began; ; {
		if t := d.recv.take(j.rid); t != nil {
			return t, timeUp
		}
		now := time.Now()
		for !look.After(now) {
			look = look.Add(d.o.CancelPoll)
			if j.cancelled() {
				return nil, signal
			}
		}
		if !now.Before(deadline) {
			return nil, timeUp
		}
		step := min(look.Sub(now), deadline.Sub(now))
		if d.life.wait(step, nil, d.recv.arrived) == shutDown {
			return nil, shutDown
		}
	}
}

// noKV answers a request whose KV did not come.
func noKV(ctx *fasthttp.RequestCtx, rid string, why wake) {
	switch why {
	case signal:
		sayJSON(ctx, 499, map[string]any{"error": "cancelled during KV transfer", "error_type": "request_cancelled", "rid": rid})
	case shutDown:
		drop(ctx)
	default:
		sayJSON(ctx, 504, map[string]any{"error": "kv_transfer_timeout", "rid": rid})
	}
}

// inject converts the KV: it looks at every byte, finds the script and turns it into the reply.
func (d *Decode) inject(q *decodeRequest, t *tilert.Transfer) (*reply, error) {
	began := time.Now()
	d.life.wait(jittered(d.o.Convert, d.o.Jitter), nil, nil)
	r := stubReply(q)
	if d.o.Engine == EngineText {
		tokens, err := d.script(q, t)
		if err != nil {
			d.failed.Add(1)
			d.tell("wrong KV for " + q.RID + ": " + err.Error())
			return nil, err
		}
		r = textReply(q, tokens, t.SeqLen, d.o.MaxSeqLen)
	}
	if d.o.TokensPerSecond > 0 {
		r.each = jittered(time.Duration(float64(time.Second)/d.o.TokensPerSecond), d.o.Jitter)
	}
	r.timings.convert = time.Since(began)
	return r, nil
}

// arm makes cancellations heard from now on, which they are not earlier with V5.
func (d *Decode) arm(j *job) {
	d.mu.Lock()
	defer d.mu.Unlock()
	j.armed = true
}

// stream answers with ndjson. The slot goes to the stream.
func (d *Decode) stream(ctx *fasthttp.RequestCtx, j *job, q *decodeRequest, r *reply, seqLen int, fault string) {
	ctx.SetContentType("application/x-ndjson")
	s := &lines{node: d, job: j, conn: ctx.Conn(), r: r, seq: seqLen, fault: fault}
	if q.violates() && d.o.Engine == EngineStub {
		s.ready = []byte("{\"error\": \"the first token violates the grammar\", \"error_type\": \"grammar_violation\"}\n")
		s.over = true
	}
	ctx.SetBodyStream(s, -1)
}

// block answers in one piece. Like the real node it does not notice that the client has left.
func (d *Decode) block(ctx *fasthttp.RequestCtx, j *job, q *decodeRequest, r *reply, seqLen int, fault string) {
	if q.violates() && d.o.Engine == EngineStub {
		sayJSON(ctx, 400, map[string]any{"error": "the first token violates the grammar", "error_type": "grammar_violation", "rid": q.RID})
		return
	}
	began, n, finish := time.Now(), r.n, r.finish
	last := r.at(max(r.n-1, 0))
	if fault == faultStall {
		last = stallTime
	}
	switch d.life.wait(last, nil, j.cancel) {
	case signal:
		n, finish = r.due(time.Since(began)), "cancelled"
	case shutDown:
		drop(ctx)
		return
	}
	r.timings.decode = time.Since(began)
	d.tokens.Add(uint64(n))
	switch fault {
	case faultError, faultStall:
		sayJSON(ctx, 500, map[string]any{"error": "engine exploded", "rid": q.RID})
	case faultGarbage:
		ctx.SetContentType("application/json")
		ctx.SetBodyString("this is no JSON")
	case faultTruncate:
		b, _ := json.Marshal(r.body(q.RID, n, seqLen, finish))
		cutShort(ctx, b)
	default:
		sayJSON(ctx, 200, r.body(q.RID, n, seqLen, finish))
	}
}

// misbehave carries out the faults that come before any work, and reports whether it did.
func (d *Decode) misbehave(ctx *fasthttp.RequestCtx, fault, rid string) bool {
	switch fault {
	case faultRefuse:
		sayJSON(ctx, 500, map[string]any{"error": "simulated failure", "rid": rid})
	case faultReset:
		resetConn(ctx)
	case faultHang:
		hang(d.life, ctx)
	default:
		return false
	}
	return true
}

// hang waits until the client leaves or the node is closed, and never answers.
func hang(l *life, ctx *fasthttp.RequestCtx) {
	for l.wait(time.Hour, ctx.Conn(), nil) == timeUp {
		continue
	}
	drop(ctx)
}

// drop ends the connection without an answer.
func drop(ctx *fasthttp.RequestCtx) {
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(net.Conn) {})
}

// resetConn ends the connection so that the client sees a reset.
func resetConn(ctx *fasthttp.RequestCtx) {
	if c, ok := ctx.Conn().(*conn); ok {
		c.reset()
	}
	drop(ctx)
}

// cutShort sends half of a body under the length of the whole.
func cutShort(ctx *fasthttp.RequestCtx, body []byte) {
	head := "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n"
	writeRaw(ctx, append([]byte(head), body[:len(body)/2]...))
}

// writeRaw puts bytes on the connection instead of an answer, and ends it.
func writeRaw(ctx *fasthttp.RequestCtx, b []byte) {
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(c net.Conn) { _, _ = c.Write(b) })
}
