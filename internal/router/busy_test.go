package router

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// two are two nodes that can do everything.
func two(s *setup) { s.nodes = append(s.nodes, nodeSetup{caps: ableToAll}) }

func noQueueTime(s *setup) { s.QueueTimeout = 0 }

func TestBusyNodeIsTriedAgain(t *testing.T) {
	for _, tc := range []struct {
		name    string
		change  func(*setup)
		refuses int
		within  time.Duration
	}{
		{"once more after half a second without queue time", noQueueTime, 1, 500*time.Millisecond + slack*100*time.Millisecond},
		{"soon with queue time", func(*setup) {}, 1, slack * 50 * time.Millisecond},
		{"more than once with queue time", func(*setup) {}, 4, slack * 300 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			both(t, func(t *testing.T, body func(...string) string) {
				w := newPlace(t, tc.change)
				for range tc.refuses {
					w.node.script(foreign)
				}
				c := w.ask(body())
				c.end().wantOK("Hello, world")
				require.Len(t, w.node.asked(), tc.refuses+1)
				require.Len(t, w.prefill.came(), 1, "the KV is there already")
				require.Less(t, c.took, tc.within)
				require.Equal(t, float64(tc.refuses), w.metric("pd_router_retries_total", "reason", retryBusy))
				require.Empty(t, w.node.cancelled())
			})
		})
	}
}

func TestNodeThatIsBusyForEverIsGivenUp(t *testing.T) {
	t.Run("after exactly two tries without queue time", func(t *testing.T) {
		both(t, func(t *testing.T, body func(...string) string) {
			w := newPlace(t, noQueueTime)
			w.node.plays(foreign)
			c := w.ask(body())
			a := c.end().wantRefused(429, "decode_busy")
			require.Equal(t, 1, a.reply.RetryAfter)
			require.GreaterOrEqual(t, c.took, 500*time.Millisecond)
			require.Len(t, w.node.asked(), 2)
			require.Empty(t, w.node.cancelled(), "a cancel would hit nobody or a stranger")
			require.Equal(t, 1, w.outcomes(DecodeBusy, 429))
		})
	})
	t.Run("when the queue time is over", func(t *testing.T) {
		w := newPlace(t, func(s *setup) { s.QueueTimeout = 200 * time.Millisecond })
		w.node.plays(foreign)
		c := w.ask(streaming)
		c.end().wantRefused(429, "decode_busy")
		require.GreaterOrEqual(t, c.took, 200*time.Millisecond)
		require.Less(t, c.took, 200*time.Millisecond+slack*50*time.Millisecond)
		require.Greater(t, len(w.node.asked()), 2)
		require.Len(t, w.prefill.came(), 1)
	})
}

// A request that meets a busy node moves to a slot that is free, or gets free: with a fresh pair, as its KV is at the
// busy one.
func TestRequestMovesFromABusyNodeToAFreeOne(t *testing.T) {
	for _, queueTime := range []time.Duration{0, time.Minute} {
		t.Run(queueTime.String(), func(t *testing.T) {
			w := newPlace(t, two, func(s *setup) { s.QueueTimeout = queueTime })
			w.node.plays(foreign)
			c := w.ask(streaming)
			c.end().wantOK("Hello, world")
			require.Len(t, w.node.asked(), 1)
			calls := w.prefill.came()
			require.Len(t, calls, 2)
			require.NotEqual(t, calls[0].id, calls[1].id)
			require.Equal(t, calls[1].id, w.nodes[1].asked()[0]["rid"])
			require.Less(t, c.took, slack*50*time.Millisecond)
			require.Empty(t, w.node.cancelled())
		})
	}
}

func TestRequestMovesFromABusyNodeToTheFirstThatGetsFree(t *testing.T) {
	w := newPlace(t, two)
	w.node.plays(foreign)
	g := newGate()
	w.nodes[1].script(streams(begins, line(hello), stays(g), done("stop")))
	warm := w.ask(prompt("first")) // on node 0, moves to node 1 and stays there
	happens(t, "the other node is at work", g.reached)
	c := w.ask(prompt("second")) // on node 0, which is busy for others
	w.inLine(1)
	later := w.ask(prompt("third"))
	tries := len(w.node.asked())
	await(t, "the second begins one of its longer pauses", func() bool { return len(w.node.asked()) > tries+4 })
	w.inLine(2)
	g.open()
	warm.end().wantOK("Hello")
	c.end().wantOK("Hello, world")
	later.end().wantOK("Hello, world")
	require.Equal(t, []string{"first", "second", "third"}, w.served(w.nodes[1]), "the older one goes first")
}

// served are the prompts that the node was asked to go on with, in that order.
func (w *place) served(n *fakeNode) (prompts []string) {
	of := map[string]string{} // by rid
	for _, p := range w.prefill.came() {
		of[p.id] = p.body["prompt"].(string)
	}
	for _, rid := range n.rids() {
		prompts = append(prompts, of[rid])
	}
	return prompts
}

func TestMoveIsNoAttempt(t *testing.T) {
	w := newPlace(t, func(s *setup) {
		for range maxAttempts + 1 {
			s.nodes = append(s.nodes, nodeSetup{caps: ableToAll})
		}
	})
	for _, n := range w.nodes[:maxAttempts] {
		n.plays(foreign)
	}
	w.nodes[maxAttempts].plays(hangsUp) // the first attempt, after as many moves; another one may follow
	w.ask(blocking).end().wantOK("Hello, world")
	require.Len(t, w.nodes[maxAttempts+1].asked(), 1)
}

// Promise 2: a request that a busy node keeps is older than all that wait in line, also in the moment in which it asks the
// node once more.
func TestSlotThatGetsFreeDuringATryGoesToTheOlderRequest(t *testing.T) {
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
	require.Equal(t, []string{"first", "second", "third"}, w.served(w.nodes[1]))
}

// A pause at a busy node is waiting and nothing else: phases do not add up to more than the whole.
func TestPausesAtABusyNodeAreWaiting(t *testing.T) {
	w := newPlace(t)
	w.node.script(foreign, foreign)
	c := w.ask(blocking)
	c.end().wantOK("Hello, world")
	require.GreaterOrEqual(t, c.reply.Wait, 60*time.Millisecond, "two pauses")
	await(t, "it is in the journal", func() bool { return len(w.router.Look(1).Finished) == 1 })
	row := w.router.Look(1).Finished[0]
	require.LessOrEqual(t, row.ReadBody+row.Queue+row.Prefill+row.KVWait+row.Decode, row.Total)
	require.Equal(t, c.reply.Wait, row.Queue)
}
