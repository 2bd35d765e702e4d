package parser

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// calls writes tool calls as events: it numbers them, drops those that nobody wants and makes JSON of their pairs.
// The JSON has the separators of Python's json.dumps, as the clients of the incumbent router see them (spec 7.1).
type calls struct {
	tools  toolset
	single bool  // only the first call is wanted
	next   int   // index of the call that is open or comes next
	tool   *tool // what is known of the open call, or nil
	drop   bool  // the open call gives no events
	args   args
	buf    []byte // the fragment in work
}

// args is how far the arguments of the open call are.
type args uint8

const (
	argsNone  args = iota // nothing given out
	argsOpen              // the brace and a pair
	argsWhole             // all of it
)

func newCalls(o Options) calls {
	return calls{tools: toolset{raw: o.Tools}, single: !o.ParallelCalls}
}

// start opens a call. One without a name is dropped, and takes no index.
func (c *calls) start(dst []Event, name string) []Event {
	name = strings.ToValidUTF8(strings.TrimSpace(name), "\uFFFD")
	c.tool, c.args = nil, argsNone
	c.drop = name == "" || c.single && c.next > 0
	if c.drop {
		return dst
	}
	c.tool = c.tools.find(name)
	return append(dst, Event{Kind: CallStart, Index: c.next, Text: name})
}

// pair gives out one argument of the open call.
func (c *calls) pair(dst []Event, key string, value []byte, k kinds) []Event {
	if c.drop {
		return dst
	}
	open := ", "
	if c.args == argsNone {
		open = "{"
	}
	c.args = argsOpen
	c.buf = append(c.buf[:0], open...)
	c.buf = appendString(c.buf, []byte(strings.ToValidUTF8(key, "\uFFFD")))
	c.buf = append(c.buf, ": "...)
	if !utf8.Valid(value) {
		value = bytes.ToValidUTF8(value, []byte("\uFFFD"))
	}
	c.buf = appendValue(c.buf, value, k)
	return append(dst, Event{Kind: CallArgs, Index: c.next, Text: string(c.buf)})
}

// whole gives out all arguments of the open call as the JSON object that the model wrote.
func (c *calls) whole(dst []Event, object []byte) []Event {
	if c.drop {
		return dst
	}
	c.args = argsWhole
	return append(dst, Event{Kind: CallArgs, Index: c.next, Text: string(object)})
}

// end closes the open call.
func (c *calls) end(dst []Event) []Event {
	if c.drop {
		return dst
	}
	switch c.args {
	case argsNone:
		dst = append(dst, Event{Kind: CallArgs, Index: c.next, Text: "{}"})
	case argsOpen:
		dst = append(dst, Event{Kind: CallArgs, Index: c.next, Text: "}"})
	}
	dst = append(dst, Event{Kind: CallEnd, Index: c.next})
	c.next++
	return dst
}

// object returns the JSON object that text is, trimmed, or nil.
func object(text []byte) json.RawMessage {
	text = bytes.Trim(text, jsonSpace)
	if len(text) == 0 || text[0] != '{' || !utf8.Valid(text) || !plainJSON(text) {
		return nil
	}
	return text
}

// appendString appends s, which is valid UTF-8, as a JSON string. Only what JSON wants escaped is.
func appendString(dst, s []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0
	for i, b := range s {
		if b >= ' ' && b != '"' && b != '\\' {
			continue
		}
		dst = append(dst, s[from:i]...)
		from = i + 1
		switch b {
		case '"', '\\':
			dst = append(dst, '\\', b)
		case '\b':
			dst = append(dst, `\b`...)
		case '\f':
			dst = append(dst, `\f`...)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, `\u00`...)
			dst = append(dst, hex[b>>4], hex[b&15])
		}
	}
	return append(append(dst, s[from:]...), '"')
}
