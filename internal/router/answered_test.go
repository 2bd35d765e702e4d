package router

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A prefill node that has answered begins nothing more: a decode node whose buffer is free is left alone.
func TestKVOfAnAnsweredPrefillIsNotForgotten(t *testing.T) {
	for _, answer := range []prefillScript{refuses(500, "boom"), refuses(200, `{"id":"x"}`), refuses(400, "no")} {
		w := newPlace(t, greets)
		w.prefill.script(answer)
		require.NotEqual(t, 200, w.ask(blocking).end().status)
		w.ask(blocking).end().wantOK("Hello, world")
		require.Empty(t, w.node.forgotten())
	}
}

func TestBusyNodeIsNotToldToForget(t *testing.T) {
	w := newPlace(t, greets, func(s *setup) { s.QueueTimeout = 0 })
	w.node.script(foreign, foreign)
	w.ask(blocking).end().wantRefused(429, "decode_busy")
	require.Empty(t, w.node.forgotten())
	w.wantFreeAtOnce()
}
