package router

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"pd-router/internal/metrics"
	"pd-router/internal/nodes"
	"pd-router/internal/openai"
	"pd-router/internal/queue"
	"pd-router/internal/token"
)

// The vocabulary of the tests. eos is a special token.
const (
	eos   = 0
	hello = 201
	comma = 202
	world = 203
	st    = 204
	op    = 205
	tail  = 206
)

// hi is "Hello, world", the reply of a node without a script.
var hi = []int{hello, comma, world}

// words is a tokenizer of that vocabulary.
func words(t testing.TB) *token.Tokenizer {
	tok, err := token.Parse([]byte(`{
		"added_tokens": [{"id": 0, "content": "<eos>", "special": true}],
		"decoder": {"type": "ByteLevel"},
		"model": {"type": "BPE", "vocab": {"<eos>": 0, "Hello": 201, ",": 202, "Ġworld": 203, "ST": 204, "OP": 205, "Ġtail": 206}}
	}`))
	require.NoError(t, err)
	return tok
}

// setup is what a test may want otherwise.
type setup struct {
	Options
	nodes       []nodeSetup
	window      int  // max_model_len of the prefill node
	noTokenizer bool // the router has none
	thinking    func(json.RawMessage) bool
	down        bool                      // the prefill node is down at the start
	logged      func(zapcore.Entry) error // is called with each line of the log
}

type nodeSetup struct {
	caps  string
	blank int32 // see fakeNode
	hello int
	down  bool
}

// place is a router between fakes.
type place struct {
	*testing.T
	prefill *fakePrefill
	nodes   []*fakeNode
	node    *fakeNode // the first
	router  *Router

	registry *prometheus.Registry
	logs     *observer.ObservedLogs
	requests int
	asked    sync.WaitGroup
}

// newPlace starts all and waits until the router knows its nodes. At the end of the test it checks what must hold after any.
func newPlace(t *testing.T, change ...func(*setup)) *place {
	t.Helper()
	s := setup{
		Options: Options{
			QueueTimeout: time.Minute, QueueMax: 1000, QueueMaxBytes: 1 << 20, PrefillTimeout: time.Minute,
			KVTimeout: time.Minute, StreamIdleTimeout: time.Minute, Parser: "none",
		},
		nodes: []nodeSetup{{caps: ableToAll}},
	}
	for _, f := range change {
		f(&s)
	}
	w := &place{T: t, registry: prometheus.NewRegistry()}
	before := goleak.IgnoreCurrent() // what a test that failed has left is not this one's
	var core zapcore.Core
	core, w.logs = observer.New(zap.DebugLevel)
	var names []string
	backends := Backends{Connect: nodes.Options{ConnectTimeout: time.Second}}
	for _, ns := range s.nodes {
		n := newFakeNode(t, ns.caps, ns.hello)
		n.blank.Store(ns.blank)
		n.start()
		if ns.down {
			n.die()
		}
		w.nodes = append(w.nodes, n)
		a := nodes.Address{Host: "127.0.0.1", CtrlPort: n.ctrlPort(), HTTPPort: n.port()}
		backends.Decode = append(backends.Decode, a)
		names = append(names, a.String())
	}
	w.node = w.nodes[0]
	w.prefill = newFakePrefill(t, w.nodes, s.window)
	w.prefill.start()
	if s.down {
		w.prefill.die()
	}
	backends.VLLM = "http://" + w.prefill.addr
	var tok *token.Tokenizer
	if !s.noTokenizer {
		tok = words(t)
	}
	gate := &openai.Gate{HasTokenizer: tok != nil, Thinking: s.thinking}
	m := metrics.New(w.registry, MetricsOptions(s.Options, names, func(st *metrics.State) { w.router.FillState(st) }))
	var hooks []zap.Option
	if s.logged != nil {
		hooks = append(hooks, zap.Hooks(s.logged))
	}
	var err error
	w.router, err = New(s.Options, backends, gate, tok, m, zap.New(core, hooks...))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() { // ended by stop, awaited at the end of the test
		defer close(ran)
		assert.NoError(t, w.router.Run(ctx))
	}()
	t.Cleanup(func() {
		stop()
		happens(t, "the end of Run", ran)
		w.prefill.close()
		for _, n := range w.nodes {
			n.close()
		}
		goleak.VerifyNone(t, before)
	})
	t.Cleanup(func() { w.check() }) // before the former
	await(t, "the router knows its nodes", func() bool {
		st := w.router.Stats()
		for i, be := range w.router.backends {
			if s.nodes[i].down == (st.Rows[i].State == queue.Free) || s.nodes[i].hello > 0 && be.Hello() == nil {
				return false
			}
		}
		return st.Paused == s.down
	})
	for i, be := range w.router.backends { // the slots are taken in the order of the nodes
		if !s.nodes[i].down {
			be.slot.Down()
			be.slot.Up()
		}
	}
	return w
}

// run is t.Run for a case that shares the place with others.
func (w *place) run(name string, test func(t *testing.T)) {
	outer := w.T
	defer func() { w.T = outer }()
	outer.Run(name, func(t *testing.T) {
		w.T = t
		test(t)
	})
}

// check is what must hold after every test, whatever happened in it.
func (w *place) check() {
	w.Helper()
	waitFor(w.T, "the end of all requests", &w.asked)
	await(w.T, "all slots are free", func() bool {
		st := w.router.Stats()
		return st.Slots[queue.Busy]+st.Slots[queue.Settling] == 0
	})
	await(w.T, "no request is open at a node", func() bool {
		open := w.prefill.working()
		for _, n := range w.nodes {
			open += n.working()
		}
		return open == 0
	})
	assert.Zero(w, w.router.Stats().Waiting, "requests in the line")
	assert.Equal(w, w.requests, int(w.metric("pd_router_requests_total")), "requests counted")
	assert.Equal(w, w.requests, w.logs.FilterMessage("request").Len(), "log lines of requests")
	assert.Zero(w, w.metric("pd_router_slots_busy"), "busy gauge")
	assert.Zero(w, w.metric("vllm:num_requests_running"), "running gauge")
	assert.Zero(w, w.metric("pd_router_queue_depth"), "depth gauge")
	for _, state := range []string{"prefill", "kv_wait", "decode", "settle"} {
		assert.Zero(w, w.metric("pd_router_slot_state", "state", state), "slots in state %s", state)
	}
	for i, n := range w.nodes {
		assert.Empty(w, n.misuse, "misuse of node %d", i)
		assert.Empty(w, n.abandoned(), "requests at node %d that nobody ended", i)
	}
	assert.Empty(w, w.prefill.misuse, "misuse of the prefill node")
}

func waitFor(t *testing.T, what string, wg *sync.WaitGroup) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		wg.Wait()
	}()
	happens(t, what, done)
}

// metric is the sum of all series of a family that have the labels.
func (w *place) metric(name string, labels ...string) (sum float64) {
	w.Helper()
	families, err := w.registry.Gather()
	require.NoError(w, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if hasLabels(m, labels) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func hasLabels(m *dto.Metric, labels []string) bool {
	has := map[string]string{}
	for _, l := range m.GetLabel() {
		has[l.GetName()] = l.GetValue()
	}
	for i := 0; i < len(labels); i += 2 {
		if has[labels[i]] != labels[i+1] {
			return false
		}
	}
	return true
}

// outcomes are the requests so far that ended so.
func (w *place) outcomes(o Outcome, code int) int {
	w.Helper()
	return int(w.metric("pd_router_requests_total", "outcome", o.String(), "code", fmt.Sprint(code)))
}

// state is what the first slot is doing.
func (w *place) state() queue.State { return slotState(w.router, 0) }

func slotState(r *Router, i int) queue.State { return r.Stats().Rows[i].State }
