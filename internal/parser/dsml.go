package parser

import (
	"encoding/json"
	"strings"
)

// dsmlMark is the special token in every marker of the grammar. Its bars are fullwidth (U+FF5C).
const dsmlMark = "｜DSML｜"

const (
	blockOpen   = "<" + dsmlMark + "function_calls>"
	blockClose  = "</" + dsmlMark + "function_calls>"
	invokeOpen  = "<" + dsmlMark + "invoke"
	invokeClose = "</" + dsmlMark + "invoke>"
	paramOpen   = "<" + dsmlMark + "parameter"
	paramClose  = "</" + dsmlMark + "parameter>"

	endOfSentence = "<｜end▁of▁sentence｜>"
)

// dsmlState is where in a block of calls the text is.
type dsmlState uint8

const (
	dsmlOutside   dsmlState = iota // prose
	dsmlBlock                      // in a block, between calls
	dsmlInvokeTag                  // in the attributes of an invoke
	dsmlBody                       // in an invoke, between parameters
	dsmlParamTag                   // in the attributes of a parameter
	dsmlValue                      // in a value
	dsmlDone                       // after Finish
)

var (
	dsmlBlockMarkers = []string{invokeOpen, blockClose}
	dsmlBodyMarkers  = []string{paramOpen, invokeClose, invokeOpen, blockClose, endOfSentence}
	dsmlValueMarkers = []string{paramClose, paramOpen, invokeClose, invokeOpen, blockClose}
)

// dsml is the grammar of DeepSeek-V3.2 (spec 7.4). Where a closing marker is missing, the next marker of a block closes
// all that is open inside it; the end of the reply drops an unfinished value instead, as it may be cut off. Text in a
// block that belongs to nothing is dropped.
type dsml struct {
	prose
	calls
	state  dsmlState
	tag    []byte // attributes of the tag in work
	quoted bool   // in an attribute's quotes
	key    string // of the parameter in work; a parameter without a name is dropped
	kind   kinds
	val    []byte // the value in work or, in dsmlBody, JSON that stands there instead of parameters
	bare   bool   // val is such JSON
	begun  bool   // the body has had a parameter or text, so no such JSON begins any more

	// A first parameter that may be all arguments in one, until it is known whether another one follows.
	wrapper     string
	wrapped     []byte
	wrapperKind kinds
}

func newDSML(o Options) Parser {
	return &dsml{prose: newProse(o.Thinking, blockOpen, endOfSentence), calls: newCalls(o)}
}

func (p *dsml) Push(dst []Event, text string) []Event {
	for text = p.take(text); text != ""; {
		switch p.state {
		case dsmlOutside:
			var opened bool
			if dst, text, opened = p.read(dst, text); opened {
				p.state = dsmlBlock
			}
		case dsmlInvokeTag, dsmlParamTag:
			dst, text = p.inTag(dst, text)
		case dsmlDone:
			return dst
		default:
			dst, text = p.inside(dst, text)
		}
	}
	return dst
}

// inside reads the states in which text goes on up to a marker.
func (p *dsml) inside(dst []Event, text string) ([]Event, string) {
	markers := dsmlValueMarkers
	switch p.state {
	case dsmlBlock:
		markers = dsmlBlockMarkers
	case dsmlBody:
		markers = dsmlBodyMarkers
	}
	n, found, partial := scan(text, markers)
	switch p.state {
	case dsmlBody:
		p.between(text[:n])
	case dsmlValue:
		p.val = append(p.val, text[:n]...)
	}
	if partial {
		p.keep(text[n:])
	}
	if found == "" {
		return dst, ""
	}
	return p.mark(dst, found), text[n+len(found):]
}

// between takes text that stands where parameters should: a JSON object is collected, all else dropped.
func (p *dsml) between(text string) {
	if !p.begun {
		text = text[spaces(text):]
		p.begun, p.bare = text != "", strings.HasPrefix(text, "{")
	}
	if p.bare {
		p.val = append(p.val, text...)
	}
}

// mark goes on after a marker of dsmlBlock, dsmlBody or dsmlValue.
func (p *dsml) mark(dst []Event, found string) []Event {
	if p.state == dsmlValue {
		dst = p.give(dst)
	}
	p.tag, p.quoted = p.tag[:0], false
	switch found {
	case paramOpen:
		p.state, p.val, p.bare, p.begun = dsmlParamTag, p.val[:0], false, true
		return dst
	case paramClose, endOfSentence:
		return dst
	}
	if p.state == dsmlBody {
		dst = p.finishCall(dst)
	}
	switch found {
	case invokeOpen:
		p.state = dsmlInvokeTag
	case blockClose:
		p.state = dsmlOutside
	}
	return dst
}

// inTag collects attributes up to the '>' outside quotes. A '<' ends the tag too: no name has one, and a forgotten
// quote would take the rest of the reply with it.
func (p *dsml) inTag(dst []Event, text string) ([]Event, string) {
	for i := range len(text) {
		switch b := text[i]; {
		case b == '"':
			p.quoted = !p.quoted
		case b == '>' && !p.quoted, b == '<':
			p.tag = append(p.tag, text[:i]...)
			if b == '>' {
				i++
			}
			return p.tagDone(dst), text[i:]
		}
	}
	p.tag = append(p.tag, text...)
	return dst, ""
}

func (p *dsml) tagDone(dst []Event) []Event {
	name, typed := attributes(string(p.tag))
	if p.state == dsmlInvokeTag {
		p.state, p.val, p.bare, p.begun, p.wrapper = dsmlBody, p.val[:0], false, false, ""
		return p.start(dst, name)
	}
	p.state, p.key = dsmlValue, name
	switch typed {
	case "true":
		p.kind = kindString
	case "false":
		p.kind = kindOther
	default:
		p.kind = p.tool.kind(name)
	}
	return dst
}

// attributes reads name="..." and string="..." from the inside of a tag, whatever else is there.
func attributes(tag string) (name, typed string) {
	for {
		attr, rest, ok := strings.Cut(tag, `="`)
		if !ok {
			return name, typed
		}
		value, rest, closed := strings.Cut(rest, `"`)
		if !closed {
			value = strings.TrimRight(value, "> \t\r\n")
		}
		switch attr[strings.LastIndexAny(attr, " \t\r\n")+1:] {
		case "name":
			name = value
		case "string":
			typed = value
		}
		tag = rest
	}
}

// give hands on the parameter in work and goes back to the body.
func (p *dsml) give(dst []Event) []Event {
	p.state = dsmlBody
	if p.key == "" {
		return dst
	}
	if (p.key == "arguments" || p.key == "input") && p.args == argsNone && p.wrapper == "" &&
		p.tool.declares() && !p.tool.has(p.key) {
		p.wrapper, p.wrapperKind = p.key, p.kind
		p.wrapped = append(p.wrapped[:0], p.val...)
		p.val = p.val[:0]
		return dst
	}
	dst = p.flush(dst)
	dst = p.pair(dst, p.key, p.val, p.kind)
	p.val = p.val[:0]
	return dst
}

// flush gives out the first parameter as it is: it was not the only one.
func (p *dsml) flush(dst []Event) []Event {
	if p.wrapper == "" {
		return dst
	}
	dst = p.pair(dst, p.wrapper, p.wrapped, p.wrapperKind)
	p.wrapper = ""
	return dst
}

func (p *dsml) finishCall(dst []Event) []Event {
	p.state = dsmlBlock
	switch {
	case p.bare:
		if o := object(p.val); o != nil {
			dst = p.whole(dst, o)
		}
	case p.wrapper != "":
		if o := object(p.wrapped); o != nil && p.allDeclared(o) {
			dst = p.whole(dst, o)
		} else {
			dst = p.flush(dst)
		}
	}
	return p.calls.end(dst)
}

// allDeclared says whether the tool's schema has all keys of a JSON object.
func (p *dsml) allDeclared(o json.RawMessage) bool {
	var members map[string]json.RawMessage
	if json.Unmarshal(o, &members) != nil {
		return false
	}
	for key := range members {
		if !p.tool.has(key) {
			return false
		}
	}
	return true
}

// Finish keeps the complete parameters of an open call and drops an unfinished one. A call whose name is unfinished
// is none.
func (p *dsml) Finish(dst []Event) []Event {
	switch p.state {
	case dsmlOutside:
		dst = p.release(dst)
	case dsmlBody, dsmlParamTag, dsmlValue:
		dst = p.finishCall(dst)
	}
	p.held, p.state = nil, dsmlDone
	return dst
}
