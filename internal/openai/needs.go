package openai

import (
	"math/bits"
	"strings"
)

// Needs is a set of abilities: those that a request needs of its decode node, or those that nodes have.
type Needs uint32

// Spec 1.6 has the capabilities that nodes declare. Constrained output is not among them: nodes of protocol 2 take a grammar_spec
// and refuse by themselves what their engine cannot do, older ones ignore it silently.
const (
	NeedPenalties Needs = 1 << iota // repetition_penalty, presence_penalty: capability "penalties"
	NeedIgnoreEOS                   // ignore_eos: capability "ignore_eos"
	NeedLogProbs                    // logprobs: capability "logprobs"
	NeedGrammar                     // response_format, regex, ebnf: control-plane protocol 2

	numNeeds = iota
)

// Everywhere are the abilities that a deployment has only when each of its nodes has them: they change how a reply is sampled. Of the
// others one node that has them is enough, which then gets the request.
const Everywhere = NeedPenalties | NeedIgnoreEOS

// lacks says, for each bit, what a deployment without it lacks.
var lacks = [numNeeds]struct{ name, text string }{
	{"penalties", "the capability penalties"},
	{"ignore_eos", "the capability ignore_eos"},
	{"logprobs", "the capability logprobs"},
	{"grammar", "constrained output (control-plane protocol 2)"},
}

// String lists the abilities, for logs.
func (n Needs) String() string {
	var names []string
	for i := range lacks {
		if n>>i&1 == 1 {
			names = append(names, lacks[i].name)
		}
	}
	return strings.Join(names, ",")
}

// want is the first thing in a request that needs an ability.
type want struct {
	field      string
	value      []byte
	deployment bool // a default of the deployment, not sent by the client
}

// need records that the request needs an ability. The first field to say so is the one that a refusal names.
func (r *Request) need(n Needs, w want) {
	if r.Needs&n == 0 {
		r.Needs |= n
		r.wanted[bits.TrailingZeros32(uint32(n))] = w
	}
}

// Refusal is nil when the nodes have all that the request needs. Else it is 501 capability_unavailable about the first field, in
// the gate's order, that needs more than is in have; its message says whether the client asked for it or the deployment did.
func (r *Request) Refusal(have Needs) *Error {
	missing := r.Needs &^ have
	if missing == 0 {
		return nil
	}
	first := bits.TrailingZeros32(uint32(missing))
	w := &r.wanted[first]
	from := "it comes from the request"
	if w.deployment {
		from = "it is a default of this deployment, not part of the request"
	}
	return Errorf(TypeCapabilityUnavailable, "%s=%s needs %s, which the decode nodes do not declare (%s)",
		w.field, clip(w.value), lacks[first].text, from).About(w.field)
}
