package router

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"pd-router/internal/metrics"
	"pd-router/internal/nodes"
	"pd-router/internal/openai"
	"pd-router/internal/staging"
	"pd-router/internal/tilert"
	"pd-router/internal/tracing"
)

// maxPrefillAnswer bounds the answer to one token; a log-prob row or an error text is far below it.
const maxPrefillAnswer = 16 << 20

// prefill runs the first leg. A connection that breaks before any byte of the answer gets one more try under a new
// id, unless KV of the first was under way already: it has the buffer. A second break says that the node is going away, and the
// request waits for it. An answer, even a bad one, is not tried again.
func (l *life) prefill() (f *failure) {
	step := l.span.Step("prefill")
	defer func() { step.End(f.problem()) }()
	l.slot(metrics.SlotPrefill)
	start := time.Now()
	defer func() { l.times.prefill += time.Since(start) }()
	for try := 1; ; try++ {
		answer, status, err := l.askPrefill(step)
		if f := ended(l.ctx); f != nil {
			return f
		}
		if err == nil {
			return l.prefillAnswered(status, answer)
		}
		f = l.prefillLost(err)
		var lost *nodes.Error
		if !errors.As(err, &lost) || lost.Phase != nodes.Send || nodes.IsTimeout(err) {
			return f
		}
		if try == 1 && l.takesAnother() {
			l.r.metrics.Upstream.Retried(retryPrefill)
			continue
		}
		l.r.prefill.Failed(err)
		return f.again(anywhere)
	}
}

// takesAnother gives up the KV of a try that broke, and says whether its receiver takes another: not while half of that KV is there.
func (l *life) takesAnother() bool {
	if l.stage != nil {
		l.stage.kv.Release()
		return l.stage.slot.State() == staging.Free
	}
	busy, err := l.node.ReceiverBusy(l.ctx)
	return !busy || err != nil
}

func (l *life) askPrefill(step tracing.Span) (answer []byte, status int, err error) {
	id := tilert.NewRequestID()
	host, port, err := l.expect(tilert.DeriveRID(id))
	if err != nil {
		return nil, 0, err
	}
	leg := l.r.engine.Prefill(l.req, id, host, port)
	resp, err := l.r.prefill.Do(l.ctx, &nodes.Call{
		Method: "POST", Path: leg.Path, Header: l.prefillHeader(leg.Header, step), Body: leg.Body,
		HeadTimeout: l.r.opts.PrefillTimeout, IdleTimeout: l.r.opts.StreamIdleTimeout,
		Once:  true, // a second try has an id of its own
		Fresh: l.attempts > 1,
	})
	if err != nil {
		return nil, 0, err
	}
	defer resp.Close()
	answer, err = resp.ReadAll(maxPrefillAnswer)
	return answer, resp.Status, err
}

// prefillHeader adds to header what goes on from the client: its credentials, and the trace that both are part of.
func (l *life) prefillHeader(header []byte, step tracing.Span) []byte {
	header = append(header, l.call.Forward...)
	if step.On() {
		return step.AppendHeader(header)
	}
	for _, h := range [...]struct{ name, value string }{{"traceparent: ", l.call.Traceparent}, {"tracestate: ", l.call.Tracestate}} {
		if h.value != "" {
			header = append(append(append(header, h.name...), h.value...), "\r\n"...)
		}
	}
	return header
}

func (l *life) prefillAnswered(status int, answer []byte) *failure {
	rid := l.answered()
	if status < 400 || status >= 500 {
		l.begun = rid
	}
	switch {
	case status == 200:
		p, err := l.r.engine.Prefilled(answer)
		if err != nil {
			return prefillFailed(err.Error()).because(err)
		}
		l.prefilled = p
		l.countPrompt()
		return nil
	case status >= 400 && status < 500:
		return prefillRefused(status, answer)
	}
	l.r.failedUpstream(legPrefill, classStatus)
	return prefillFailed("the prefill node failed").because(&statusError{legPrefill, status, answer})
}

// answered takes the rid of the last try from those that may yet begin to send; "" for a staged router, where the arena knows.
func (l *life) answered() (rid string) {
	if n := len(l.asked); n > 0 {
		rid, l.asked = l.asked[n-1], l.asked[:n-1]
	}
	return rid
}

// prefillRefused passes vLLM's own refusal on, unchanged where it is JSON.
func prefillRefused(status int, answer []byte) *failure {
	text := firstChars(answer)
	if strings.TrimSpace(text) == "" { // no refusal is without a message
		text = fmt.Sprintf("the prefill node refused the request with status %d and did not say why", status)
	}
	f := &failure{outcome: PrefillRefused, err: openai.Errorf(openai.TypeBadRequest, "%s", text)}
	f.err.Status = status
	if trimmed := bytes.TrimSpace(answer); len(trimmed) > 0 && json.Valid(trimmed) {
		f.raw = answer
	}
	return f
}

// prefillLost is a call without a usable answer. A node that cannot be reached is down: the request waits
// for it, without a slot.
func (l *life) prefillLost(err error) *failure {
	var lost *nodes.Error
	if !errors.As(err, &lost) {
		return outcomeOf(err)
	}
	l.r.failedUpstream(legPrefill, classOf(lost))
	switch {
	case nodes.IsTimeout(err) && lost.Phase != nodes.Connect:
		f := prefillFailed("the prefill node did not answer in time (--prefill-timeout)").because(err)
		f.err.Status = 504
		return f
	case lost.Phase == nodes.Connect:
		l.answered() // nothing was computed
		l.r.prefill.Failed(err)
		f := prefillFailed("the prefill node cannot be reached").because(err)
		f.retry = anywhere
		return f
	}
	return prefillFailed("the connection to the prefill node broke").because(err)
}

// classOf is the label of a broken call.
func classOf(lost *nodes.Error) string {
	switch {
	case lost.Phase == nodes.Connect:
		return classConnect
	case nodes.IsTimeout(lost):
		return classTimeout
	}
	return classLost
}

func prefillFailed(text string) *failure {
	return &failure{outcome: PrefillFailed, err: openai.Errorf(openai.TypePrefillFailed, "%s", text)}
}

// firstChars is the beginning of b, 500 characters long at most (spec 4.1).
func firstChars(b []byte) string {
	const limit = 500
	text := strings.ToValidUTF8(string(b[:min(len(b), limit*utf8.UTFMax)]), "\uFFFD")
	n := 0
	for i := range text {
		if n == limit {
			return text[:i]
		}
		n++
	}
	return text
}
