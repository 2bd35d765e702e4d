package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"pd-router/internal/metrics"
	"pd-router/internal/openai"
	"pd-router/internal/queue"
	"pd-router/internal/router"
	"pd-router/internal/token"
)

// soon bounds every wait of a test for something that should happen at once.
const soon = 5 * time.Second

// slack is by how much a promised time bound may be missed on a loaded machine.
const slack = 4

// noticed is the bound within which a client that leaves must be noticed (promise 4).
const noticed = slack * 250 * time.Millisecond

// await returns when cond holds.
func await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", soon, what)
		}
	}
}

// happens returns when c is closed or has something.
func happens[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(soon):
		t.Fatalf("not within %s: %s", soon, what)
	}
	return v
}

// setup is what a test may want otherwise.
type setup struct {
	Options
	router   router.Options
	page     Page
	listener func(net.Listener) net.Listener // what clients come in by, nil: as it is
}

// edge is a server on a real listener, with a router and nodes behind it.
type edge struct {
	*testing.T
	backends *backends
	router   *router.Router
	server   *Server
	addr     string
	registry *prometheus.Registry
	logs     *observer.ObservedLogs

	stop    context.CancelFunc // begins the drain
	forced  chan struct{}
	stopped chan error // has the result of Run
	over    bool       // the result has been taken
	wires   []*wire
	told    int // log lines of requests that forget has dropped
}

// newEdge starts all. At the end of the test it checks what must hold after any.
func newEdge(t *testing.T, change ...func(*setup)) *edge {
	t.Helper()
	s := setup{
		Options: Options{MaxBody: 8 << 20, MaxReading: 64 << 20, DrainTimeout: time.Minute},
		router: router.Options{
			QueueTimeout: time.Minute, QueueMax: 1000, QueueMaxBytes: 64 << 20, PrefillTimeout: time.Minute,
			KVTimeout: time.Minute, StreamIdleTimeout: time.Minute, Parser: "none",
		},
	}
	for _, f := range change {
		f(&s)
	}
	e := &edge{T: t, registry: prometheus.NewRegistry(), forced: make(chan struct{}), stopped: make(chan error, 1)}
	before := append([]goleak.Option{goleak.IgnoreCurrent()}, notOurs...) // what a test that failed has left is not this one's
	var core zapcore.Core
	core, e.logs = observer.New(zap.DebugLevel)
	log := zap.New(core)
	e.backends = newBackends(t)
	tok, err := token.Parse([]byte(`{"added_tokens":[],"decoder":{"type":"ByteLevel"},
		"model":{"type":"BPE","vocab":{"Hello":201,",":202,"Ġworld":203}}}`))
	require.NoError(t, err)
	m := metrics.New(e.registry, router.MetricsOptions(s.router, []string{e.backends.name()}, func(st *metrics.State) { e.router.FillState(st) }))
	e.router, err = router.New(s.router, e.backends.addresses(), &openai.Gate{HasTokenizer: true}, tok, m, log)
	require.NoError(t, err)
	if s.page == nil {
		s.page = m.Write
	}
	e.server, err = New(s.Options, e.router, s.page, log)
	require.NoError(t, err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	e.addr = ln.Addr().String()
	if s.listener != nil {
		ln = s.listener(ln)
	}
	var ctx context.Context
	ctx, e.stop = context.WithCancel(context.Background())
	nodesCtx, stopNodes := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() { // ended by stopNodes, awaited at the end of the test
		defer close(watched)
		assert.NoError(t, e.router.Run(nodesCtx))
	}()
	go func() { e.stopped <- e.server.Run(ctx, ln, e.forced) }() // ended by e.stop
	t.Cleanup(func() {
		for _, c := range e.wires {
			_ = c.Close()
		}
		e.ends()
		stopNodes()
		happens(t, "the end of the router", watched)
		e.backends.close()
		goleak.VerifyNone(t, before...)
	})
	t.Cleanup(func() { e.check() }) // before the former
	happens(t, "ready", e.router.Ready())
	return e
}

// ends begins the drain and waits for the end of Run.
func (e *edge) ends() {
	e.Helper()
	if e.over {
		return
	}
	e.stop()
	require.NoError(e, happens(e.T, "the end of Run", e.stopped))
	e.over = true
}

// check is what must hold after every test: nothing is held, and every request is accounted for.
func (e *edge) check() {
	e.Helper()
	for _, c := range e.wires {
		_ = c.Close()
	}
	await(e.T, "no client is connected", func() bool { return e.server.Connections() == 0 })
	await(e.T, "all slots are free", func() bool {
		st := e.router.Stats()
		return st.Slots[queue.Busy]+st.Slots[queue.Settling] == 0
	})
	await(e.T, "no request is open at a node", func() bool { return e.backends.busy() == 0 })
	assert.Zero(e, e.router.Stats().Waiting, "requests in the line")
	assert.Zero(e, e.server.reading.Load(), "bytes reserved for bodies")
	assert.Equal(e, e.told+e.logs.FilterMessage("request").Len(), int(e.metric("pd_router_requests_total")), "requests counted and logged")
	assert.Empty(e, e.logs.FilterMessage("panic in a handler").All())
	assert.Empty(e, e.logs.FilterMessage("panic in a request").All())
}

// forget drops what the test has kept of the requests so far.
func (e *edge) forget() {
	e.Helper()
	for _, c := range e.wires {
		_ = c.Close()
	}
	e.wires = nil
	e.told += e.logs.FilterMessage("request").Len()
	e.logs.TakeAll()
	e.backends.mu.Lock()
	defer e.backends.mu.Unlock()
	e.backends.prefills, e.backends.bodies = nil, nil
}

// metric is the sum of all series of a family that have the labels.
func (e *edge) metric(name string, labels ...string) (sum float64) {
	e.Helper()
	families, err := e.registry.Gather()
	require.NoError(e, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	series:
		for _, m := range f.GetMetric() {
			has := map[string]string{}
			for _, l := range m.GetLabel() {
				has[l.GetName()] = l.GetValue()
			}
			for i := 0; i < len(labels); i += 2 {
				if has[labels[i]] != labels[i+1] {
					continue series
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// idle is how many connections a drain may close.
func (e *edge) idle() (n int) {
	cs := e.server.conns
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, c := range cs.open {
		c.mu.Lock()
		if c.idle {
			n++
		}
		c.mu.Unlock()
	}
	return n
}

// outcome waits until a request has ended so.
func (e *edge) outcome(name string, n int) {
	e.Helper()
	await(e.T, fmt.Sprint(n, " times ", name), func() bool { return e.metric("pd_router_requests_total", "outcome", name) == float64(n) })
}

// wire is a client's connection.
type wire struct {
	*net.TCPConn
	e *edge
	r *bufio.Reader
}

func (e *edge) dial() *wire {
	e.Helper()
	nc, err := net.Dial("tcp", e.addr)
	require.NoError(e, err)
	c := &wire{TCPConn: nc.(*net.TCPConn), e: e, r: bufio.NewReader(nc)}
	require.NoError(e, c.SetDeadline(time.Now().Add(4*soon)))
	e.wires = append(e.wires, c)
	return c
}

// send writes bytes as they are.
func (c *wire) send(s string) *wire {
	c.e.Helper()
	_, err := io.WriteString(c, s)
	require.NoError(c.e, err)
	return c
}

const chatPath = "/v1/chat/completions"

// post sends a request with its length. Further header lines may follow.
func (c *wire) post(path, body string, header ...string) *wire {
	c.e.Helper()
	return c.send(request("POST", path, fmt.Sprint("Content-Length: ", len(body)), header...) + body)
}

func request(method, path, line string, more ...string) string {
	lines := append([]string{method + " " + path + " HTTP/1.1", "Host: x", line}, more...)
	return strings.Join(lines, "\r\n") + "\r\n\r\n"
}

func (c *wire) get(path string) *wire {
	c.e.Helper()
	return c.send("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n")
}

// The simplest requests.
const (
	blocking  = `{"messages":[{"role":"user","content":"x"}]}`
	streaming = `{"messages":[{"role":"user","content":"x"}],"stream":true}`
)

// answer is a reply, read as far as it came.
type answer struct {
	*http.Response
	e    *edge
	body string
	err  error // of reading the body: io.ErrUnexpectedEOF is a body without its end
}

// head reads the head of the reply.
func (c *wire) head() *http.Response {
	c.e.Helper()
	r, err := http.ReadResponse(c.r, nil)
	require.NoError(c.e, err)
	return r
}

// reply reads the reply to its end.
func (c *wire) reply() *answer {
	c.e.Helper()
	r := c.head()
	b, err := io.ReadAll(r.Body)
	return &answer{r, c.e, string(b), err}
}

// until reads a stream until it has text.
func (c *wire) until(r *http.Response, text string) {
	c.e.Helper()
	var got []byte
	buf := make([]byte, 4096)
	for !strings.Contains(string(got), text) {
		n, err := r.Body.Read(buf)
		got = append(got, buf[:n]...)
		require.NoError(c.e, err, "%q in %s", text, got)
	}
}

// wantOK asserts a whole reply.
func (a *answer) wantOK() *answer {
	a.e.Helper()
	require.NoError(a.e, a.err)
	require.Equal(a.e, 200, a.StatusCode, a.body)
	if strings.HasPrefix(a.Header.Get("Content-Type"), "text/event-stream") {
		require.Contains(a.e, a.body, "data: [DONE]\n\n")
	} else {
		require.Contains(a.e, a.body, `"content":"Hello, world"`)
	}
	return a
}

// wantError asserts an error in the one form (invariant 4).
func (a *answer) wantError(status int, kind string) *answer {
	a.e.Helper()
	require.NoError(a.e, a.err)
	require.Equal(a.e, status, a.StatusCode, a.body)
	require.Equal(a.e, "application/json", a.Header.Get("Content-Type"))
	var body struct {
		Error struct {
			Message, Type string
			Code          int
		}
		ErrorType string `json:"error_type"`
	}
	require.NoError(a.e, json.Unmarshal([]byte(a.body), &body), a.body)
	require.Equal(a.e, []any{kind, kind, status}, []any{body.Error.Type, body.ErrorType, body.Error.Code}, a.body)
	require.NotEmpty(a.e, body.Error.Message)
	return a
}

// wantClosed asserts that the server closes the connection.
func (c *wire) wantClosed() {
	c.e.Helper()
	_, err := c.r.ReadByte()
	require.True(c.e, err == io.EOF || errors.Is(err, syscall.ECONNRESET), "%v", err)
}

// reset leaves with an RST.
func (c *wire) reset() {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// works asserts that the server serves somebody else.
func (e *edge) works() {
	e.Helper()
	e.dial().post(chatPath, blocking).reply().wantOK()
}
