package router

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A client whose KV is complete leaves before its decode: nothing is asked of the node, and the next request has slot and buffer at once.
func TestClientLeavesBetweenPrefillAndDecode(t *testing.T) {
	w := newPlace(t, greets, func(s *setup) { s.PrefillAhead = true })
	first, g := w.occupy()
	c := w.ask(streaming)
	await(t, "its prefill is answered", func() bool { return len(w.prefill.came()) == 2 && w.prefill.working() == 0 })
	next := w.ask(blocking)
	w.inLine(1)
	c.leave(ErrClientGone)
	happens(t, "the end", c.ended)
	require.Equal(t, 1, w.outcomes(ClientGone, 499))
	g.open()
	first.end().wantOK("Hello")
	next.end().wantOK("Hello, world")
	calls := w.prefill.came()
	require.Len(t, calls, 3)
	require.Equal(t, []string{calls[0].id, calls[2].id}, w.node.rids())
	require.Empty(t, w.node.cancelled(), "nothing was sent")
}
