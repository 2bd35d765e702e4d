package router

import (
	"time"

	"pd-router/internal/openai"
	"pd-router/internal/tilert"
)

const (
	// flushAt is when a batch is written although more lines are at hand.
	flushAt = 16<<10 - 64
	// idleWait is how long the end of a reply waits for a node to be idle, so that a client that comes again at
	// once finds its slot.
	idleWait = 250 * time.Millisecond
)

// collect assembles the whole reply of a blocking client.
func (l *life) collect() *failure {
	out := &flusher{}
	if f := l.pump(out); f != nil {
		if f.outcome == StreamFailed { // no byte of it has gone to the client
			f.outcome = DecodeFailed
		}
		return f
	}
	l.body = out.buf
	return nil
}

// pump turns the node's lines into the reply until its end. When it returns nil, the slot is free or settling and
// all is written; else the caller ends the lease. The first line is in l.line already.
func (l *life) pump(out *flusher) *failure {
	l.reply = l.newReply()
	for {
		switch l.line.Kind {
		case tilert.TokenLine:
			stopped, f := l.tokenLine(out)
			if f != nil {
				return f
			}
			if stopped {
				return l.stopped(out)
			}
		case tilert.DoneLine:
			return l.done(out)
		case tilert.ErrorLine:
			return l.errorLine()
		}
		if out.w != nil && (len(out.buf) >= flushAt || !l.decode.Ready()) {
			if out.flush() != nil {
				return l.writeFailed()
			}
		}
		if f := l.next(); f != nil {
			return f
		}
	}
}

// tokenLine feeds one line of ids. A first id that leaves no text is held for one line: when it was the end of
// the text, the node does not count it (spec 9.1).
func (l *life) tokenLine(out *flusher) (stopped bool, f *failure) {
	ids, rows := l.line.IDs, l.rows()
	if l.tokens == 0 {
		l.node.meter.Generated(len(ids) - 1) // the first is prefill's
	} else {
		l.node.meter.Generated(len(ids))
	}
	l.tokens += len(ids)
	l.node.sequence.Store(int64(l.prefilled.PromptTokens + l.tokens))
	if len(ids) == 1 && l.tokens == 1 && l.leavesNoText(ids[0]) { // a line may be empty
		l.held = append(l.held[:0], ids...)
		l.heldRows = rows.Clone()
		return false, nil
	}
	if stopped, f = l.release(out); stopped || f != nil {
		return stopped, f
	}
	return l.feed(out, ids, rows)
}

func (l *life) feed(out *flusher, ids []int, rows openai.Rows) (stopped bool, f *failure) {
	var e *openai.Error
	out.buf, stopped, e = l.reply.Tokens(out.buf, ids, rows)
	if e != nil {
		return false, &failure{outcome: DecodeRefused, err: e}
	}
	return stopped, nil
}

// release feeds the held first id.
func (l *life) release(out *flusher) (stopped bool, f *failure) {
	if len(l.held) == 0 {
		return false, nil
	}
	held := l.held
	l.held = nil
	return l.feed(out, held, l.heldRows)
}

func (l *life) leavesNoText(id int) bool { return l.r.tokenizer == nil || l.r.tokenizer.IsSpecial(id) }

// stopped ends a reply at a stop string: the node is cancelled, and the client learns the end when it is idle.
func (l *life) stopped(out *flusher) *failure {
	if out.w != nil && out.flush() != nil {
		return l.writeFailed()
	}
	l.endLease(idleWait)
	out.buf = l.reply.Close(out.buf, "stop", l.times.timing(nil))
	return l.last(out)
}

// done ends a reply at the node's last line, after a look at whether it is whole.
func (l *life) done(out *flusher) *failure {
	l.nodeEnded = true
	if f := l.complete(out); f != nil {
		return f
	}
	if l.lease == nil {
		return l.last(out) // a stop string in what was held
	}
	l.countNode()
	timing, finish := l.times.timing(l.line.Timing), l.line.FinishReason
	l.endLease(0)
	out.buf = l.reply.Close(out.buf, finish, timing)
	return l.last(out)
}

// complete compares the node's count with the ids that came. Two odd ends are whole (spec 9.1, 9.2): a first token that was
// the end of the text is sent and not counted, and a prompt at the window's end leaves room for the first token
// only, which is counted and not sent.
func (l *life) complete(out *flusher) *failure {
	switch {
	case !l.line.HasN || l.line.N == l.tokens:
		stopped, f := l.release(out)
		if stopped {
			l.endLease(idleWait)
			out.buf = l.reply.Close(out.buf, "stop", l.times.timing(nil))
		}
		return f
	case l.line.N == 0 && l.tokens == 1 && l.line.FinishReason == "stop":
		if len(l.held) == 0 {
			l.reply.Uncount()
		}
		l.held = nil
		return nil
	case l.line.N == 1 && l.tokens == 0:
		_, f := l.feed(out, []int{l.prefilled.FirstToken}, openai.Rows{})
		return f
	}
	return incomplete()
}

// last writes what is left.
func (l *life) last(out *flusher) *failure {
	l.times.end = time.Now()
	if out.w == nil {
		return nil
	}
	if out.last() != nil {
		return l.writeFailed()
	}
	return nil
}

// writeFailed is a client that takes no more bytes.
func (l *life) writeFailed() *failure {
	if f := ended(l.ctx); f != nil {
		return f
	}
	return outcomeOf(ErrClientGone)
}

// rows are the log-probs of the present line in the reply's terms; they are good until the next line.
func (l *life) rows() openai.Rows {
	if !l.req.LogProbs {
		return openai.Rows{}
	}
	rows := openai.Rows{}
	if l.line.HasLogProbs {
		rows.LogProbs = l.line.LogProbs
	}
	if l.line.HasTop {
		rows.Top = l.candidates(l.line.Top)
	}
	return rows
}

// candidates converts rows into space that is used again for each line.
func (l *life) candidates(top [][]tilert.Candidate) [][]openai.Candidate {
	out, flat := l.top[:0], l.flat[:0]
	for _, row := range top {
		start := len(flat)
		for _, c := range row {
			flat = append(flat, openai.Candidate{ID: c.ID, LogProb: c.LogProb})
		}
		out = append(out, flat[start:len(flat):len(flat)])
	}
	l.top, l.flat = out, flat
	return out
}
