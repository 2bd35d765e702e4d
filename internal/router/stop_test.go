package router

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pd-router/internal/queue"
)

const stopAtSTOP = `"stop":"STOP"`

// talks is a node that would go on after its stop string.
func talks(g *gate) nodeScript {
	return streams(begins, line(hello), line(st), line(op, tail), stays(g), line(tail), done("length"))
}

func TestStopStringCancelsTheNode(t *testing.T) {
	both(t, func(t *testing.T, body func(...string) string) {
		w := newPlace(t)
		w.node.script(talks(newGate()))
		a := w.ask(body(stopAtSTOP, `"stream_options":{"include_usage":true}`)).end().wantOK("Hello")
		require.Equal(t, []any{"stop", "STOP"}, []any{a.finish, a.stop})
		require.Equal(t, 3., a.usage["completion_tokens"], "what follows the stop does not count")
		require.Equal(t, []string{a.reply.RID}, w.node.cancelled())
		require.Equal(t, 1, w.outcomes(OK, 200))
		require.Equal(t, 1., w.metric("pd_router_cancels_total", "phase", "decode"))
	})
}

// Promise 3: the end of the reply comes when the node is idle, so that a client that comes again at once is served.
func TestEndOfACancelledReplyComesWhenTheNodeIsIdle(t *testing.T) {
	both(t, func(t *testing.T, body func(...string) string) {
		w := newPlace(t, noQueueTime)
		for range 5 {
			w.node.script(talks(newGate()))
			c := w.askWith(body(stopAtSTOP), func(chunk string) {
				if strings.Contains(chunk, "[DONE]") && (w.node.busy() || w.state() != queue.Free) {
					t.Error("the client has the end and the node is busy")
				}
			})
			c.end().wantOK("Hello")
			require.False(t, w.node.busy())
			require.Less(t, c.took, slack*50*time.Millisecond)
		}
		w.ask(body()).end().wantOK("Hello, world")
	})
}

// Invariant 4, promise 3: a node that needs long to let go gets no request until it is idle; the client waits 250 ms at most.
func TestSlotOfANodeThatIsSlowToLetGoSettles(t *testing.T) {
	both(t, func(t *testing.T, body func(...string) string) {
		w := newPlace(t)
		g := newGate()
		w.node.linger = g
		w.node.script(talks(newGate()))
		c := w.ask(body(stopAtSTOP))
		c.end().wantOK("Hello")
		require.GreaterOrEqual(t, c.took, 250*time.Millisecond)
		require.Less(t, c.took, slack*250*time.Millisecond)
		require.True(t, w.node.busy())
		require.Equal(t, queue.Settling, w.state())
		require.Equal(t, 1., w.metric("pd_router_slot_state", "state", "settle"))
		next := w.ask(body())
		w.inLine(1)
		time.Sleep(3 * settlePauseMax) // some looks at the node
		require.Len(t, w.prefill.came(), 1, "a prefill into a node that is still at work")
		g.open()
		next.end().wantOK("Hello, world")
	})
}

func TestSettlingSlotIsWaitedForWithoutQueueTime(t *testing.T) { // promise 3
	w := newPlace(t, noQueueTime)
	g := newGate()
	w.node.linger = g
	w.node.script(talks(newGate()))
	w.ask(`{"prompt":"x","stop":"STOP"}`).end().wantOK("Hello")
	next := w.ask(blocking)
	w.inLine(1)
	g.open()
	next.end().wantOK("Hello, world")
}

// What came before the stop string is not held back by the wait for the node.
func TestTextBeforeTheStopIsNotHeldBack(t *testing.T) {
	w := newPlace(t)
	g := newGate()
	w.node.linger = g
	w.node.script(streams(begins, line(hello, comma, st, op), stays(newGate())))
	c := w.ask(`{"messages":[],"stream":true,` + stopAtSTOP + `}`)
	c.until(`","`)
	happens(t, "the node lets go", g.reached)
	require.NotContains(t, c.text(), "[DONE]")
	g.open()
	c.end().wantOK("Hello,")
}

// Invariant 4: idle for this router is enough. Another one's request may take long, and a 429 tells of it.
func TestSlotOfANodeThatWorksForSomebodyElseIsNotKept(t *testing.T) {
	w := newPlace(t)
	w.node.stranger = true
	w.node.script(talks(newGate()))
	w.ask(`{"prompt":"x","stop":"STOP"}`).end().wantOK("Hello")
	await(t, "the slot is free", func() bool { return w.state() == queue.Free })
}

// A node that dies while its slot settles is down, and its slot is not lost.
func TestNodeThatDiesWhileItsSlotSettles(t *testing.T) {
	w := newPlace(t)
	g := newGate()
	w.node.linger = g
	w.node.script(talks(newGate()))
	w.ask(`{"prompt":"x","stop":"STOP"}`).end().wantOK("Hello")
	w.node.die()
	await(t, "the slot is down", func() bool { return w.state() == queue.Down })
	g.open()
	next := w.ask(blocking)
	w.inLine(1)
	w.node.start()
	next.end().wantOK("Hello, world")
}

// A blocking reply without a stop string ends at the node's own end: nothing to cancel.
func TestReplyThatEndsByItselfIsNotCancelled(t *testing.T) {
	w := newPlace(t)
	w.ask(`{"prompt":"x","stop":"ZZZ"}`).end().wantOK("Hello, world")
	require.Empty(t, w.node.cancelled())
}
