package openai

import (
	"fmt"
	"math/rand/v2"
	"unsafe"

	"pd-router/internal/parser"
	"pd-router/internal/token"
)

// ReplyOptions is what the prefill answer and the deployment fix for one reply.
type ReplyOptions struct {
	ID            string           // the prefill node's response id, prefix kept
	Model         []byte           // raw JSON from the prefill node; nil is written as null
	Created       int64            // Unix seconds, the same in every chunk
	PromptTokens  int              // usage of the prefill node
	PromptDetails []byte           // raw usage.prompt_tokens_details, or nil
	FirstLogProb  FirstLogProb     // used when the request wants log-probs
	Tokenizer     *token.Tokenizer // nil: the reply has ids only
	Parser        string           // name for parser.New; "" is none. Completions are never parsed
	// ReasoningAlias writes reasoning under the name `reasoning` too: some clients read that one only.
	ReasoningAlias bool
}

// Reply turns the ids of one decode node's answer into what the client reads (spec 6): chunks of an event stream while they
// come, or one JSON body at the end. Both say the same: the deltas of a stream, merged, are the message of the body.
//
// The way of a token is id, text, stop strings, parser, delta. Each step holds what it cannot decide yet and no more. A Reply
// belongs to one goroutine. Its end is one call of Close or Fail; later calls append nothing.
type Reply struct {
	req     *Request
	opts    ReplyOptions
	detok   *token.Detokenizer // nil without a tokenizer
	stops   *token.StopMatcher // nil without stop strings
	parser  parser.Parser      // nil for none
	lp      *logprobs          // nil when not wanted
	chunks  chunks             // of a stream
	message message            // of a whole body

	tokens  int    // up to and with the one that completed a stop string
	stopped bool   // a stop string was completed
	stop    string // which
	calls   int    // tool calls that were given out
	content bool   // with a parser: what was given out last was content
	ended   bool   // by Close or Fail

	text   []byte         // scratch: of one token
	shown  []byte         // scratch: what the stop strings let through
	events []parser.Event // scratch: what the parser made of it
}

// message is a body in the making. Texts are escaped already.
type message struct {
	ids       []int
	content   []byte
	reasoning []byte
	entries   []byte // log-prob entries, each with a comma before it
	calls     []call
}

// call is one tool call of a body.
type call struct {
	index     int
	id, name  string
	arguments []byte // escaped
}

// NewReply begins the reply to req. The parser of o must be one that parser.New knows.
func NewReply(req *Request, o ReplyOptions) *Reply {
	r := &Reply{req: req, opts: o}
	if req.Stream {
		r.chunks.init(req, &o)
	}
	if o.Tokenizer == nil {
		return r
	}
	skip := token.SkipSpecial
	if req.Endpoint == Chat && o.Parser != "" {
		p, err := parser.New(o.Parser, parser.Options{Thinking: req.EnableThinking, Tools: req.Tools, ParallelCalls: req.ParallelCalls})
		if err != nil {
			panic("BUG: " + err.Error())
		}
		if r.parser = p; p != nil {
			skip, r.content = o.Tokenizer.SkipAllBut(parser.Markers(o.Parser)), !req.EnableThinking
		}
	}
	r.detok = o.Tokenizer.NewDetokenizer(skip)
	r.stops = token.NewStopMatcher(req.Stops, req.IncludeStop)
	if req.LogProbs {
		r.lp = &logprobs{tok: o.Tokenizer, n: req.TopLogProbs, first: o.FirstLogProb}
		r.lp.align.markers = parser.Markers(o.Parser)
	}
	return r
}

// CompletionTokens is the number of tokens of the reply: all up to and with the one that completed a stop string (spec 6.1).
func (r *Reply) CompletionTokens() int { return r.tokens }

// Tokens takes the ids of one node line, the reply's first token included, and their rows where the request wants log-probs.
// For a stream it appends to dst one chunk per token that leaves something to see (a few where a token ends one part of the
// reply and begins another). stopped tells that a stop string was completed; the ids after it count for nothing. With an
// error, rows cannot serve (spec 6.7), and nothing was appended or counted.
func (r *Reply) Tokens(dst []byte, ids []int, rows Rows) (out []byte, stopped bool, err *Error) {
	if r.stopped || r.ended {
		return dst, r.stopped, nil
	}
	if r.lp != nil {
		if err := r.lp.check(ids, rows, r.tokens == 0); err != nil {
			return dst, false, err
		}
	}
	for i, id := range ids {
		r.tokens++
		if !r.req.Stream {
			r.message.ids = append(r.message.ids, id)
		}
		if r.detok == nil {
			continue
		}
		r.text = r.detok.Append(r.text[:0], id)
		if r.lp != nil {
			value, top := r.lp.row(rows, i, r.tokens == 1)
			r.lp.add(id, value, top, len(r.text), r.detok.Pending())
		}
		if len(r.text) == 0 {
			continue
		}
		if dst = r.read(dst, r.text); r.stopped {
			return dst, true, nil
		}
	}
	return dst, false, nil
}

// Uncount takes back the reply's first and only token, which was no part of it: the end of the text, which the node does not
// count (spec 9.1). Text that it has left in a stream cannot be taken back.
func (r *Reply) Uncount() {
	if r.tokens != 1 {
		panic(fmt.Sprintf("BUG: Uncount of %d tokens", r.tokens))
	}
	r.tokens = 0
	r.message = message{}
	if r.lp != nil {
		r.lp.take(len(r.lp.queue))
	}
}

// read passes text through the stop strings and gives out what they let through.
func (r *Reply) read(dst, text []byte) []byte {
	if r.stops == nil {
		return r.parse(dst, text)
	}
	r.shown, r.stop, r.stopped = r.stops.Append(r.shown[:0], text)
	if len(r.shown) == 0 && !r.stopped {
		return dst
	}
	return r.parse(dst, r.shown)
}

// parse passes text through the parser, if there is one.
func (r *Reply) parse(dst, text []byte) []byte {
	switch {
	case r.parser != nil:
		// The parser keeps no part of the text, and its events are used up before the text's memory is written again.
		r.events = r.parser.Push(r.events[:0], unsafe.String(unsafe.SliceData(text), len(text)))
		return r.give(dst, text, false)
	case r.lp != nil:
		shown, entries := r.lp.show(text, r.stopped)
		return r.giveContent(dst, shown, entries)
	}
	return r.giveContent(dst, text, nil)
}

// give gives out events that the parser made of text, or with final of all that it held.
func (r *Reply) give(dst, text []byte, final bool) []byte {
	var spans []span
	if r.lp != nil {
		spans = r.lp.align.find(r.events, text, final)
	}
	for i := range r.events {
		e := &r.events[i]
		text := unsafe.Slice(unsafe.StringData(e.Text), len(e.Text)) // only read
		switch e.Kind {
		case parser.Content:
			var entries []byte
			if r.lp != nil {
				entries = r.lp.of(spans[i])
			}
			dst = r.giveContent(dst, text, entries)
			r.content = true
			continue
		case parser.Reasoning:
			dst = r.giveReasoning(dst, text)
		default:
			dst = r.giveCall(dst, e, text)
		}
		r.content = false
	}
	if r.lp != nil {
		r.lp.drop(r.lp.align.base, !r.content)
	}
	return dst
}

// giveContent gives out content, if there is any.
func (r *Reply) giveContent(dst, text, entries []byte) []byte {
	if len(text) == 0 && len(entries) == 0 {
		return dst
	}
	if r.req.Stream {
		return r.chunks.text(dst, text, entries, r.tokens)
	}
	r.message.content = appendEscaped(r.message.content, text)
	r.message.entries = append(r.message.entries, entries...)
	return dst
}

func (r *Reply) giveReasoning(dst, text []byte) []byte {
	if r.req.Stream {
		return r.chunks.reasoning(dst, text, r.tokens)
	}
	r.message.reasoning = appendEscaped(r.message.reasoning, text)
	return dst
}

// giveCall gives out an event of a tool call. With tool_choice "none" the client wants no calls: they are left out.
func (r *Reply) giveCall(dst []byte, e *parser.Event, text []byte) []byte {
	if r.req.ToolChoiceNone {
		return dst
	}
	switch e.Kind {
	case parser.CallStart:
		r.calls++
		id := newCallID()
		if r.req.Stream {
			return r.chunks.call(dst, e.Index, id, e.Text, r.tokens)
		}
		name := string(text) // a copy: the event's text is not ours
		r.message.calls = append(r.message.calls, call{index: e.Index, id: id, name: name})
	case parser.CallArgs:
		if r.req.Stream {
			return r.chunks.arguments(dst, e.Index, text, r.tokens)
		}
		c := &r.message.calls[len(r.message.calls)-1]
		c.arguments = appendEscaped(c.arguments, text)
	}
	return dst
}

// newCallID is "call_" and 24 hex digits (spec 6.4).
func newCallID() string {
	b := append(make([]byte, 0, 29), "call_"...)
	for range 3 {
		for n, i := rand.Uint32(), 0; i < 8; n, i = n>>4, i+1 {
			b = append(b, hexDigits[n&15])
		}
	}
	return string(b)
}
