package openai

import (
	"strconv"

	"pd-router/internal/parser"
)

// Close appends the end of a good reply. For a stream: text that was held, the closing chunk, the usage chunk where it is
// wanted, [DONE]. For a blocking client: the whole JSON body. nodeFinish is the node's finish_reason, timing the raw JSON of
// pd_timing_ms or nil (it is no part of a stream).
func (r *Reply) Close(dst []byte, nodeFinish string, timing []byte) []byte {
	if r.ended {
		return dst
	}
	r.ended = true
	dst = r.flush(dst)
	finish := r.finish(nodeFinish)
	if !r.req.Stream {
		return r.appendBody(dst, finish, timing)
	}
	dst = r.chunks.closing(dst, finish, r.stop, r.tokens)
	if r.req.IncludeUsage {
		dst = r.chunks.usageChunk(dst, &r.opts, r.tokens)
	}
	return append(dst, "data: [DONE]\n\n"...)
}

// Fail appends the end of a stream that failed after its first byte: text that was held, and the error as an event that every
// known client notices. There is no closing chunk and no [DONE], and the connection must be aborted: a client that ignores
// error events must not take the reply for a whole one.
func (r *Reply) Fail(dst []byte, e *Error, rid string) []byte {
	if r.ended {
		return dst
	}
	r.ended = true
	dst = r.flushBroken(dst)
	dst = append(dst, "event: error\ndata: "...)
	return append(e.AppendJSON(dst, rid), "\n\n"...)
}

// finish is the finish_reason (spec 6.3).
func (r *Reply) finish(nodeFinish string) string {
	switch {
	case r.calls > 0:
		return "tool_calls"
	case r.stopped, nodeFinish == "", nodeFinish == "cancelled":
		return "stop"
	}
	return nodeFinish
}

// flush gives out what each step holds. After a stop string only the parser holds anything.
func (r *Reply) flush(dst []byte) []byte {
	if r.detok == nil {
		return dst
	}
	if !r.stopped {
		// An unfinished character at the end is text too, and may even complete a stop string.
		if r.text = r.detok.Flush(r.text[:0]); len(r.text) > 0 {
			r.settle(len(r.text))
			dst = r.read(dst, r.text)
		}
	}
	if !r.stopped {
		if r.shown = r.stops.Flush(r.shown[:0]); len(r.shown) > 0 {
			dst = r.parse(dst, r.shown)
		}
	}
	if r.parser != nil {
		r.events = r.parser.Finish(r.events[:0])
		dst = r.give(dst, nil, true)
	}
	return r.flushEntries(dst)
}

// settle tells the log-probs that n bytes of text came out without a token.
func (r *Reply) settle(n int) {
	if r.lp != nil {
		r.lp.raw += n
		r.lp.settle()
	}
}

// flushEntries gives out the entries that are left, where there is no text for them on a chunk without content. Where a parser
// was at work, these are the ones of tokens without text right behind content.
func (r *Reply) flushEntries(dst []byte) []byte {
	if r.lp == nil {
		return dst
	}
	if r.parser != nil {
		return r.giveContent(dst, nil, r.lp.trailing())
	}
	text, entries := r.lp.show(nil, true)
	if len(text) == 0 {
		entries = r.lp.take(len(r.lp.queue))
	}
	return r.giveContent(dst, text, entries)
}

// flushBroken gives out held text of a reply that broke off: no unfinished character, which is no text, and no end of a tool
// call, which would make it look whole.
func (r *Reply) flushBroken(dst []byte) []byte {
	if r.detok == nil || r.stopped {
		return dst
	}
	if r.shown = r.stops.Flush(r.shown[:0]); len(r.shown) > 0 {
		dst = r.parse(dst, r.shown)
	}
	if r.parser != nil {
		r.events = r.parser.Finish(r.events[:0])
		n := 0
		for _, e := range r.events {
			if e.Kind == parser.Content || e.Kind == parser.Reasoning {
				r.events[n] = e
				n++
			}
		}
		r.events = r.events[:n]
		return r.give(dst, nil, true)
	}
	if r.lp != nil {
		text, entries := r.lp.show(nil, true)
		return r.giveContent(dst, text, entries)
	}
	return dst
}

// appendBody appends the body of a blocking reply (spec 6.1).
func (r *Reply) appendBody(dst []byte, finish string, timing []byte) []byte {
	m, object := &r.message, "chat.completion"
	if r.req.Endpoint != Chat {
		object = "text_completion"
	}
	dst = appendReplyHead(dst, &r.opts, object)
	dst = AppendString(append(dst, `,"choices":[{"index":0,"finish_reason":`...), finish)
	dst = append(dst, `,"logprobs":`...)
	if r.lp == nil {
		dst = append(dst, "null"...)
	} else {
		dst = appendLogprobs(dst, m.entries)
	}
	dst = appendStringOrNull(append(dst, `,"stop_reason":`...), r.stop)
	if r.req.Endpoint == Chat {
		dst = append(dst, `,"message":{"role":"assistant","content":`...)
		dst = r.appendContent(dst)
		dst = r.appendRest(dst)
		dst = append(dst, '}')
	} else {
		dst = r.appendContent(append(dst, `,"text":`...))
	}
	if r.req.Endpoint != Chat || r.detok == nil {
		dst = appendInts(append(dst, `,"token_ids":`...), m.ids)
	}
	dst = appendUsage(append(dst, "}]"...), &r.opts, r.tokens)
	if timing != nil {
		dst = append(append(dst, `,"pd_timing_ms":`...), timing...)
	}
	return append(dst, '}')
}

// appendContent appends the content, which may be empty; without a tokenizer there is none.
func (r *Reply) appendContent(dst []byte) []byte {
	if r.detok == nil {
		return append(dst, "null"...)
	}
	return append(append(append(dst, '"'), r.message.content...), '"')
}

// appendRest appends the members of a message that are there only when they say something.
func (r *Reply) appendRest(dst []byte) []byte {
	m := &r.message
	if len(m.reasoning) > 0 {
		dst = append(append(append(dst, `,"reasoning_content":"`...), m.reasoning...), '"')
		if r.opts.ReasoningAlias {
			dst = append(append(append(dst, `,"reasoning":"`...), m.reasoning...), '"')
		}
	}
	if len(m.calls) == 0 {
		return dst
	}
	dst = append(dst, `,"tool_calls":`...)
	for i := range m.calls {
		c, open := &m.calls[i], byte(',')
		if i == 0 {
			open = '['
		}
		dst = append(append(dst, open), `{"index":`...)
		dst = strconv.AppendInt(dst, int64(c.index), 10)
		dst = append(append(dst, `,"id":"`...), c.id...)
		dst = AppendString(append(dst, `","type":"function","function":{"name":`...), c.name)
		dst = append(append(append(dst, `,"arguments":"`...), c.arguments...), `"}}`...)
	}
	return append(dst, ']')
}

func appendInts(dst []byte, ints []int) []byte {
	dst = append(dst, '[')
	for i, n := range ints {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(n), 10)
	}
	return append(dst, ']')
}
