package router

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pd-router/internal/queue"
)

// Promise 4, invariant 2: a client that leaves frees all that it held, in every phase. The node is cancelled if it has been
// asked to decode, and only then.
func TestClientThatLeavesFreesAllThatItHeld(t *testing.T) {
	for _, tc := range []struct {
		name  string
		phase string
		// script sets the nodes up and returns what is closed when the request has come to the phase.
		script func(w *place) <-chan struct{}
		sent   bool // a decode was sent
	}{
		{"in prefill", "prefill", func(w *place) <-chan struct{} {
			g := newGate()
			w.prefill.script(waitsAt(g))
			return g.reached
		}, false},
		{"in prefill, in the middle of the answer", "prefill", func(w *place) <-chan struct{} {
			g := newGate()
			w.prefill.script(func(_ *fakePrefill, x *exchange) {
				x.w.Header().Set("Content-Length", "100")
				x.w.WriteHeader(200)
				_ = (&decode{exchange: x}).flush()
				x.at(g)
			})
			return g.reached
		}, false},
		{"in the KV wait", "kv_wait", func(w *place) <-chan struct{} {
			g := newGate()
			w.node.script(streams(waitsForKV(g)))
			return g.reached
		}, true},
		{"before the first line", "kv_wait", func(w *place) <-chan struct{} {
			g := newGate()
			w.node.script(streams(begins, stays(g)))
			return g.reached
		}, true},
		{"in the stream", "decode", func(w *place) <-chan struct{} {
			g := newGate()
			w.node.script(streams(begins, line(hello), stays(g)))
			return g.reached
		}, true},
	} {
		for _, kind := range kinds {
			t.Run(tc.name+", "+kind.name, func(t *testing.T) {
				w := newPlace(t, noQueueTime)
				reached := tc.script(w)
				c := w.ask(kind.body)
				happens(t, "the phase", reached)
				if tc.phase == "decode" && kind.body == streaming {
					c.until("Hello")
				} else if tc.phase == "decode" {
					await(t, "the first line is there", func() bool { return w.metric("pd_router_slot_state", "state", "decode") == 1 })
				}
				left := time.Now()
				c.leave(ErrClientGone)
				happens(t, "the end", c.ended)
				require.Less(t, time.Since(left), slack*100*time.Millisecond)
				await(t, "the upstream connection is closed", func() bool { return w.prefill.working()+w.node.working() == 0 })
				await(t, "the slot is free", func() bool { return w.state() == queue.Free })
				if tc.sent {
					require.Len(t, w.node.cancelled(), 1)
				} else {
					require.Empty(t, w.node.cancelled())
					require.Empty(t, w.node.asked())
				}
				require.Equal(t, 1, w.outcomes(ClientGone, 499))
				require.Equal(t, 1., w.metric("pd_router_client_gone_total", "phase", tc.phase))
				require.Zero(t, w.metric("pd_router_upstream_errors_total"), "a client that leaves is no failure of a node")
				require.NotContains(t, c.text(), "[DONE]")
				w.ask(kind.body).end().wantOK("Hello, world")
			})
		}
	}
}

func TestClientThatLeavesTheLineCostsNothing(t *testing.T) { // promise 4
	w := newPlace(t)
	first, g := w.occupy()
	var clients []*client
	for i := range 20 {
		clients = append(clients, w.ask(prompt(fmt.Sprint("p", i))))
		w.inLine(i + 1)
	}
	for i, c := range clients {
		if i%2 == 0 {
			c.leave(ErrClientGone)
			happens(t, "the end", c.ended)
			require.Equal(t, 499, c.reply.Status)
		}
	}
	w.inLine(10)
	require.Len(t, w.prefill.came(), 1)
	require.Equal(t, 10., w.metric("pd_router_client_gone_total", "phase", "queue"))
	g.open()
	first.end()
	for i, c := range clients {
		if i%2 == 1 {
			c.end().wantOK("Hello, world")
		}
	}
	require.Len(t, w.prefill.came(), 11)
}

func TestClientLeavesWhileABusyNodeIsWaitedFor(t *testing.T) {
	for _, queueTime := range []time.Duration{0, time.Minute} {
		t.Run(queueTime.String(), func(t *testing.T) {
			w := newPlace(t, func(s *setup) { s.QueueTimeout = queueTime })
			w.node.plays(foreign)
			c := w.ask(blocking)
			await(t, "the first refusal", func() bool { return len(w.node.asked()) >= 1 })
			left := time.Now()
			c.leave(ErrClientGone)
			happens(t, "the end", c.ended)
			require.Less(t, time.Since(left), slack*50*time.Millisecond)
			require.Equal(t, 1, w.outcomes(ClientGone, 499))
			await(t, "the slot is free", func() bool { return w.state() == queue.Free })
		})
	}
}

// All clients leave at once: no slot and no upstream connection stays behind.
func TestStormOfClientsThatLeave(t *testing.T) {
	w := newPlace(t, two)
	gates := []*gate{newGate(), newGate()}
	for i, n := range w.nodes {
		n.script(streams(begins, line(hello), stays(gates[i])))
		n.crossing = true
	}
	var clients []*client
	for i := range 100 {
		clients = append(clients, w.ask(kinds[i%2].body))
	}
	for _, g := range gates {
		happens(t, "a node is at work", g.reached)
	}
	w.inLine(98)
	left := time.Now()
	for _, c := range clients {
		c.leave(ErrClientGone)
	}
	for _, c := range clients {
		happens(t, "the end", c.ended)
	}
	require.Less(t, time.Since(left), slack*250*time.Millisecond)
	gone := w.outcomes(ClientGone, 499)
	require.Equal(t, 100, gone+w.outcomes(OK, 200)) // one may have got the slot of another before it left too
	require.Greater(t, gone, 90)
	w.ask(blocking).end().wantOK("Hello, world")
}

func TestClientThatHadLeftBeforeIsNotServed(t *testing.T) {
	w := newPlace(t)
	first, g := w.occupy()
	c := w.ask(blocking)
	w.inLine(1)
	c.leave(ErrClientGone)
	g.open()
	first.end()
	happens(t, "the end", c.ended)
	require.Len(t, w.prefill.came(), 1)
}
