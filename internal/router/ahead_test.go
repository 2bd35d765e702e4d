package router

import (
	"testing"
	"time"

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

// A request whose node died has KV on a second one and waits there for the slot, in vain: the place behind the slot is given back, and the
// client is told the first failure.
func TestAnotherAttemptThatWaitsAheadInVainGivesItsPlaceBack(t *testing.T) {
	w := newPlace(t, two, func(s *setup) {
		s.PrefillAhead, s.QueueTimeout = true, 300*time.Millisecond
		s.nodes[0].hello, s.nodes[1].hello = 1000, 1000
	})
	first, g := w.occupy()
	w.nodes[1].script(streams(begins, func(d *decode) bool {
		d.node.die()
		return false
	}))
	w.ask(blocking).end().wantRefused(502, "decode_truncated")
	require.Len(t, w.prefill.came(), 3, "the second attempt was ahead of its slot")
	g.open()
	first.end().wantOK("Hello")
	w.ask(blocking).end().wantOK("Hello, world")
}
