package router

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pd-router/internal/queue"
)

// greets gives the node a control port that says whether its buffer is taken.
func greets(s *setup) { s.nodes[0].hello = 1000 }

// halfWay begins to send KV, comes to the gate, and goes on with then.
func halfWay(w *place, g *gate, then prefillScript) prefillScript {
	return func(p *fakePrefill, x *exchange) {
		w.node.begins(x.r.Header.Get("X-Request-Id"))
		if x.at(g) {
			then(p, x)
		}
	}
}

// A client that leaves while its KV comes leaves a transfer behind that keeps the node's buffer for two minutes.
func TestKVThatStopsHalfWayIsForgotten(t *testing.T) {
	w := newPlace(t, greets)
	g := newGate()
	w.prefill.script(halfWay(w, g, nil))
	c := w.ask(blocking)
	happens(t, "KV is under way", g.reached)
	next := w.ask(blocking)
	w.inLine(1)
	c.leave(ErrClientGone)
	next.end().wantOK("Hello, world")
	require.Equal(t, []string{w.prefill.came()[0].id}, w.node.forgotten())
	require.Len(t, w.node.asked(), 1)
}

// A prefill node that hangs while its client leaves may send when it goes on, and stop half way.
func TestKVThatHasNotBegunIsForgotten(t *testing.T) {
	w := newPlace(t, greets)
	c, _ := w.askUntilPrefill()
	c.leave(ErrClientGone)
	w.ask(blocking).end().wantOK("Hello, world")
	require.Equal(t, []string{w.prefill.came()[0].id}, w.node.forgotten())
}

// Without a hello nothing is known of the buffer, and the node is left alone: it sees no decode call for a prefill that came to nothing.
func TestNodeWithoutAHelloIsNotToldToForget(t *testing.T) {
	w := newPlace(t)
	c, _ := w.askUntilPrefill()
	c.leave(ErrClientGone)
	w.wantFreeAtOnce()
	w.prefill.script(breaks, breaks)
	w.ask(blocking).end()
	require.Empty(t, w.node.forgotten())
	require.Empty(t, w.node.cancelled())
}

// The buffer may have been taken by a transfer that this router does not know. That must not cost the slot.
func TestSlotComesBackWhenTheBufferIsSomebodyElses(t *testing.T) {
	w := newPlace(t, greets)
	w.node.begins("of somebody else")
	c, _ := w.askUntilPrefill()
	c.leave(ErrClientGone)
	await(t, "the slot is free", func() bool { return w.state() == queue.Free })
	require.Equal(t, []string{w.prefill.came()[0].id}, w.node.forgotten())
}

func TestKVThatComesToItsEndIsLeftAlone(t *testing.T) {
	w := newPlace(t, greets)
	g := newGate()
	w.prefill.script(halfWay(w, g, refuses(500, "boom")))
	c := w.ask(blocking)
	happens(t, "KV is under way", g.reached)
	g.open()
	c.end().wantRefused(502, "prefill_failed")
	await(t, "the buffer is seen to be taken", func() bool { return w.node.lookedAt() > 0 })
	w.node.begins("") // what was under way is complete
	w.ask(blocking).end().wantOK("Hello, world")
	require.Empty(t, w.node.forgotten())
}

// The second try would find the buffer taken.
func TestPrefillThatBreaksWithKVUnderWayIsNotTriedAgainAtOnce(t *testing.T) {
	w := newPlace(t, greets)
	g := newGate()
	g.open()
	w.prefill.script(halfWay(w, g, breaks))
	w.ask(blocking).end().wantOK("Hello, world")
	calls := w.prefill.came()
	require.Len(t, calls, 2)
	require.Equal(t, []string{calls[0].id}, w.node.forgotten())
	require.Equal(t, 1., w.metric("pd_router_retries_total", "reason", retryPair))
}

// Promise 1: a node that is on its way down may still take a connection or two.
func TestPrefillThatBreaksTwiceIsWaitedFor(t *testing.T) {
	w := newPlace(t)
	w.prefill.script(breaks, breaks)
	w.ask(blocking).end().wantOK("Hello, world")
	require.Len(t, w.prefill.came(), 3)
}

// KV that went to a process which is no more is not waited for.
func TestKVIsMadeAgainForANodeThatWentAway(t *testing.T) {
	w := newPlace(t)
	c, g := w.askUntilPrefill()
	w.node.die()
	w.router.backends[0].Failed(nil)
	await(t, "the node is known to be down", func() bool { return !w.router.backends[0].Up() })
	w.node.start()
	await(t, "the node is known to be back", func() bool { return w.router.backends[0].Up() })
	g.open()
	c.end().wantOK("Hello, world")
	calls := w.prefill.came()
	require.Len(t, calls, 2)
	require.Equal(t, []string{calls[1].id}, w.node.rids())
}

// Who breaks off may have taken the rid and let go of its KV: the same call again would wait for it in vain.
func TestDecodeCallThatBreaksIsNotSentAgain(t *testing.T) {
	w := newPlace(t)
	w.ask(blocking).end().wantOK("Hello, world") // which leaves an idle connection
	w.node.script(hangsUp)
	w.ask(blocking).end().wantOK("Hello, world")
	calls := w.prefill.came()
	require.Len(t, calls, 3)
	require.Equal(t, []string{calls[0].id, calls[1].id, calls[2].id}, w.node.rids())
}

// A node that closes its connections while they are idle would break one attempt after the other.
func TestLaterAttemptGoesOutOnNewConnections(t *testing.T) {
	w := newPlace(t)
	w.ask(blocking).end().wantOK("Hello, world") // which leaves idle connections
	var prefill, decoded int
	w.prefill.script(nil, func(p *fakePrefill, x *exchange) {
		prefill = x.nth
		p.good(x)
	})
	w.node.script(hangsUp, func(d *decode) { // after the cancel of the first, on a connection that is idle again
		decoded = d.nth
		says(hi...)(d)
	})
	w.ask(blocking).end().wantOK("Hello, world")
	require.Equal(t, []int{1, 1}, []int{prefill, decoded})
}

// Nothing waits for a leg whose partner is dead.
func TestKVOfAPrefillNodeThatWentAwayIsNotWaitedFor(t *testing.T) {
	w := newPlace(t)
	w.router.kvGrace = 10 * time.Millisecond
	g := newGate()
	w.node.script(streams(waitsForKV(g), begins, line(hello), done("stop")))
	c := w.ask(streaming)
	happens(t, "the wait for KV", g.reached)
	w.prefill.die()
	w.router.prefill.Failed(errors.New("refused"))
	await(t, "the node is told", func() bool { return len(w.node.cancelled()) == 1 })
	w.prefill.start()
	c.end().wantOK("Hello, world")
	require.Len(t, w.prefill.came(), 2)
}

// It may have been the last thing that the prefill node did.
func TestKVThatWasCompleteOutlivesItsPrefillNode(t *testing.T) {
	w := newPlace(t)
	g := newGate()
	w.node.script(streams(waitsForKV(g), begins, line(hello), line(world), done("stop")))
	c := w.ask(streaming)
	happens(t, "the wait for KV", g.reached)
	w.prefill.die()
	w.router.prefill.Failed(errors.New("refused"))
	g.open()
	c.end().wantOK("Hello world")
	require.Len(t, w.prefill.came(), 1)
	w.prefill.start()
}

// The news that a node went down may come when it is back already, as another process.
func TestNewsOfANodeThatIsBackAlready(t *testing.T) {
	w := newPlace(t)
	from, epoch := w.router.sender.Load(), w.router.backends[0].epoch.Load()
	w.router.prefillChanged(w.router.prefill, false, errors.New("refused"))
	w.router.decodeChanged(w.router.backends[0], false, errors.New("refused"))
	require.ErrorIs(t, context.Cause(from.ctx), errPrefillGone)
	require.NoError(t, w.router.sender.Load().ctx.Err())
	require.Equal(t, epoch+1, w.router.backends[0].epoch.Load())
	w.ask(blocking).end().wantOK("Hello, world")
}
