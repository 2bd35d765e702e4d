package router

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Invariant 6: what one node has failed goes to another one, and waits for it when it is busy.
func TestRequestThatANodeFailedWaitsForAnotherNode(t *testing.T) {
	w := newPlace(t, two)
	g := newGate()
	w.node.script(streams(begins, line(hello), stays(g), done("stop")))
	first := w.ask(prompt("first"))
	happens(t, "the good node is at work", g.reached)
	w.nodes[1].plays(answers(500, `{"error":"boom"}`))
	c := w.ask(streaming)
	await(t, "the bad node has failed it", func() bool { return len(w.nodes[1].asked()) == 1 })
	w.inLine(1)
	g.open()
	first.end().wantOK("Hello")
	c.end().wantOK("Hello, world")
	require.Len(t, w.nodes[1].asked(), 1, "the node that failed it was asked again")
}
