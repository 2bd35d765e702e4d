package openai

import "strconv"

// chunks writes the frames of one stream: `data: {…}` and an empty line (spec 6.2). All that is the same in every chunk of a
// reply is written once, when the reply begins; a token then costs a copy of it around its text.
type chunks struct {
	chat       bool
	head       []byte // up to and with `"choices":[{"index":0,`
	headChoice int    // length of head up to and with `"choices":[`
	content    []byte // head and all that stands before the text of content
	contentEnd string // what follows the text up to the place of logprobs
	alias      bool   // reasoning is written under its second name too
	usage      []byte // `,"usage":{"prompt_tokens":N,"completion_tokens":` when each chunk has usage, else nil
	prompt     int
	role       bool // the role has been given
}

// unfinished is the finish_reason of every chunk but the closing one.
const unfinished = `,"finish_reason":null`

func (c *chunks) init(req *Request, o *ReplyOptions) {
	c.chat, c.alias, c.prompt = req.Endpoint == Chat, o.ReasoningAlias, o.PromptTokens
	h := make([]byte, 0, 256)
	h = append(h, "data: "...)
	h = appendReplyHead(h, o, c.object())
	h = append(h, `,"choices":[`...)
	c.headChoice = len(h)
	h = append(h, `{"index":0,`...)
	c.head = h
	c.content = append(make([]byte, 0, len(h)+24), h...)
	if c.chat {
		c.content, c.contentEnd = append(c.content, `"delta":{"content":"`...), `"}`
	} else {
		c.content, c.contentEnd = append(c.content, `"text":"`...), `"`
	}
	if req.ContinuousUsage {
		c.usage = appendUsageHead(nil, o.PromptTokens)
	}
}

func (c *chunks) object() string {
	if c.chat {
		return "chat.completion.chunk"
	}
	return "text_completion"
}

// appendReplyHead appends what a whole reply and every chunk begin with, up to `model`.
func appendReplyHead(dst []byte, o *ReplyOptions, object string) []byte {
	dst = append(dst, `{"id":`...)
	dst = AppendString(dst, o.ID)
	dst = append(append(dst, `,"object":"`...), object...)
	dst = strconv.AppendInt(append(dst, `","created":`...), o.Created, 10)
	dst = append(dst, `,"model":`...)
	if len(o.Model) == 0 {
		return append(dst, "null"...)
	}
	return append(dst, o.Model...)
}

// begin appends the role chunk, once. It comes with the first chunk that says something, never earlier: clients take the
// first chunk for the first token.
func (c *chunks) begin(dst []byte, tokens int) []byte {
	if c.role || !c.chat {
		return dst
	}
	c.role = true
	dst = append(append(dst, c.head...), `"delta":{"role":"assistant"}`...)
	return c.end(dst, tokens)
}

// end closes a chunk after its delta. tokens is the number of completion tokens so far.
func (c *chunks) end(dst []byte, tokens int) []byte {
	dst = append(dst, unfinished...)
	if c.usage == nil {
		return append(dst, "}]}\n\n"...)
	}
	return append(c.appendUsage(append(dst, "}]"...), tokens), "}\n\n"...)
}

func (c *chunks) appendUsage(dst []byte, tokens int) []byte {
	if c.usage == nil {
		return dst
	}
	return append(appendUsageCounts(append(dst, c.usage...), c.prompt, tokens), '}')
}

// text appends a chunk of content. entries are log-prob entries, each with a comma before it, or nil.
func (c *chunks) text(dst, text, entries []byte, tokens int) []byte {
	dst = c.begin(dst, tokens)
	dst = append(dst, c.content...)
	dst = appendEscaped(dst, text)
	dst = append(dst, c.contentEnd...)
	switch {
	case len(entries) > 0:
		dst = appendLogprobs(append(dst, `,"logprobs":`...), entries)
	case !c.chat:
		dst = append(dst, `,"logprobs":null`...)
	}
	return c.end(dst, tokens)
}

// reasoning appends a chunk of reasoning.
func (c *chunks) reasoning(dst, text []byte, tokens int) []byte {
	dst = append(c.begin(dst, tokens), c.head...)
	dst = append(dst, `"delta":{"reasoning_content":"`...)
	dst = appendEscaped(dst, text)
	if c.alias {
		dst = append(dst, `","reasoning":"`...)
		dst = appendEscaped(dst, text)
	}
	return c.end(append(dst, `"}`...), tokens)
}

// call appends the chunk that begins a tool call.
func (c *chunks) call(dst []byte, index int, id, name string, tokens int) []byte {
	dst = c.callHead(dst, index, tokens)
	dst = append(append(dst, `,"id":"`...), id...)
	dst = append(dst, `","type":"function","function":{"name":`...)
	dst = AppendString(dst, name)
	return c.end(append(dst, `,"arguments":""}}]}`...), tokens)
}

// arguments appends a chunk with a fragment of a call's arguments.
func (c *chunks) arguments(dst []byte, index int, fragment []byte, tokens int) []byte {
	dst = append(c.callHead(dst, index, tokens), `,"function":{"arguments":"`...)
	dst = appendEscaped(dst, fragment)
	return c.end(append(dst, `"}}]}`...), tokens)
}

func (c *chunks) callHead(dst []byte, index, tokens int) []byte {
	dst = append(c.begin(dst, tokens), c.head...)
	dst = append(dst, `"delta":{"tool_calls":[{"index":`...)
	return strconv.AppendInt(dst, int64(index), 10)
}

// closing appends the chunk that says how the reply ended, after the role chunk if nothing came before.
func (c *chunks) closing(dst []byte, finish, stop string, tokens int) []byte {
	dst = append(c.begin(dst, tokens), c.head...)
	if c.chat {
		dst = append(dst, `"delta":{}`...)
	} else {
		dst = append(dst, `"text":"","logprobs":null`...)
	}
	dst = AppendString(append(dst, `,"finish_reason":`...), finish)
	dst = appendStringOrNull(append(dst, `,"stop_reason":`...), stop)
	return append(c.appendUsage(append(dst, "}]"...), tokens), "}\n\n"...)
}

// usageChunk appends the chunk that has usage and no choice.
func (c *chunks) usageChunk(dst []byte, o *ReplyOptions, tokens int) []byte {
	dst = append(append(dst, c.head[:c.headChoice]...), ']')
	return append(appendUsage(dst, o, tokens), "}\n\n"...)
}

// appendUsage appends `,"usage":{…}`.
func appendUsage(dst []byte, o *ReplyOptions, tokens int) []byte {
	dst = appendUsageCounts(appendUsageHead(dst, o.PromptTokens), o.PromptTokens, tokens)
	if o.PromptDetails != nil {
		dst = append(append(dst, `,"prompt_tokens_details":`...), o.PromptDetails...)
	}
	return append(dst, '}')
}

func appendUsageHead(dst []byte, prompt int) []byte {
	dst = append(dst, `,"usage":{"prompt_tokens":`...)
	return append(strconv.AppendInt(dst, int64(prompt), 10), `,"completion_tokens":`...)
}

func appendUsageCounts(dst []byte, prompt, tokens int) []byte {
	dst = append(strconv.AppendInt(dst, int64(tokens), 10), `,"total_tokens":`...)
	return strconv.AppendInt(dst, int64(prompt+tokens), 10)
}

// mustEscape marks the bytes that JSON does not let stand in a string. Text from a tokenizer is valid UTF-8, so that all
// other bytes stay as they are.
var mustEscape = func() (table [256]bool) {
	for c := range ' ' {
		table[c] = true
	}
	table['"'], table['\\'] = true, true
	return table
}()

// appendEscaped appends valid UTF-8 as the inside of a JSON string.
func appendEscaped(dst, text []byte) []byte {
	start := 0
	for i, c := range text {
		if !mustEscape[c] {
			continue
		}
		dst = append(dst, text[start:i]...)
		start = i + 1
		dst = appendEscape(dst, c)
	}
	return append(dst, text[start:]...)
}
