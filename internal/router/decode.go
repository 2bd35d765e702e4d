package router

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"pd-router/internal/metrics"
	"pd-router/internal/nodes"
	"pd-router/internal/openai"
	"pd-router/internal/tilert"
)

// maxRefusal bounds the body of a node's refusal.
const maxRefusal = 1 << 20

// dispatch runs the second leg up to the first line of the token stream: only then is it certain what status the
// client gets.
func (l *life) dispatch() (f *failure) {
	step := l.span.Step("kv")
	defer func() { step.End(f.problem()) }()
	l.slot(metrics.SlotKVWait)
	start, waited := time.Now(), l.waited
	defer func() {
		end := time.Now()
		if f == nil {
			end = l.times.first
		}
		l.times.kvWait += end.Sub(start) - (l.waited - waited) // what busy waits is waiting
		l.times.queue = l.waited
	}()
	if f = l.fits(); f != nil {
		return f
	}
	defer l.leaveLine()
	for try := 1; ; try++ {
		busy, f := l.send()
		if f != nil {
			return f
		}
		if !busy {
			status, answer, f := l.postDecode()
			switch {
			case f != nil:
				return f
			case status == 200:
				return l.firstLine()
			case status != 429:
				return l.nodeRefused(status, answer)
			}
		}
		if f := l.busy(try); f != nil {
			return f
		}
	}
}

// fits refuses a prompt that does not fit the node's window: its sender has not written the KV, and a decode would wait
// for it in vain. A node with a longer window may take it.
func (l *life) fits() *failure {
	hello := l.node.Hello()
	if hello == nil || hello.MaxSeqLen <= 0 || l.prefilled.PromptTokens <= hello.MaxSeqLen {
		return nil
	}
	_, longest := l.r.helloOfAll()
	f := windowPassed(hello.MaxSeqLen, l.prefilled.PromptTokens)
	if l.prefilled.PromptTokens <= longest {
		f.retry = elsewhere
	}
	return f
}

func windowPassed(window, prompt int) *failure {
	e := openai.Errorf(openai.TypeContextLengthExceeded, "This model's maximum context length is %d tokens, but the prompt has %d: shorten it", window, prompt)
	return &failure{outcome: Invalid, err: e}
}

// maxTokens is the completion budget for the node, which clamps it to its window itself.
func (l *life) maxTokens() int {
	switch {
	case l.req.MaxTokens > 0:
		return l.req.MaxTokens
	case l.r.opts.DefaultMaxTokens > 0:
		return l.r.opts.DefaultMaxTokens
	}
	if w := l.r.window(l.node); w > 0 {
		return max(1, w-l.prefilled.PromptTokens)
	}
	return 256
}

// postDecode sends the decode request. With status 200 the stream is open in l.decode; any other answer is read.
func (l *life) postDecode() (status int, answer []byte, f *failure) {
	leg := l.r.engine.Decode(l.req, l.prefilled, l.maxTokens())
	ctx := l.ctx
	if l.stage == nil { // else all of the KV is there
		var stop func()
		ctx, stop = l.from.outlives(ctx, l.r.kvGrace)
		defer stop()
	}
	resp, err := l.node.Do(ctx, &nodes.Call{
		Method: "POST", Path: leg.Path, Body: leg.Body,
		HeadTimeout: l.r.opts.KVTimeout, IdleTimeout: l.r.opts.StreamIdleTimeout,
		Once:  true, // who has taken the rid before breaking off has let go of its KV: only a fresh pair can follow
		Fresh: l.attempts > 1,
	})
	if err != nil {
		return 0, nil, l.nodeLost(err)
	}
	l.dispatched = true
	if resp.Status == 200 {
		l.decode = resp
		return 200, nil, nil
	}
	defer resp.Close()
	answer, err = resp.ReadAll(maxRefusal)
	if err != nil {
		return 0, nil, l.nodeLost(err)
	}
	l.nodeEnded = true
	return resp.Status, answer, nil
}

// nodeLost is a decode call that broke. Nothing has reached the client: another pair may serve it.
func (l *life) nodeLost(err error) *failure {
	if f := ended(l.ctx); f != nil {
		l.dispatched = true // the node may have it
		return f
	}
	if errors.Is(err, errPrefillGone) {
		l.dispatched = true
		l.r.failedUpstream(legPrefill, classKV)
		return prefillFailed("the prefill node went away before its KV had come to the decode node").again(anywhere).because(err)
	}
	var lost *nodes.Error
	if !errors.As(err, &lost) {
		return outcomeOf(err)
	}
	l.r.failedUpstream(legDecode, classOf(lost))
	if lost.Phase == nodes.Connect {
		l.node.Failed(err)
		return decodeFailed(openai.TypeDecodeFailed, "the decode node cannot be reached").again(anywhere).because(err)
	}
	l.dispatched = true
	if nodes.IsTimeout(err) {
		return decodeFailed(openai.TypeKVTransferTimeout, "the decode node did not answer in time (--kv-timeout)").because(err)
	}
	return decodeFailed(openai.TypeDecodeFailed, "decode call failed: the connection to the decode node broke").again(anywhere).because(err)
}

// nodeRefused is an answer other than 200 and 429.
func (l *life) nodeRefused(status int, answer []byte) *failure {
	e := l.r.engine.DecodeRefusal(status, answer)
	f := &failure{outcome: DecodeRefused, err: e, cause: &statusError{legDecode, status, answer}}
	l.r.failedUpstream(legDecode, classStatus)
	switch e.Type {
	case openai.TypeGrammarUnsupported:
		l.node.refusesGrammars()
	case openai.TypeDecodeFailed:
		f.outcome, f.retry = DecodeFailed, elsewhere
		l.strike = true
	case openai.TypeKVTransferTimeout:
		f.outcome = DecodeFailed
		if l.stage != nil { // the KV is still in the arena
			f.retry = anywhere
		}
	}
	return f
}

// firstLine reads what the stream begins with. Lines without tokens do not begin it.
func (l *life) firstLine() *failure {
	for begun := false; !begun; begun = l.line.Kind != tilert.TokenLine || len(l.line.IDs) > 0 {
		if f := l.next(); f != nil {
			if f.outcome != ClientGone && f.outcome != Draining {
				f.outcome = DecodeFailed
			}
			return f
		}
	}
	l.times.first = time.Now()
	switch {
	case l.line.Kind == tilert.ErrorLine:
		return l.errorLine()
	case l.line.Kind == tilert.DoneLine && l.line.HasN && l.line.N > 1: // while the status can still tell
		l.nodeEnded = true
		f := incomplete()
		f.outcome = DecodeFailed
		return f
	}
	l.node.Succeeded()
	l.leaveArena()
	l.slot(metrics.SlotDecode)
	l.step = l.span.Step("decode")
	if l.r.opts.PrefillAhead && l.node.takesNextKV() {
		l.lease.OpenAhead()
	}
	return nil
}

// takesNextKV says whether the node's receive buffer is free for the next request once the running one has sent its first
// token (spec 2.3): so it is with protocol 2; on older nodes a transfer may still be read late.
func (be *backend) takesNextKV() bool {
	h := be.Hello()
	return h != nil && h.Protocol >= tilert.Protocol2
}

// next reads and parses one line of the stream into l.line. Empty lines say nothing, as between any lines of JSON.
func (l *life) next() *failure {
	raw, err := l.decode.Line()
	for err == nil && len(bytes.Trim(raw, "\r\n")) == 0 && l.ctx.Err() == nil {
		raw, err = l.decode.Line()
	}
	if err == io.EOF {
		l.nodeEnded = false
		l.strike = true
		l.r.failedUpstream(legDecode, classTruncated)
		return streamFailed(openai.TypeDecodeTruncated, "the decode node's stream ended without its last line").again(anywhere).
			because(errors.New("stream ended early"))
	}
	if f := ended(l.ctx); f != nil {
		return f
	}
	if err != nil {
		l.strike = true
		l.r.failedUpstream(legDecode, classLost)
		if nodes.IsTimeout(err) {
			return streamFailed(openai.TypeDecodeStreamFailed, "decode stalled: no token within --stream-idle-timeout").because(err)
		}
		return streamFailed(openai.TypeDecodeTruncated, "the connection to the decode node broke").again(anywhere).because(err)
	}
	if err := l.line.Parse(raw); err != nil {
		l.strike = true
		l.r.failedUpstream(legDecode, classLine)
		return streamFailed(openai.TypeDecodeStreamFailed, "stream failed: the decode node sent a line that cannot be read").
			because(fmt.Errorf("%w in %.200q", err, raw))
	}
	return nil
}

// errorLine is a failure that the node reports itself.
func (l *life) errorLine() *failure {
	l.nodeEnded = true
	e := l.r.engine.StreamError(&l.line)
	f := &failure{outcome: DecodeRefused, err: e, cause: errors.New(l.line.Error)}
	if e.Type == openai.TypeDecodeFailed {
		f.outcome, f.retry, l.strike = DecodeFailed, elsewhere, true
	}
	l.r.failedUpstream(legDecode, classErrorLine)
	return f
}

// incomplete is a stream whose last line counts other tokens than came.
func incomplete() *failure {
	return streamFailed(openai.TypeDecodeTruncated, "the decode node's stream is incomplete")
}

func decodeFailed(kind, text string) *failure {
	return &failure{outcome: DecodeFailed, err: openai.Errorf(kind, "%s", text)}
}

func streamFailed(kind, text string) *failure {
	return &failure{outcome: StreamFailed, err: openai.Errorf(kind, "%s", text)}
}

func (f *failure) again(r retry) *failure {
	f.retry = r
	return f
}

// statusError is a node's answer for the log.
type statusError struct {
	leg    string
	status int
	answer []byte
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s answered %d: %.300q", e.leg, e.status, e.answer)
}
