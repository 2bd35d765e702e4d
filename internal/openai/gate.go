package openai

import (
	"encoding/json"
	"math/bits"
)

// MaxTopLogProbs is the largest top_logprobs that nodes serve.
const MaxTopLogProbs = 5

// Gate decides, before any work, whether a request can be served as it is meant, and resolves what the router itself must know of
// it. Its fields are fixed before the first Check.
type Gate struct {
	// Defaults are the deployment's sampling defaults, from ResolveDefaults. The zero value is Neutral.
	Defaults Sampling
	// HasTokenizer says that the router can turn tokens into text (--model-path). Without, replies carry ids only, and streams, stop
	// strings and log-probs are refused.
	HasTokenizer bool
	// HasParser says that an output parser is on (--parser other than none). Log-probs then cannot be had together with stop.
	HasParser bool
	// ForceIncludeUsage ends each stream in a usage chunk, asked for or not (--force-include-usage).
	ForceIncludeUsage bool
	// Thinking tells from chat_template_kwargs (nil without) whether the model's chat template lets it think: the rule belongs to
	// the model, so to its parser. Nil: it does, unless enable_thinking is there and falsy.
	Thinking func(kwargs json.RawMessage) bool
}

// Check gives the request behind a body, or the first refusal of this order (spec 4.5; what the nodes must be able to do is only
// recorded, see Request.Refusal):
//
//  1. grammar (400 invalid_grammar)
//  2. max_completion_tokens, max_tokens (400 invalid_parameter)
//  3. logprobs, top_logprobs (400 invalid_logprobs), 4. without a tokenizer (501 capability_unavailable)
//  5. stop, include_stop_str_in_output (400 invalid_parameter), without a tokenizer 501
//  6. chat_template_kwargs on chat (400 invalid_parameter)
//  7. logprobs with stop and a parser (501 capability_unavailable)
//  8. each further field by itself, in the order of Fields: 400 for what is no such value, 501 for what nodes cannot honour
func (g *Gate) Check(ep Endpoint, v View) (*Request, *Error) {
	c := &checking{gate: g, Request: Request{Endpoint: ep, View: v, ParallelCalls: true}}
	c.index()
	for _, step := range [...]func(*checking) *Error{
		(*checking).grammar, (*checking).lengths, (*checking).logprobs, (*checking).stops, (*checking).template,
		(*checking).eachField,
	} {
		if err := step(c); err != nil {
			return nil, err
		}
	}
	c.resolve()
	return &c.Request, nil
}

// checking is one run of the gate: the request as far as it is known, and where its fields are.
type checking struct {
	Request
	gate   *Gate
	sent   uint64            // fields that are there and not null
	at     [numFields]uint16 // 1 + index of the last member with that name; 0: none
	greedy bool              // the request's own temperature is as good as 0
	buf    [160]byte         // room for DecodeSampling
}

// index finds the fields that the gate knows, in one pass over the members.
func (c *checking) index() {
	v := &c.View
	for i := range v.members {
		m := &v.members[i]
		id, known := v.fieldOf(m)
		if !known || fields[id].Endpoints&(1<<c.Endpoint) == 0 {
			continue
		}
		c.at[id] = uint16(i + 1)
		if v.body[m.value] == 'n' {
			c.sent &^= 1 << id
		} else {
			c.sent |= 1 << id
		}
	}
}

func (v View) fieldOf(m *member) (fieldID, bool) {
	key := v.body[m.key:m.keyEnd]
	if m.escaped {
		var buf [64]byte
		decoded, whole := appendUnescaped(buf[:0], key)
		id, known := fieldIDs[string(decoded)]
		return id, known && whole
	}
	id, known := fieldIDs[string(key)]
	return id, known
}

// has reports whether the field is there, be it null.
func (c *checking) has(id fieldID) bool { return c.at[id] != 0 }

// get is the raw value of a field, or nil if it is absent or null.
func (c *checking) get(id fieldID) []byte {
	if c.sent>>id&1 == 0 {
		return nil
	}
	return c.raw(id)
}

// raw is the value of a field that is there.
func (c *checking) raw(id fieldID) []byte { return c.View.raw(&c.View.members[c.at[id]-1]) }

// eachField runs the checks of the fields that are there, in the order of the table.
func (c *checking) eachField() *Error {
	if c.get(fieldRepetitionPenalty) == nil {
		c.adoptedPenalty()
	}
	for left := c.sent & checkedFields; left != 0; left &= left - 1 {
		id := bits.TrailingZeros64(left)
		if err := fields[id].check(c, &fields[id], c.raw(fieldID(id))); err != nil {
			return err
		}
	}
	return nil
}

// adoptedPenalty records that a default of the deployment needs an ability.
func (c *checking) adoptedPenalty() {
	value := c.gate.Defaults.RepetitionPenalty
	if f, ok := finite(orElse(value, neutral.RepetitionPenalty)); ok && f != 1 {
		c.need(NeedPenalties, want{"repetition_penalty", value, true})
	}
}

// resolve fills in what needs all fields to be known and cannot fail.
func (c *checking) resolve() {
	c.Sampling = c.Sampling.over(c.gate.Defaults).over(neutral)
	s := append(c.buf[:0], '{')
	s = c.Sampling.AppendMembers(s)
	if raw := c.get(fieldPresencePenalty); raw != nil {
		s = append(append(s, `,"presence_penalty":`...), raw...)
	}
	if raw := c.get(fieldIgnoreEOS); raw != nil {
		s = append(append(s, `,"ignore_eos":`...), raw...)
	}
	c.DecodeSampling = append(s, '}')
	c.Tools = c.get(fieldTools)
	c.IncludeUsage = c.Stream && (c.IncludeUsage || c.gate.ForceIncludeUsage)
	c.ContinuousUsage = c.Stream && c.ContinuousUsage
}
