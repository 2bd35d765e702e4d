package router

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// held is a place whose only slot is taken until release.
func held(t *testing.T, changes ...func(*setup)) (w *place, first *client, release func()) {
	w = newPlace(t, changes...)
	first, g := w.askUntilPrefill()
	return w, first, g.open
}

func TestClientIsToldItsPlace(t *testing.T) {
	w, first, release := held(t)
	second := w.askTold(streaming)
	second.until(": accepted\n\n: waiting, 0 before\n\n")
	third := w.askTold(streaming)
	third.until(": waiting, 1 before\n\n")
	release()
	first.end().wantOK("Hello, world")
	for _, c := range []*client{second, third} {
		c.end().wantOK("Hello, world")
		require.False(t, strings.Contains(c.text()[strings.Index(c.text(), "data: "):], "\n: "), "a comment after the reply began")
	}
}

func TestOnlyWhoAsksIsToldItsPlace(t *testing.T) {
	w, first, release := held(t)
	silent, whole := w.ask(streaming), w.askTold(blocking)
	w.inLine(2)
	release()
	first.end().wantOK("Hello, world")
	silent.end().wantOK("Hello, world")
	require.NotContains(t, silent.text(), ": ac")
	whole.end().wantOK("Hello, world")
	require.Equal(t, typeJSON, whole.reply.ContentType, "a blocking client has no stream for comments")
}

// The status has gone out before anything is certain: a refusal is an error event.
func TestRefusalOfAClientThatIsToldItsPlace(t *testing.T) {
	w, first, release := held(t, func(s *setup) { s.QueueMax = 1 })
	waiter := w.ask(blocking)
	w.inLine(1)
	c := w.askTold(streaming)
	a := c.end()
	require.Equal(t, 200, a.status)
	require.True(t, a.event)
	require.Equal(t, "queue_full", a.kind)
	require.Error(t, c.err, "the connection would end well")
	require.Equal(t, 1., w.metric("pd_router_requests_total", "outcome", "queue_full"))
	release()
	first.end().wantOK("Hello, world")
	waiter.end().wantOK("Hello, world")
}

func TestClientThatLeavesWhileItIsTold(t *testing.T) {
	w, first, release := held(t)
	c := w.askTold(streaming)
	c.until(": waiting")
	w.inLine(1)
	c.leave(ErrClientGone)
	happens(t, "the end of its request", c.ended)
	w.inLine(0)
	release()
	first.end().wantOK("Hello, world")
}

// What balancers take for a silent connection is none.
func TestClientIsToldItsPlaceAllTheTime(t *testing.T) { // in fake time
	synctest.Test(t, func(t *testing.T) {
		r, _ := still(t, Options{QueueTimeout: time.Minute})
		r.gate.HasTokenizer = true
		var told strings.Builder
		p := r.Serve(t.Context(), Call{Body: []byte(streaming), Start: time.Now(), TellPlace: true})
		_, err := p.WriteTo(&told)
		require.Error(t, err)
		require.InDelta(t, time.Minute/tellEvery, strings.Count(told.String(), ": waiting, 0 before\n\n"), 1)
	})
}
