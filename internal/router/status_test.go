package router

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pd-router/internal/metrics"
	"pd-router/internal/queue"
)

func TestHealthStaysGoodOnceReadyAndListsWhatIsMissing(t *testing.T) { // promise 10
	w := newPlace(t, two)
	h, ok := w.router.Health()
	require.True(t, ok)
	require.Equal(t, Health{Status: "ok", DecodeFree: 2, DecodeUp: 2}, h)
	w.prefill.die()
	w.node.die()
	w.nodes[1].die()
	for _, be := range w.router.backends {
		be.Failed(errors.New("as a call would find")) // instead of waiting for the next look
	}
	w.router.prefill.Failed(errors.New("as a call would find"))
	clients := []*client{w.ask(blocking), w.ask(streaming)}
	await(t, "all are known to be down", func() bool {
		return len(w.router.Missing()) == 2 && w.router.Stats().Waiting == 2
	})
	h, ok = w.router.Health()
	require.True(t, ok)
	require.Equal(t, 2, h.QueueDepth)
	require.Equal(t, 0, h.DecodeUp)
	require.Subset(t, h.Missing, []string{
		"the prefill node (--vllm-url) does not answer", "no decode node (--decode) answers, of 2",
		"decode node " + w.router.backends[0].slot.Name() + " is down",
	})
	w.node.start()
	w.prefill.start()
	for _, c := range clients {
		c.end().wantOK("Hello, world")
	}
}

func TestPrefillNodeThatIsNotWellStillServes(t *testing.T) {
	w := newPlace(t)
	w.prefill.state.Lock()
	w.prefill.sick = true
	w.prefill.state.Unlock()
	w.router.prefill.Failed(nil) // asks for a look
	await(t, "the look", func() bool { return w.router.prefill.Sick() != "" })
	h, ok := w.router.Health()
	require.True(t, ok)
	require.Contains(t, h.Missing[0], "not well")
	await(t, "it is up", w.router.prefill.Up)
	w.ask(blocking).end().wantOK("Hello, world")
}

func TestPoolAndGaugesTellWhatASlotDoes(t *testing.T) {
	w := newPlace(t, func(s *setup) { s.nodes[0].hello = 100 })
	name := w.router.backends[0].slot.Name()
	require.Equal(t, Pool{Nodes: []PoolNode{{Host: "127.0.0.1", Name: name, State: "free", Up: true}}}, w.router.Pool())
	first, g := w.occupy()
	w.ask(blocking)
	w.inLine(1)
	require.Equal(t, Pool{Nodes: []PoolNode{{Host: "127.0.0.1", Name: name, State: "busy", Up: true, Busy: true}}, QueueDepth: 1}, w.router.Pool())
	require.Equal(t, 1., w.metric("pd_router_slots_busy"))
	require.Equal(t, 1., w.metric("pd_router_queue_depth"))
	require.Equal(t, float64(len(blocking)), w.metric("pd_router_queue_bytes"))
	await(t, "the state is decode", func() bool { return w.metric("pd_router_slot_state", "state", "decode") == 1 })
	st := metrics.State{Nodes: make([]metrics.NodeState, 1)}
	await(t, "the first token is counted", func() bool {
		w.router.FillState(&st)
		return st.Nodes[0].KVUsage == 0.05 // 4 of the prompt and 1
	})
	require.True(t, st.PrefillUp)
	g.open()
	first.end()
	w.inLine(0)
}

func TestModelListOutlivesThePrefillNode(t *testing.T) {
	w := newPlace(t, func(s *setup) { s.window = 4096 })
	await(t, "the list is read", func() bool { return w.router.prefill.Models().Page != nil })
	p := w.router.Models(t.Context(), nil)
	require.Equal(t, 200, p.Status)
	require.Equal(t, w.prefill.models(), string(p.Body), "vLLM's own page")
	w.prefill.die()
	p = w.router.Models(t.Context(), nil)
	require.Equal(t, 200, p.Status)
	require.Equal(t, w.prefill.models(), string(p.Body), "vLLM's own page")
}

// A node that hangs is none that answers.
func TestModelListDoesNotWaitForAHungPrefillNode(t *testing.T) {
	w := newPlace(t, func(s *setup) { s.window = 4096 })
	await(t, "the list is read", func() bool { return w.router.prefill.Models().Page != nil })
	w.router.listWait = 20 * time.Millisecond
	w.prefill.state.Lock()
	w.prefill.silent = true
	w.prefill.state.Unlock()
	start := time.Now()
	p := w.router.Models(t.Context(), nil)
	require.Equal(t, 200, p.Status)
	require.Equal(t, w.prefill.models(), string(p.Body))
	require.Less(t, time.Since(start), slack*100*time.Millisecond)
}

func TestNoModelListBeforeThePrefillNodeHasAnswered(t *testing.T) {
	w := newPlace(t, func(s *setup) { s.down = true })
	require.Nil(t, w.router.Models(t.Context(), nil))
}

func TestPassThroughIsAsItIs(t *testing.T) {
	w := newPlace(t)
	p, err := w.router.Pass(t.Context(), "POST", "/tokenize", nil, []byte(`{"prompt": "x"}`))
	require.NoError(t, err)
	require.Equal(t, `{"count":3}`, string(p.Body))
	require.Equal(t, []string{`{"prompt": "x"}`}, w.prefill.passed)
	w.prefill.die()
	_, err = w.router.Pass(t.Context(), "POST", "/tokenize", nil, []byte(`{}`))
	require.Error(t, err)
	gone, leave := context.WithCancelCause(t.Context())
	leave(ErrClientGone)
	_, err = w.router.Pass(gone, "POST", "/tokenize", nil, []byte(`{}`))
	require.ErrorIs(t, err, ErrClientGone)
}

// Run's end waits for slots that settle, and does not wait for ever: the nodes are the next router's.
func TestRunEndsWhileASlotSettles(t *testing.T) {
	w := newPlace(t)
	g := newGate()
	w.node.linger = g
	w.node.script(talks(newGate()))
	w.ask(`{"prompt":"x","stop":"STOP"}`).end().wantOK("Hello")
	require.Equal(t, queue.Settling, w.state())
	w.router.stop()
	settled := make(chan struct{})
	go func() { w.router.settling.Wait(); close(settled) }()
	happens(t, "the end of settling", settled)
	g.open()
}

func TestRouterThatCannotBeBuilt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := New(Options{}, Backends{VLLM: "ftp://x"}, nil, nil, nil, nil)
		require.ErrorContains(t, err, "--vllm-url")
	})
}
