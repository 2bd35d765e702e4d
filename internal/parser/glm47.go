package parser

import "strings"

const (
	toolOpen      = "<tool_call>"
	toolClose     = "</tool_call>"
	argKeyOpen    = "<arg_key>"
	argKeyClose   = "</arg_key>"
	argValueOpen  = "<arg_value>"
	argValueClose = "</arg_value>"
)

// glmState is where in a call the text is.
type glmState uint8

const (
	glmOutside glmState = iota // prose
	glmName                    // after <tool_call>
	glmKey                     // after <arg_key>
	glmGap                     // after </arg_key>
	glmValue                   // in a value
	glmClosing                 // after a </arg_value> that may be part of the value
	glmRest                    // strict: after a pair, up to the next key or the end of the call
	glmDone                    // after Finish
)

// The markers that mean something in each state; all other text is text of the state.
var (
	glmNameMarkers    = []string{argKeyOpen, toolClose, toolOpen}
	glmFusedMarkers   = append(glmNameMarkers, argKeyClose)
	glmKeyMarkers     = []string{argKeyClose, argKeyOpen, toolClose}
	glmGapMarkers     = []string{argValueOpen, argKeyOpen, argKeyClose, toolClose}
	glmValueMarkers   = []string{argValueClose}
	glmOpenMarkers    = []string{argValueClose, toolClose}
	glmClosingMarkers = []string{argKeyOpen, toolClose}
)

// glm47 is the grammar of GLM-4.7 and GLM-5 (spec 7.1) with the repairs of spec 7.3:
//
//   - A literal marker inside a value is text of the value. </arg_value> ends one only when <arg_key>, </tool_call> or
//     the end of the reply follows, whitespace aside; </tool_call> ends a call only outside a value.
//   - A value that never ends by that rule is read once more when the reply is over, by the strict rule: the first
//     </arg_value> ends the value and the first </tool_call> the call. So a forgotten </arg_value> does not cost the
//     client the rest of the reply.
//   - <arg_value> may be missing. As nothing then says that a value has begun, </tool_call> ends the call.
//   - <tool_call> in a name begins the call anew; <arg_key> in a key and </arg_key> after one are absorbed alike.
//   - With tools, a missing <arg_key> is made up for where the name is that of a tool, and argument markers after such
//     a name are dropped.
type glm47 struct {
	prose
	calls
	state  glmState
	name   []byte
	key    []byte
	val    []byte
	fusing bool // the name may hold a key: no </arg_key> has been read as part of it
	valEnd int  // in glmClosing: how much of val is the value if the marker is a real one
	bare   bool // the value began without <arg_value>
	strict bool // the reply is over and read once more
}

func newGLM47(o Options) Parser {
	return &glm47{prose: newProse(o.Thinking, toolOpen), calls: newCalls(o)}
}

func (p *glm47) Push(dst []Event, text string) []Event {
	for text = p.take(text); text != ""; {
		switch p.state {
		case glmOutside:
			var opened bool
			if dst, text, opened = p.read(dst, text); opened {
				p.openName()
			}
		case glmGap:
			dst, text = p.afterKey(dst, text)
		case glmClosing:
			dst, text = p.afterValue(dst, text)
		case glmDone:
			return dst
		default:
			dst, text = p.inside(dst, text)
		}
	}
	return dst
}

// inside reads the states in which text is collected up to a marker.
func (p *glm47) inside(dst []Event, text string) ([]Event, string) {
	n, found, partial := scan(text, p.active())
	switch p.state {
	case glmName:
		p.name = append(p.name, text[:n]...)
	case glmKey:
		p.key = append(p.key, text[:n]...)
	case glmValue:
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

func (p *glm47) active() []string {
	switch {
	case p.state == glmName && p.fusing:
		return glmFusedMarkers
	case p.state == glmName:
		return glmNameMarkers
	case p.state == glmKey:
		return glmKeyMarkers
	case p.state == glmRest:
		return glmClosingMarkers
	case p.bare || p.strict:
		return glmOpenMarkers
	}
	return glmValueMarkers
}

// mark goes on after a marker of glmName, glmKey, glmValue or glmRest.
func (p *glm47) mark(dst []Event, found string) []Event {
	switch {
	case found == toolOpen:
		p.openName()
		return dst
	case found == toolClose:
		if p.state == glmName {
			dst = p.begin(dst)
		}
		return p.finishCall(dst)
	case found == argKeyOpen:
		if p.state == glmName {
			dst = p.begin(dst)
		}
		p.state, p.key = glmKey, p.key[:0]
		return dst
	case found == argKeyClose && p.state == glmName:
		name, key, ok := p.tools.fused(string(p.name))
		if !ok {
			p.name, p.fusing = append(p.name, found...), false
			return dst
		}
		p.state, p.key = glmGap, append(p.key[:0], key...)
		return p.start(dst, name)
	case found == argKeyClose:
		p.state = glmGap
		return dst
	case p.strict: // argValueClose
		p.state = glmRest
		return p.give(dst)
	default:
		p.state, p.valEnd = glmClosing, len(p.val)
		p.val = append(p.val, found...)
		return dst
	}
}

// afterKey looks for the value's opening marker, which may be missing.
func (p *glm47) afterKey(dst []Event, text string) ([]Event, string) {
	text = text[spaces(text):]
	if text == "" {
		return dst, ""
	}
	found, partial := at(text, glmGapMarkers)
	switch {
	case partial:
		p.keep(text)
		return dst, ""
	case found == toolClose:
		dst = p.finishCall(dst)
	case found == argKeyOpen:
		p.state, p.key = glmKey, p.key[:0]
	case found != argKeyClose:
		p.state, p.val, p.bare = glmValue, p.val[:0], found == ""
	}
	return dst, text[len(found):]
}

// afterValue decides whether the </arg_value> just read was a marker: val holds it and the whitespace behind it.
func (p *glm47) afterValue(dst []Event, text string) ([]Event, string) {
	n := spaces(text)
	p.val = append(p.val, text[:n]...)
	if text = text[n:]; text == "" {
		return dst, ""
	}
	found, partial := at(text, glmClosingMarkers)
	switch {
	case partial:
		p.keep(text)
		return dst, ""
	case found == "":
		p.state = glmValue
		return dst, text
	}
	p.val = p.val[:p.valEnd]
	dst = p.give(dst)
	if found == toolClose {
		dst = p.finishCall(dst)
	} else {
		p.state, p.key = glmKey, p.key[:0]
	}
	return dst, text[len(found):]
}

func (p *glm47) openName() {
	p.state, p.name, p.fusing = glmName, p.name[:0], p.tools.any()
}

// begin starts the call whose name was read.
func (p *glm47) begin(dst []Event) []Event { return p.start(dst, p.tools.clean(string(p.name))) }

// give hands on the pair that is complete.
func (p *glm47) give(dst []Event) []Event {
	key := strings.TrimSpace(string(p.key))
	return p.pair(dst, key, p.val, p.tool.kind(key))
}

func (p *glm47) finishCall(dst []Event) []Event {
	p.state = glmOutside
	return p.calls.end(dst)
}

// Finish keeps the complete pairs of an open call and drops an unfinished key or value (spec 7.1, truncation).
func (p *glm47) Finish(dst []Event) []Event {
	if p.state == glmValue && !p.strict {
		dst = p.reread(dst)
	}
	switch p.state {
	case glmOutside:
		dst = p.release(dst)
	case glmName: // a held piece of a marker is no part of a name
		dst = p.finishCall(p.begin(dst))
	case glmClosing:
		p.val = p.val[:p.valEnd]
		dst = p.finishCall(p.give(dst))
	case glmKey, glmGap, glmValue, glmRest:
		dst = p.finishCall(dst)
	}
	p.held, p.state = nil, glmDone
	return dst
}

// reread reads an unfinished value by the strict rule. What follows it can hold no value that ends by the other rule,
// or the first one had ended there: so the rest of the reply is strict too, and this happens once.
func (p *glm47) reread(dst []Event) []Event {
	text := string(p.val) + p.take("")
	p.seen -= len(text)
	p.strict, p.val = true, p.val[:0]
	return p.Push(dst, text)
}
