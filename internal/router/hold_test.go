package router

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAWithheldRouterServesAndIsNotReady(t *testing.T) {
	w := newPlace(t, func(s *setup) { s.down = true })
	w.router.Withhold("first reason")
	w.router.Withhold("not yet")
	w.prefill.start()
	happens(t, "answered", w.router.Answered())
	health, ok := w.router.Health()
	require.False(t, ok)
	require.Equal(t, "starting", health.Status)
	require.Equal(t, []string{"not yet"}, health.Missing)
	require.False(t, w.router.Look(0).Ready)
	w.ask(blocking).end().wantOK("Hello, world")
	select {
	case <-w.router.Ready():
		t.Fatal("ready before Allow")
	default:
	}
	w.router.Allow()
	happens(t, "ready", w.router.Ready())
	health, ok = w.router.Health()
	require.True(t, ok)
	require.Empty(t, health.Missing)
}

// What withholds a router names nodes, and is no reason why a client got no slot.
func TestClientIsNotToldWhatWithholdsTheRouter(t *testing.T) {
	w := newPlace(t, func(s *setup) { s.QueueTimeout = 50 * time.Millisecond })
	first, g := w.occupy()
	w.router.Withhold("10.0.0.7:5556 control: no hello")
	a := w.ask(blocking).end().wantRefused(429, "queue_timeout")
	require.NotContains(t, a.text(), "10.0.0.7")
	g.open()
	first.end().wantOK("Hello")
}
