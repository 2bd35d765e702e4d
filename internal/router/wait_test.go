package router

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"pd-router/internal/metrics"
	"pd-router/internal/nodes"
	"pd-router/internal/openai"
	"pd-router/internal/queue"
)

// prompt is a text completion that can be told from others.
func prompt(name string) string { return fmt.Sprintf(`{"prompt":%q}`, name) }

// occupy has a request in the node's slot until the gate opens.
func (w *place) occupy() (*client, *gate) {
	w.Helper()
	g := newGate()
	w.node.script(streams(begins, line(hello), stays(g), done("stop")))
	c := w.ask(prompt("first"))
	happens(w.T, "the node is at work", g.reached)
	return c, g
}

// inLine waits until n requests wait.
func (w *place) inLine(n int) {
	w.Helper()
	await(w.T, fmt.Sprint(n, " requests wait"), func() bool { return w.router.Stats().Waiting == n })
}

func TestNothingIsSentUpstreamWhileARequestWaits(t *testing.T) { // invariant 1
	w := newPlace(t)
	first, g := w.occupy()
	second := w.ask(streaming)
	w.inLine(1)
	time.Sleep(30 * time.Millisecond) // room for a call that must not be made
	require.Len(t, w.prefill.came(), 1)
	require.Len(t, w.node.asked(), 1)
	g.open()
	first.end().wantOK("Hello")
	second.end().wantOK("Hello, world")
}

func TestFirstComeFirstServedOverFifty(t *testing.T) { // promise 2
	w := newPlace(t)
	first, g := w.occupy()
	want := []string{"first"}
	var clients []*client
	for i := range 50 {
		name := fmt.Sprint("p", i)
		want = append(want, name)
		clients = append(clients, w.ask(prompt(name)))
		w.inLine(i + 1)
	}
	g.open()
	first.end().wantOK("Hello")
	for _, c := range clients {
		c.end().wantOK("Hello, world")
	}
	require.Equal(t, want, w.prefill.prompts())
	require.Equal(t, 51., w.metric("pd_router_queue_wait_seconds", "outcome", "granted"))
}

func TestWaitEndsAtItsBound(t *testing.T) { // promises 1, 4
	w := newPlace(t, func(s *setup) { s.QueueTimeout = 100 * time.Millisecond })
	first, g := w.occupy()
	c := w.ask(streaming)
	a := c.end().wantRefused(429, "queue_timeout")
	require.Regexp(t, `waiting 0\.\ds`, a.message)
	require.Equal(t, 1, a.reply.RetryAfter)
	require.GreaterOrEqual(t, c.took, 100*time.Millisecond)
	require.Less(t, c.took, 100*time.Millisecond+slack*50*time.Millisecond)
	require.Len(t, w.prefill.came(), 1)
	g.open()
	first.end().wantOK("Hello")
	w.ask(blocking).end().wantOK("Hello, world")
}

func TestWithoutQueueTimeARequestIsRefusedAtOnce(t *testing.T) { // promise 1
	w := newPlace(t, func(s *setup) { s.QueueTimeout = 0 })
	first, g := w.occupy()
	a := w.ask(blocking).end().wantRefused(429, "queue_timeout")
	require.Contains(t, a.message, "--queue-timeout is 0")
	require.Equal(t, 1, w.outcomes(QueueTimeout, 429))
	g.open()
	first.end()
}

func TestFullQueueRefusesNewcomersOnly(t *testing.T) { // promises 1, 8
	for _, tc := range []struct {
		name   string
		limit  func(*setup)
		reason string
	}{
		{"by count", func(s *setup) { s.QueueMax = 2 }, "--queue-max 2"},
		{"by bytes", func(s *setup) { s.QueueMaxBytes = int64(2 * len(blocking)) }, "--queue-max-bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newPlace(t, tc.limit)
			first, g := w.occupy()
			a, b := w.ask(blocking), w.ask(blocking)
			w.inLine(2)
			refused := w.ask(blocking).end().wantRefused(429, "queue_full")
			require.Contains(t, refused.message, tc.reason)
			require.Equal(t, 1, refused.reply.RetryAfter)
			require.Equal(t, 1, w.outcomes(QueueFull, 429))
			g.open()
			for _, c := range []*client{first, a, b} {
				c.end()
			}
			require.Equal(t, 3, w.outcomes(OK, 200))
		})
	}
}

// Promise 1: a node that restarts is waited for; when it does not come back, the client is told what was missing.
func TestNodeThatIsDownIsWaitedFor(t *testing.T) {
	w := newPlace(t, func(s *setup) { s.nodes[0].down = true })
	c := w.ask(blocking)
	w.inLine(1)
	w.node.start()
	c.end().wantOK("Hello, world")
}

func TestWaitForADownNodeSaysWhatIsMissing(t *testing.T) {
	w := newPlace(t, func(s *setup) { s.nodes[0].down, s.QueueTimeout = true, 50*time.Millisecond })
	a := w.ask(blocking).end().wantRefused(503, "queue_timeout")
	require.Contains(t, a.message, "no decode node (--decode) answers")
	require.Equal(t, 1, a.reply.RetryAfter)
	require.Equal(t, 1, w.outcomes(QueueTimeout, 503))
}

// As many requests are in work at once as there are slots, however many these are.
func TestAllOfManySlotsWorkAtOnce(t *testing.T) {
	const many = 90 // half of them blocking, half streaming
	w := newPlace(t, func(s *setup) { s.nodes = slices.Repeat(s.nodes, many) })
	together := newGate()
	var atWork sync.WaitGroup
	atWork.Add(many)
	for _, n := range w.nodes {
		n.script(streams(begins, line(hello), func(*decode) bool { atWork.Done(); return true }, stays(together), done("stop")))
	}
	var clients []*client
	for i := range many {
		clients = append(clients, w.ask(kinds[i%2].body))
	}
	waitFor(t, "all nodes are at work", &atWork)
	together.open()
	for _, c := range clients {
		c.end().wantOK("Hello")
	}
}

// still is a router whose nodes are never looked at: nothing in it touches the network, so it can live in a bubble
// of fake time. Its queue is as New leaves it, paused with the slot down.
func still(t *testing.T, o Options) (*Router, *prometheus.Registry) {
	t.Helper()
	o.QueueMax, o.QueueMaxBytes, o.Parser = 100, 1<<20, "none"
	a := nodes.Address{Host: "127.0.0.1", CtrlPort: 1, HTTPPort: 1}
	reg := prometheus.NewRegistry()
	m := metrics.New(reg, MetricsOptions(o, []string{a.String()}, nil))
	r, err := New(o, Backends{VLLM: "http://127.0.0.1:1", Decode: []nodes.Address{a}}, &openai.Gate{}, nil, m, zap.NewNop())
	require.NoError(t, err)
	return r, reg
}

func TestWaitOfHalfAnHour(t *testing.T) { // promise 4, in fake time
	synctest.Test(t, func(t *testing.T) {
		r, _ := still(t, Options{QueueTimeout: 1800 * time.Second})
		start := time.Now()
		p := r.Serve(t.Context(), Call{Body: []byte(blocking), Start: start})
		require.Equal(t, 503, p.Status)
		require.Equal(t, 1800*time.Second, time.Since(start))
	})
}

func TestClientLeavesAfterTwentyMinutesInLine(t *testing.T) { // promise 4, in fake time
	synctest.Test(t, func(t *testing.T) {
		r, _ := still(t, Options{QueueTimeout: 1800 * time.Second})
		ctx, leave := context.WithCancelCause(t.Context())
		time.AfterFunc(20*time.Minute, func() { leave(ErrClientGone) })
		start := time.Now()
		p := r.Serve(ctx, Call{Body: []byte(blocking), Start: start})
		require.Equal(t, 499, p.Status)
		require.Equal(t, 20*time.Minute, time.Since(start))
		require.Zero(t, r.Stats().Waiting)
	})
}

// Promise 3: with --queue-timeout 0 a request that comes while the node lets go of a cancelled one waits up to a second.
func TestWithoutQueueTimeASettlingSlotIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := still(t, Options{})
		r.queue.Resume()
		r.backends[0].slot.Up()
		lease, err := r.queue.Acquire(t.Context(), queue.Want{})
		require.NoError(t, err)
		serve := func() time.Duration {
			start := time.Now()
			require.Equal(t, 503, r.Serve(t.Context(), Call{Body: []byte(blocking), Start: start}).Status)
			return time.Since(start)
		}
		require.Zero(t, serve(), "the slot is in use")
		lease.Settle()
		require.Equal(t, time.Second, serve(), "the slot is about to be free")
		lease.Release()
	})
}
