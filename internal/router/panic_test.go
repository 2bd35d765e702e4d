package router

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// A mistake of ours costs one request its reply, and nobody a slot.

func TestPanicInTheGateIsAnInternalError(t *testing.T) {
	w := newPlace(t, func(s *setup) {
		s.thinking = func(kwargs json.RawMessage) bool {
			if kwargs != nil {
				panic("a mistake")
			}
			return true
		}
	})
	a := w.ask(`{"messages":[],"chat_template_kwargs":{"a":1}}`).end().wantRefused(500, "internal_error")
	require.NotContains(t, a.text(), "mistake")
	require.Equal(t, 1, w.outcomes(Internal, 500))
	w.ask(blocking).end().wantOK("Hello, world")
}

// An output parser that does not exist fails when the reply begins, with the node at work.
func TestPanicInTheMiddleFreesTheSlot(t *testing.T) {
	w := newPlace(t, func(s *setup) { s.Parser = "no such parser" })
	g := newGate()
	w.node.script(streams(begins, line(hello), stays(g)))
	w.ask(blocking).end().wantRefused(500, "internal_error")
	await(t, "the cancel", func() bool { return len(w.node.cancelled()) == 1 })
	w.node.script(streams(begins, line(hello), stays(newGate())))
	c := w.ask(streaming)
	require.Error(t, c.end().err, "the stream would end well")
	await(t, "the cancel", func() bool { return len(w.node.cancelled()) == 2 })
	require.Equal(t, 2., w.metric("pd_router_requests_total", "outcome", "internal"))
	require.Len(t, w.logs.FilterMessage("panic in a request").All(), 2)
	w.ask(prompt("completions are never parsed")).end().wantOK("Hello, world")
}
