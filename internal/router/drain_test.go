package router

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pd-router/internal/openai"
)

// Who waits is told to come again, who runs goes on.
func TestDrainRefusesWaitersAndLetsRunningRequestsEnd(t *testing.T) {
	w := newPlace(t)
	first, g := w.occupy()
	waiters := []*client{w.ask(blocking), w.ask(streaming)}
	w.inLine(2)
	start := time.Now()
	w.router.Drain()
	for _, c := range append(waiters, w.ask(blocking)) {
		a := c.end().wantRefused(503, "draining")
		require.Equal(t, 1, a.reply.RetryAfter)
	}
	require.Less(t, time.Since(start), slack*50*time.Millisecond)
	require.Len(t, w.prefill.came(), 1)
	g.open()
	first.end().wantOK("Hello")
	require.Equal(t, 3, w.outcomes(Draining, 503))
}

func TestDrainEndsTheWaitForABusyNode(t *testing.T) {
	w := newPlace(t)
	w.node.plays(foreign)
	c := w.ask(streaming)
	await(t, "the first refusal", func() bool { return len(w.node.asked()) >= 1 })
	w.router.Drain()
	c.end().wantRefused(503, "draining")
}

// When the drain time is over, what still runs is cut: a status before the first byte, an error event after it.
func TestEndOfTheDrainTimeCutsRunningRequests(t *testing.T) { // invariant 5
	t.Run("in prefill", func(t *testing.T) {
		w := newPlace(t)
		g := newGate()
		w.prefill.script(waitsAt(g))
		c := w.ask(blocking)
		happens(t, "the prefill", g.reached)
		c.leave(ErrDraining)
		c.end().wantRefused(503, "draining")
		require.Equal(t, 1, w.outcomes(Draining, 503))
	})
	t.Run("in the stream", func(t *testing.T) {
		w := newPlace(t)
		g := newGate()
		w.node.script(streams(begins, line(hello), stays(g)))
		c := w.ask(streaming)
		c.until("Hello")
		c.leave(ErrDraining)
		c.end().wantBroken("Hello", "draining")
		require.Equal(t, 1., w.metric("pd_router_requests_total", "outcome", "draining"))
		await(t, "the cancel", func() bool { return len(w.node.cancelled()) == 1 })
	})
}

func TestRefusalsOfTheEdgeAreAccountedForAlike(t *testing.T) { // invariant 2, promise 9
	w := newPlace(t)
	gone, leave := context.WithCancelCause(t.Context())
	leave(ErrClientGone)
	for _, tc := range []struct {
		ctx     context.Context
		kind    string
		outcome Outcome
		status  int
	}{
		{t.Context(), openai.TypePayloadTooLarge, Invalid, 413},
		{t.Context(), openai.TypeUnsupportedMediaType, Invalid, 415},
		{t.Context(), openai.TypeQueueFull, QueueFull, 429},
		{t.Context(), openai.TypeDraining, Draining, 503},
		{gone, openai.TypeBadRequest, ClientGone, 499},
	} {
		w.requests++
		p := w.router.Refuse(tc.ctx, Call{Start: time.Now()}, openai.Errorf(tc.kind, "x"))
		require.Equal(t, tc.status, p.Status)
		require.Equal(t, 1, w.outcomes(tc.outcome, tc.status), tc.kind)
	}
	require.Equal(t, 1., w.metric("pd_router_client_gone_total", "phase", "read_body"))
	require.Empty(t, w.prefill.came())
}
