package router

import (
	"io"
	"time"

	"pd-router/internal/openai"
)

// Reply is what the client gets: a whole body, or a stream that is pumped by WriteTo.
type Reply struct {
	Status      int
	ContentType string
	RetryAfter  int           // seconds, 0: no header
	RID         string        // of the attempt that answered, "" before there was one
	Node        string        // that answered
	Wait        time.Duration // for a slot
	Timing      string        // value of a Server-Timing header
	Body        []byte        // nil for a stream

	life *life // of a stream that is not over
}

const (
	typeJSON = "application/json"
	typeSSE  = "text/event-stream; charset=utf-8"
)

// refuse ends the life with an error and says so to the client.
func (l *life) refuse(f *failure) *Reply {
	p := &Reply{Status: f.err.Status, ContentType: typeJSON, RetryAfter: f.err.RetryAfter, RID: l.rid(), Body: f.raw}
	if p.Body == nil {
		p.Body = f.err.JSON(p.RID)
	}
	l.finish(f)
	return p
}

// whole ends the life with the body that collect has assembled.
func (l *life) whole() *Reply {
	p := &Reply{Status: 200, ContentType: typeJSON, RID: l.rid(), Node: l.nodeName, Wait: l.times.queue, Timing: l.times.header(), Body: l.body}
	l.finish(nil)
	return p
}

// streamed hands the rest of the life to whoever writes to the client.
func (l *life) streamed() *Reply {
	return &Reply{Status: 200, ContentType: typeSSE, RID: l.rid(), Node: l.nodeName, Wait: l.times.queue, Timing: l.times.header(), life: l}
}

func (l *life) rid() string {
	if l.prefilled == nil {
		return ""
	}
	return l.prefilled.RID
}

// Stream says whether the reply is to be had from WriteTo.
func (p *Reply) Stream() bool { return p.life != nil }

// Close ends a stream that is not to be written; the node is cancelled. After WriteTo it does nothing.
func (p *Reply) Close() {
	if p.life != nil {
		p.life.abandon(outcomeOf(ErrClientGone))
		p.life = nil
	}
}

// WriteTo pumps the tokens to w. One Write is one flush: it holds all that the node has sent so far. An error means that
// the connection must be aborted, so that no client takes what it has for the whole; if w still takes bytes, the
// client has been told by an error event. Before the last Write of a reply that is whole w is told, if it
// has a method NextIsLast.
func (p *Reply) WriteTo(w io.Writer) (n int64, err error) {
	l := p.life
	if l == nil {
		return 0, nil
	}
	p.life = nil
	out := &flusher{w: w, buf: l.r.buffers.get()}
	defer func() { l.r.buffers.put(out.buf) }()
	defer func() {
		if v := recover(); v != nil {
			l.abandon(&failure{outcome: Internal, err: openai.Errorf(openai.TypeInternalError, "internal error"), cause: panicked(l.r.log, v)})
			err = io.ErrUnexpectedEOF
		}
	}()
	f := l.run(out)
	if f == nil {
		l.finish(nil)
		return out.n, nil
	}
	l.endLease(0)
	if f.outcome != ClientGone {
		out.buf = l.fail(out.buf, f)
		_ = out.flush()
	}
	if l.reply != nil {
		f = brokenOff(f)
	}
	l.finish(f)
	return out.n, io.ErrUnexpectedEOF
}

// run pumps the stream, after what is to be done first for a client that is told its place.
func (l *life) run(out *flusher) *failure {
	if l.unserved {
		if f := l.serveTelling(out); f != nil {
			return f
		}
	}
	return l.pump(out)
}

// fail appends the error event of a stream that ends with f.
func (l *life) fail(dst []byte, f *failure) []byte {
	if l.reply != nil {
		return l.reply.Fail(dst, f.err, l.rid())
	}
	dst = append(dst, "event: error\ndata: "...)
	return append(f.err.AppendJSON(dst, l.rid()), "\n\n"...)
}

// brokenOff is f as the outcome of a stream that had begun.
func brokenOff(f *failure) *failure {
	g := *f
	if g.outcome != ClientGone && g.outcome != Draining && g.outcome != Internal {
		g.outcome = StreamFailed
	}
	return &g
}

// abandon ends a life in the middle of its stream.
func (l *life) abandon(f *failure) {
	l.endLease(0)
	l.finish(f)
}

// flusher gathers what is to be written.
type flusher struct {
	w   io.Writer
	buf []byte
	n   int64
}

func (f *flusher) flush() error {
	if len(f.buf) == 0 {
		return nil
	}
	n, err := f.w.Write(f.buf)
	f.n += int64(n)
	f.buf = f.buf[:0]
	return err
}

// last is the flush after which no more comes, see Reply.WriteTo.
func (f *flusher) last() error {
	if w, ok := f.w.(interface{ NextIsLast() }); ok && len(f.buf) > 0 {
		w.NextIsLast()
	}
	return f.flush()
}

// newReply begins the reply, with the one time stamp that all of its chunks have.
func (l *life) newReply() *openai.Reply {
	p := l.prefilled
	return openai.NewReply(l.req, openai.ReplyOptions{
		ID: p.ID, Model: p.Model, Created: time.Now().Unix(),
		PromptTokens: p.PromptTokens, PromptDetails: p.PromptDetails, FirstLogProb: p.FirstLogProb,
		Tokenizer: l.r.tokenizer, Parser: l.r.opts.Parser, ReasoningAlias: l.r.opts.ReasoningAlias,
	})
}
