package router

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Promise 2: a request that a busy node keeps is older than all that wait in line, also in the moment in which it asks the
// node once more.
func TestSlotThatGetsFreeDuringATryGoesToTheOlderRequest(t *testing.T) {
	t.Skip("busy leaves the line while it posts: a slot that gets free in that moment goes to a later request")
	w := newPlace(t, two)
	first := newGate()
	w.nodes[1].script(streams(begins, line(hello), stays(first), done("stop")))
	trying := newGate()
	w.node.script(foreign, foreign, func(d *decode) { // the first request moves, the second one tries again
		if d.at(trying) {
			foreign(d)
		}
	}, foreign)
	w.node.plays(foreign)
	a := w.ask(prompt("first"))
	happens(t, "the other node is at work", first.reached)
	b := w.ask(prompt("second"))
	happens(t, "the second tries again", trying.reached)
	c := w.ask(prompt("third"))
	w.inLine(1)
	first.open()
	a.end().wantOK("Hello")
	trying.open()
	b.end().wantOK("Hello, world")
	c.end().wantOK("Hello, world")
	names := map[string]string{} // of requests, by rid
	for _, p := range w.prefill.came() {
		names[p.id] = p.body["prompt"].(string)
	}
	var served []string
	for _, rid := range w.nodes[1].rids() {
		served = append(served, names[rid])
	}
	require.Equal(t, []string{"first", "second", "third"}, served)
}
