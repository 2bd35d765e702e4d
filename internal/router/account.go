package router

import (
	"fmt"
	"strconv"
	"time"

	"go.uber.org/zap"
)

// times are when the steps of a life ended, and how long the present phases took. Of several attempts the phases add
// up; the moments are those of the last one.
type times struct {
	start   time.Time // head of the request
	queue   time.Duration
	granted time.Time
	prefill time.Duration
	kvWait  time.Duration // KV on its way, up to the first line; also tries at a busy node
	first   time.Time     // first line of the node's stream
	end     time.Time
}

// decodeTime is how long the node streamed.
func (t *times) decodeTime() time.Duration {
	if t.first.IsZero() {
		return 0
	}
	if t.end.IsZero() {
		return time.Since(t.first)
	}
	return t.end.Sub(t.first)
}

// added is what is left of the whole time without the upload, the line and both nodes.
func (t *times) added(readBody time.Duration) time.Duration {
	return t.end.Sub(t.start) - readBody - t.queue - t.prefill - t.kvWait - t.decodeTime()
}

// header is the value of Server-Timing.
func (t *times) header() string {
	b := make([]byte, 0, 64)
	for _, p := range [...]struct {
		name string
		d    time.Duration
	}{{"queue", t.queue}, {"prefill", t.prefill}, {"kv", t.kvWait}} {
		if len(b) > 0 {
			b = append(b, ", "...)
		}
		b = append(b, p.name...)
		b = append(b, ";dur="...)
		b = appendMillis(b, p.d)
	}
	return string(b)
}

// timing is pd_timing_ms: prefill's time, then the members of the node's own object.
func (t *times) timing(node []byte) []byte {
	b := appendMillis(append(make([]byte, 0, 32+len(node)), `{"prefill":`...), t.prefill)
	if len(node) > 2 && node[0] == '{' && node[1] != '}' {
		b = append(b, ',')
		return append(b, node[1:]...)
	}
	return append(b, '}')
}

func appendMillis(b []byte, d time.Duration) []byte {
	return strconv.AppendFloat(b, float64(d.Microseconds()/100)/10, 'f', -1, 64)
}

// finish ends the life, once: the outcome is counted and logged. f is nil for a whole reply.
func (l *life) finish(f *failure) {
	if l.finished {
		return
	}
	l.finished = true
	l.comeBack()
	l.leaveArena()
	if l.times.end.IsZero() {
		l.times.end = time.Now()
	}
	if f == nil {
		f = &failure{outcome: OK}
	}
	l.count(f)
	l.endSpans(f)
	l.log(f)
	l.r.journal.finished(l, f)
}

// endSpans closes what is open of the request's trace.
func (l *life) endSpans(f *failure) {
	problem := ""
	if f.outcome != OK {
		problem = f.outcome.String()
	}
	l.step.End(problem)
	l.span.SetInt("http.response.status_code", l.status(f))
	l.span.Set("outcome", f.outcome.String())
	l.span.Set("rid", l.rid())
	l.span.End(problem)
}

// log writes the one line of a request. A client that left, or a request that was at fault, is no warning.
func (l *life) log(f *failure) {
	level := zap.InfoLevel
	switch f.outcome {
	case PrefillFailed, DecodeFailed, DecodeRefused, DecodeBusy, StreamFailed, QueueFull, QueueTimeout:
		level = zap.WarnLevel
	case Internal:
		level = zap.ErrorLevel
	}
	entry := l.r.log.Check(level, "request")
	if entry == nil {
		return
	}
	fields := append(make([]zap.Field, 0, 24),
		zap.String("outcome", f.outcome.String()), zap.Int("status", l.status(f)),
		zap.String("endpoint", l.call.Endpoint.String()), zap.Int("body_bytes", len(l.call.Body)),
		zap.Duration("total", l.times.end.Sub(l.times.start)), zap.Duration("read_body", l.call.ReadBody))
	if l.req != nil {
		fields = append(fields, zap.Bool("stream", l.req.Stream), zap.Duration("queue", l.times.queue), zap.Int("attempts", l.attempts))
	}
	if l.node != nil {
		fields = append(fields, zap.String("node", l.node.slot.Name()), zap.Duration("prefill", l.times.prefill), zap.Duration("kv_wait", l.times.kvWait))
	}
	if l.prefilled != nil {
		fields = append(fields, zap.String("rid", l.prefilled.RID), zap.Int("prompt_tokens", l.prefilled.PromptTokens))
	}
	if l.reply != nil {
		fields = append(fields, zap.Duration("decode", l.times.decodeTime()), zap.Int("completion_tokens", l.reply.CompletionTokens()))
	}
	if l.call.ClientID != "" {
		fields = append(fields, zap.String("client_request_id", l.call.ClientID))
	}
	if l.call.Correlation != "" {
		fields = append(fields, zap.String("correlation_id", l.call.Correlation))
	}
	if id := l.span.TraceID(); id != "" {
		fields = append(fields, zap.String("trace_id", id))
	}
	switch {
	case f.outcome == PrefillRefused: // vLLM's words may quote the prompt, and the client has them
		fields = append(fields, zap.String("error", "vLLM's own refusal"))
	case f.err != nil:
		fields = append(fields, zap.String("error_type", f.err.Type), zap.String("error", f.err.Message))
	}
	if f.cause != nil {
		fields = append(fields, zap.NamedError("cause", f.cause))
	}
	entry.Write(fields...)
}

// status is the HTTP status that the client saw, or would have seen.
func (l *life) status(f *failure) int {
	if f.err == nil || f.outcome == StreamFailed || l.unserved {
		return 200
	}
	return f.err.Status
}

// panicked logs a panic with its place; it is called where v was recovered.
func panicked(log *zap.Logger, v any) error {
	err := fmt.Errorf("panic: %v", v)
	log.Error("panic in a request", zap.Error(err), zap.Stack("stack"))
	return err
}
