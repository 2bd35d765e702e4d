package parser

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Kind says what the text of an Event is.
type Kind uint8

const (
	Content   Kind = iota // part of the answer
	Reasoning             // part of the thinking before it
	CallStart             // a tool call begins; Text is the function's name
	CallArgs              // the next piece of the call's arguments, which are JSON
	CallEnd               // the call is complete; Text is empty
)

// Event is one piece of a parsed reply.
type Event struct {
	Kind  Kind
	Index int // which tool call of the reply, from 0; 0 for Content and Reasoning
	Text  string
	// Pos says for Content and Reasoning where in the reply's text, in bytes, Text stands, so that the tokens behind it
	// can be told even when text was held. It is 0 for calls, whose text is made.
	Pos int
}

// Parser turns the text of one reply into events. It is not safe for concurrent use.
type Parser interface {
	// Push appends the events that text completes to dst. Where a reply is cut into texts makes no difference.
	Push(dst []Event, text string) []Event
	// Finish appends what the end of the reply completes: held text, the rest of an open call. Whatever is pushed
	// afterwards, and a second Finish, give nothing.
	Finish(dst []Event) []Event
}

// Options are what the request says about its reply.
type Options struct {
	// Thinking says that the reply begins as reasoning and that think markers mean something (see ThinkingDefault).
	Thinking bool
	// Tools is the request's "tools" array, or nil. With it the arguments get the types of the schemas (spec 7.2 T1),
	// without it they are strings (T0). What is not a valid array of functions counts as absent. The parser keeps it
	// and reads it when the first call comes; it must not change until then.
	Tools json.RawMessage
	// ParallelCalls false lets only the first call through; later ones are swallowed, the text between them is not.
	ParallelCalls bool
}

// grammar is one entry of the closed set of parsers.
type grammar struct {
	names    []string
	markers  []string
	thinking func(kwargs map[string]json.RawMessage) bool
	build    func(Options) Parser
}

// grammars are in the order of the flag help. "none" has no parser: the reply is content as it is.
var grammars = []grammar{
	{names: []string{"none"}},
	{
		names:   []string{"glm47"},
		markers: []string{thinkOpen, thinkClose, toolOpen, toolClose, argKeyOpen, argKeyClose, argValueOpen, argValueClose},
		thinking: func(kwargs map[string]json.RawMessage) bool { // spec 7.1: on, and `thinking` is not read
			v, ok := kwargs["enable_thinking"]
			return !ok || truthy(v)
		},
		build: newGLM47,
	},
	{
		names:   []string{"dsv32", "dsml"},
		markers: []string{thinkOpen, thinkClose, dsmlMark},
		thinking: func(kwargs map[string]json.RawMessage) bool { // spec 7.4: off, the opposite of GLM
			return truthy(kwargs["thinking"]) || truthy(kwargs["enable_thinking"])
		},
		build: newDSML,
	},
}

func find(name string) (grammar, bool) {
	i := slices.IndexFunc(grammars, func(g grammar) bool { return slices.Contains(g.names, name) })
	if i < 0 {
		return grammar{}, false
	}
	return grammars[i], true
}

// New returns a parser for one reply: "glm47", "dsv32" or its other name "dsml". "none" gives nil and no error.
func New(name string, o Options) (Parser, error) {
	g, ok := find(name)
	switch {
	case !ok:
		return nil, fmt.Errorf("parser %q: want one of %s", name, strings.Join(Names(), ", "))
	case g.build == nil:
		return nil, nil
	}
	return g.build(o), nil
}

// Names lists all that New accepts, for flag help and validation.
func Names() []string {
	var names []string
	for _, g := range grammars {
		names = append(names, g.names...)
	}
	return names
}

// Markers lists the texts of special tokens that the named parser must see. All other special tokens are to be left
// out of the text, as no grammar has a rule for them.
func Markers(name string) []string {
	g, _ := find(name)
	return slices.Clone(g.markers)
}

// ThinkingDefault says whether the reply begins as reasoning, from the request's chat_template_kwargs (nil when absent).
// Values count by Python's idea of truth, as the chat template does: "false" is true, null, 0 and "" are false.
func ThinkingDefault(name string, kwargs json.RawMessage) bool {
	g, _ := find(name)
	if g.thinking == nil {
		return false
	}
	var m map[string]json.RawMessage
	if json.Unmarshal(kwargs, &m) != nil {
		m = nil
	}
	return g.thinking(m)
}

// truthy is Python's bool() of a JSON value; nil is absent and false.
func truthy(raw json.RawMessage) bool {
	s := strings.TrimSpace(string(raw))
	switch {
	case s == "", s == "null", s == "false", s == `""`:
		return false
	case s[0] == '[' || s[0] == '{':
		return strings.TrimSpace(s[1:len(s)-1]) != ""
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		return f != 0
	}
	return true
}
