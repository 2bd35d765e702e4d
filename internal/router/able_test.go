package router

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	ableToIgnore  = `{"ignore_eos":true}`
	wantsPenalty  = `{"messages":[],"presence_penalty":0.5}`
	wantsLogProbs = `{"messages":[],"logprobs":true}`
	wantsGrammar  = `{"messages":[],"response_format":{"type":"json_object"}}`
)

// noUpstream asserts that a request has cost no node anything.
func (w *place) noUpstream(prefills int) {
	w.Helper()
	require.Len(w, w.prefill.came(), prefills)
}

func TestRequestThatCannotBeHonouredIsRefusedBeforeAnyWork(t *testing.T) {
	w := newPlace(t, func(s *setup) { s.nodes[0].caps = "" })
	for _, tc := range []struct {
		name, body, kind string
		status           int
		outcome          Outcome
	}{
		{"no JSON", `{"messages":`, "invalid_json", 400, Invalid},
		{"nothing", ``, "invalid_json", 400, Invalid},
		{"no object", `[]`, "invalid_json", 400, Invalid},
		{"a wrong type", `{"messages":[],"max_tokens":"many"}`, "invalid_parameter", 400, Invalid},
		{"a field that no node can honour", `{"messages":[],"logit_bias":{"1":1}}`, "capability_unavailable", 501, Unavailable},
		{"a penalty, and the node declares nothing", wantsPenalty, "capability_unavailable", 501, Unavailable},
		{"log-probs, and the node declares nothing", `{"messages":[],"logprobs":true}`, "capability_unavailable", 501, Unavailable},
		{"ignore_eos, and the node declares nothing", `{"messages":[],"ignore_eos":true}`, "capability_unavailable", 501, Unavailable},
	} {
		w.run(tc.name, func(t *testing.T) {
			same := w.outcomes(tc.outcome, tc.status)
			w.ask(tc.body).end().wantRefused(tc.status, tc.kind)
			w.noUpstream(0)
			require.Equal(t, same+1, w.outcomes(tc.outcome, tc.status))
		})
	}
	w.ask(blocking).end().wantOK("Hello, world")
}

// An unable request does not wait either: it would wait for nothing.
func TestUnableRequestIsRefusedWhileTheSlotIsBusy(t *testing.T) {
	w := newPlace(t, func(s *setup) { s.nodes[0].caps = ableToIgnore })
	first, g := w.occupy()
	w.ask(wantsPenalty).end().wantRefused(501, "capability_unavailable")
	g.open()
	first.end()
}

// Nothing is known of a node whose page could not be read. Before a request is refused for that, it is read again.
func TestPageThatCouldNotBeReadIsReadAgainBeforeARefusal(t *testing.T) {
	w := newPlace(t, func(s *setup) { s.nodes[0].blank = 1 })
	require.Zero(t, w.router.backends[0].Capabilities())
	w.ask(wantsPenalty).end().wantOK("Hello, world")

	w = newPlace(t, func(s *setup) { s.nodes[0].blank = 1000 })
	w.ask(wantsPenalty).end().wantRefused(501, "capability_unavailable")
	w.noUpstream(0)
	w.ask(blocking).end().wantOK("Hello, world")
}

// What changes the sampling is the deployment's, not a node's.
func TestPenaltiesAndIgnoreEOSMustBeOnAllNodes(t *testing.T) {
	one, both := nodeSetup{caps: ableToIgnore}, nodeSetup{caps: ableToAll}
	for _, nodes := range [][]nodeSetup{{one, both}, {both, one}} {
		w := newPlace(t, func(s *setup) { s.nodes = nodes })
		w.ask(wantsPenalty).end().wantRefused(501, "capability_unavailable")
		w.noUpstream(0)
		w.ask(`{"messages":[],"ignore_eos":true}`).end().wantOK("Hello, world")
	}
	// A node that never answered has declared nothing, which is no reason to refuse.
	w := newPlace(t, func(s *setup) { s.nodes = []nodeSetup{both, {caps: ableToAll, down: true}} })
	w.ask(wantsPenalty).end().wantOK("Hello, world")
}

func TestRequestGoesToTheNodeThatCanDoIt(t *testing.T) {
	w := newPlace(t, func(s *setup) { s.nodes = []nodeSetup{{caps: ableToIgnore}, {caps: ableToAll}} })
	w.nodes[1].plays(streams(begins, line(hello), done("stop"))) // one token, whose log-prob prefill has
	for range 3 {
		w.ask(wantsLogProbs).end().wantOK("Hello")
	}
	require.Empty(t, w.nodes[0].asked())
	require.Len(t, w.nodes[1].asked(), 3)

	// It waits for that node while another is free, and lets others pass.
	g := newGate()
	w.nodes[1].script(streams(begins, line(hello), stays(g), done("stop")))
	busy := w.ask(wantsLogProbs)
	happens(t, "the able node is at work", g.reached)
	waiter := w.ask(wantsLogProbs)
	w.inLine(1)
	w.ask(blocking).end().wantOK("Hello, world")
	require.Len(t, w.nodes[0].asked(), 1)
	g.open()
	busy.end().wantOK("Hello")
	waiter.end().wantOK("Hello")
}

func TestAbilitiesMustBeOnOneNode(t *testing.T) {
	w := newPlace(t, func(s *setup) { s.nodes = []nodeSetup{{caps: ableToIgnore}, {caps: ableToAll}} })
	w.router.backends[1].refusesGrammars()
	w.ask(`{"messages":[],"logprobs":true,"response_format":{"type":"json_object"}}`).end().wantRefused(501, "capability_unavailable")
	w.noUpstream(0)
}

// No page declares grammars: that a node has none is learned from its refusal, and remembered.
func TestNodeWithoutGrammarsIsRemembered(t *testing.T) {
	refusal := answers(501, `{"error":"no grammar here","error_type":"grammar_unsupported","rid":"RID"}`)
	t.Run("the only node", func(t *testing.T) {
		w := newPlace(t)
		w.node.script(refusal)
		w.ask(wantsGrammar).end().wantRefused(501, "grammar_unsupported")
		require.Equal(t, map[string]any{"type": "json_object", "value": nil}, w.node.asked()[0]["grammar_spec"])
		w.ask(wantsGrammar).end().wantRefused(501, "capability_unavailable")
		w.noUpstream(1)
		w.ask(blocking).end().wantOK("Hello, world")
	})
	t.Run("beside one that has them", func(t *testing.T) {
		w := newPlace(t, two)
		w.node.plays(refusal)
		for range 3 { // the first may meet the node without
			w.ask(wantsGrammar).end()
		}
		require.Len(t, w.node.asked(), 1)
		require.Len(t, w.nodes[1].asked(), 2)
		require.Equal(t, 2, w.outcomes(OK, 200))
	})
}

func TestDefaultLengthComesFromTheNextBestSource(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*setup)
		body   string
		want   float64
	}{
		{"the client", func(s *setup) { s.DefaultMaxTokens, s.nodes[0].hello, s.window = 7, 1000, 2000 }, `{"prompt":"x","max_tokens":5}`, 5},
		{"the flag", func(s *setup) { s.DefaultMaxTokens, s.nodes[0].hello, s.window = 7, 1000, 2000 }, `{"prompt":"x"}`, 7},
		{"the rest of the window that the hello tells", func(s *setup) { s.nodes[0].hello, s.window = 1000, 2000 }, `{"prompt":"x"}`, 996},
		{"the rest of max_model_len", func(s *setup) { s.window = 2000 }, `{"prompt":"x"}`, 1996},
		{"nothing at all", func(*setup) {}, `{"prompt":"x"}`, 256},
		{"a prompt as long as the window", func(s *setup) { s.nodes[0].hello = 4 }, `{"prompt":"x"}`, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newPlace(t, tc.change)
			await(t, "the model list is read", func() bool { return w.router.prefill.Models().Page != nil })
			w.ask(tc.body).end().wantOK("Hello, world")
			require.Equal(t, tc.want, w.node.asked()[0]["max_tokens"])
		})
	}
}

func TestPromptOverTheNodesWindowIsRefusedWithoutADecode(t *testing.T) {
	w := newPlace(t, func(s *setup) { s.nodes[0].hello = 1000 })
	for _, kind := range kinds {
		w.run(kind.name, func(t *testing.T) {
			body := fmt.Sprintf(`%s,"prompt_length":1001}`, kind.body[:len(kind.body)-1])
			a := w.ask(body).end().wantRefused(400, "context_length_exceeded")
			require.Contains(t, a.message, "maximum context length is 1000 tokens, but the prompt has 1001")
		})
	}
	require.Empty(t, w.node.asked())
	require.Empty(t, w.node.cancelled())
	require.Equal(t, 2, w.outcomes(Invalid, 400))
	w.ask(`{"prompt":"x","prompt_length":1000}`).end().wantOK("Hello, world")
}

func TestPromptThatFitsAnotherNodeGoesThere(t *testing.T) {
	w := newPlace(t, two, func(s *setup) { s.nodes[0].hello, s.nodes[1].hello = 1000, 2000 })
	w.ask(`{"prompt":"x","prompt_length":1500}`).end().wantOK("Hello, world")
	require.Empty(t, w.node.asked())
	w.ask(`{"prompt":"x","prompt_length":2001}`).end().wantRefused(400, "context_length_exceeded")
}
