package router

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
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
	down        bool // the prefill node is down at the start
}

type nodeSetup struct {
	caps  string
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
	var err error
	w.router, err = New(s.Options, backends, gate, tok, m, zap.New(core))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() { // ended by stop, awaited at the end of the test
		defer close(ran)
		w.router.Run(ctx)
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
		for i, be := range w.router.backends {
			if s.nodes[i].down == be.Up() || s.nodes[i].hello > 0 && be.Hello() == nil {
				return false
			}
		}
		return s.down != w.router.prefill.Up()
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

// client is one request from the client's side, from asking to the end of the reply.
type client struct {
	w     *place
	leave context.CancelCauseFunc
	ended chan struct{} // closed at the end
	took  time.Duration

	reply *Reply // set when the head of the reply is there; to be read after ended
	err   error  // of WriteTo

	mu      sync.Mutex
	body    bytes.Buffer
	writes  []string
	more    chan struct{} // renewed by each write
	onWrite func(string)  // called before the client has the bytes
	refuses error         // of each further write
}

// ask sends a request and does not wait. The body is a chat unless it has a prompt.
func (w *place) ask(body string) *client { return w.askWith(body, nil) }

func (w *place) askWith(body string, onWrite func(string)) *client {
	w.requests++
	ctx, leave := context.WithCancelCause(context.Background())
	c := &client{w: w, leave: leave, ended: make(chan struct{}), more: make(chan struct{}), onWrite: onWrite}
	call := Call{Endpoint: openai.Chat, Body: []byte(body), Start: time.Now()}
	if strings.Contains(body, `"prompt"`) {
		call.Endpoint = openai.Completions
	}
	w.asked.Go(func() {
		defer close(c.ended)
		defer leave(nil)
		start := time.Now()
		c.reply = w.router.Serve(ctx, call)
		if c.reply.Stream() {
			_, c.err = c.reply.WriteTo(c)
		} else {
			c.mu.Lock()
			c.body.Write(c.reply.Body)
			c.mu.Unlock()
		}
		c.took = time.Since(start)
	})
	return c
}

// Write is the client's end of a stream.
func (c *client) Write(b []byte) (int, error) {
	if c.onWrite != nil {
		c.onWrite(string(b))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuses != nil {
		return 0, c.refuses
	}
	c.body.Write(b)
	c.writes = append(c.writes, string(b))
	close(c.more)
	c.more = make(chan struct{})
	return len(b), nil
}

// until returns when the client has text.
func (c *client) until(text string) {
	c.w.Helper()
	for {
		c.mu.Lock()
		more, found := c.more, strings.Contains(c.body.String(), text)
		c.mu.Unlock()
		if found {
			return
		}
		select {
		case <-more:
		case <-c.ended:
			c.w.Fatalf("the reply ended without %q: %d %s", text, c.reply.Status, c.body.String())
		case <-time.After(soon):
			c.w.Fatalf("not within %s: %q in %s", soon, text, c.text())
		}
	}
}

func (c *client) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.body.String()
}

// answer is what a client understood of a reply.
type answer struct {
	*client
	status  int
	content string
	finish  string
	stop    any
	usage   map[string]any
	kind    string // error type
	message string
	done    bool // the stream said [DONE]
	event   bool // the error came as an event
	json    map[string]any
}

// end waits for the end of the reply.
func (c *client) end() *answer {
	c.w.Helper()
	happens(c.w.T, "the end of a reply", c.ended)
	a := &answer{client: c, status: c.reply.Status}
	if c.reply.ContentType == typeSSE {
		for frame := range strings.SplitSeq(c.text(), "\n\n") {
			data, isError := frame, false
			if rest, ok := strings.CutPrefix(frame, "event: error\n"); ok {
				data, isError = rest, true
			}
			data, ok := strings.CutPrefix(data, "data: ")
			switch {
			case !ok:
				require.Empty(c.w, frame, "a frame that is no event")
			case data == "[DONE]":
				a.done = true
			case isError:
				a.event = true
				a.error(data)
			default:
				a.chunk(data)
			}
		}
		return a
	}
	if a.status != 200 {
		a.error(c.text())
		return a
	}
	require.NoError(c.w, json.Unmarshal([]byte(c.text()), &a.json), c.text())
	choice := a.json["choices"].([]any)[0].(map[string]any)
	if m, ok := choice["message"].(map[string]any); ok {
		a.content, _ = m["content"].(string)
	} else {
		a.content, _ = choice["text"].(string)
	}
	a.finish, a.stop = choice["finish_reason"].(string), choice["stop_reason"]
	a.usage = a.json["usage"].(map[string]any)
	return a
}

func (a *answer) error(data string) {
	a.w.Helper()
	require.NoError(a.w, json.Unmarshal([]byte(data), &a.json), data)
	a.kind, _ = a.json["error_type"].(string)
	if e, ok := a.json["error"].(map[string]any); ok {
		a.message, _ = e["message"].(string)
	}
}

func (a *answer) chunk(data string) {
	a.w.Helper()
	var c map[string]any
	require.NoError(a.w, json.Unmarshal([]byte(data), &c), data)
	if u, ok := c["usage"].(map[string]any); ok {
		a.usage = u
	}
	for _, ch := range c["choices"].([]any) {
		choice := ch.(map[string]any)
		if s, ok := choice["text"].(string); ok {
			a.content += s
		}
		if d, ok := choice["delta"].(map[string]any); ok {
			s, _ := d["content"].(string)
			a.content += s
		}
		if f, ok := choice["finish_reason"].(string); ok {
			a.finish, a.stop = f, choice["stop_reason"]
		}
	}
}

// wantOK asserts a whole reply with this text.
func (a *answer) wantOK(content string) *answer {
	a.w.Helper()
	require.Equal(a.w, 200, a.status, a.text())
	require.NoError(a.w, a.err)
	require.False(a.w, a.event, a.text())
	require.Equal(a.w, content, a.content)
	require.Equal(a.w, a.reply.ContentType == typeSSE, a.done, a.text())
	return a
}

// wantRefused asserts an error before the first byte.
func (a *answer) wantRefused(status int, kind string) *answer {
	a.w.Helper()
	require.Equal(a.w, fmt.Sprint(status, " ", kind), fmt.Sprint(a.status, " ", a.kind), a.text())
	require.NotEqual(a.w, typeSSE, a.reply.ContentType)
	return a
}

// wantBroken asserts a stream that broke off: text, then an error event and no end (invariant 5).
func (a *answer) wantBroken(content, kind string) *answer {
	a.w.Helper()
	require.Equal(a.w, 200, a.status, a.text())
	require.Equal(a.w, content, a.content)
	require.True(a.w, a.event, a.text())
	require.Equal(a.w, kind, a.kind)
	require.False(a.w, a.done, "[DONE] after a failure")
	require.Empty(a.w, a.finish, "a closing chunk after a failure")
	require.Error(a.w, a.err, "the connection would end well")
	return a
}

// kinds are the two kinds of client.
var kinds = []struct{ name, body string }{{"blocking", blocking}, {"streaming", streaming}}

// both runs a test as a blocking and as a streaming client; body builds the request from further members.
func both(t *testing.T, test func(t *testing.T, body func(members ...string) string)) {
	for _, mode := range []struct{ name, members string }{
		{"blocking", `"messages":[{"role":"user","content":"x"}]`},
		{"streaming", `"messages":[{"role":"user","content":"x"}],"stream":true`},
	} {
		t.Run(mode.name, func(t *testing.T) {
			test(t, func(members ...string) string {
				return "{" + strings.Join(append([]string{mode.members}, members...), ",") + "}"
			})
		})
	}
}

// The simplest requests.
const (
	blocking  = `{"messages":[{"role":"user","content":"x"}]}`
	streaming = `{"messages":[{"role":"user","content":"x"}],"stream":true}`
)
