package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"pd-router/internal/nodes"
	"pd-router/internal/router"
)

// gate is a point in a script: the node says that it is there, and waits.
type gate struct {
	reached, opened chan struct{}
	once            sync.Once
}

func newGate() *gate { return &gate{reached: make(chan struct{}), opened: make(chan struct{})} }

func (g *gate) open() { close(g.opened) }

// at waits until the gate opens; false when ctx, of the request that waits, ended first.
func (g *gate) at(ctx context.Context) bool {
	g.once.Do(func() { close(g.reached) })
	select {
	case <-g.opened:
		return true
	case <-ctx.Done():
		return false
	}
}

// backends are a prefill node and a decode node that answer as scripts say. Whether the router treats them well is not
// looked at here.
type backends struct {
	t             *testing.T
	prefill, node *httptest.Server

	mu        sync.Mutex
	onPrefill []func(context.Context) bool // before the usual answer; false: no answer
	onDecode  []func(*tokens)
	prefills  []*http.Request
	bodies    []string // of prefills
	working   int
}

func newBackends(t *testing.T) *backends {
	b := &backends{t: t}
	b.prefill = httptest.NewServer(http.HandlerFunc(b.servePrefill))
	b.node = httptest.NewServer(http.HandlerFunc(b.serveNode))
	return b
}

func (b *backends) close() {
	b.prefill.Close()
	b.node.Close()
}

// addresses are those for the router. Nothing listens at the control port: it is only asked for a hello.
func (b *backends) addresses() router.Backends {
	host, port, err := net.SplitHostPort(b.node.Listener.Addr().String())
	require.NoError(b.t, err)
	n, err := strconv.Atoi(port)
	require.NoError(b.t, err)
	return router.Backends{VLLM: b.prefill.URL, Decode: []nodes.Address{{Host: host, CtrlPort: 1, HTTPPort: n}}}
}

func (b *backends) name() string { return b.addresses().Decode[0].String() }

// prefillsWith has the next prefill wait for f.
func (b *backends) prefillsWith(f func(context.Context) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.onPrefill = append(b.onPrefill, f)
}

// decodesWith has the next decode answered by f.
func (b *backends) decodesWith(f func(*tokens)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.onDecode = append(b.onDecode, f)
}

// came is how many prefills have come.
func (b *backends) came() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.prefills)
}

// busy is how many requests are in work at both.
func (b *backends) busy() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.working
}

func (b *backends) work() func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.working++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.working--
	}
}

func (b *backends) servePrefill(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/health":
		return
	case "/v1/models":
		fmt.Fprint(w, `{"data":[{"id":"m","max_model_len":4096}]}`)
		return
	case "/tokenize", "/detokenize":
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, `{"path":%q,"got":%q}`, r.URL.Path, body)
		return
	}
	defer b.work()()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	b.mu.Lock()
	b.prefills = append(b.prefills, r)
	b.bodies = append(b.bodies, string(body))
	var wait func(context.Context) bool
	if len(b.onPrefill) > 0 {
		wait, b.onPrefill = b.onPrefill[0], b.onPrefill[1:]
	}
	b.mu.Unlock()
	if wait != nil && !wait(r.Context()) {
		return
	}
	fmt.Fprintf(w, `{"id":"chatcmpl-%s","model":"m","choices":[{"logprobs":{"content":[{"token":"token_id:201","logprob":-0.5}]}}],`+
		`"usage":{"prompt_tokens":4}}`, r.Header.Get("X-Request-Id"))
}

func (b *backends) serveNode(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/health":
	case "/decode_status":
		fmt.Fprint(w, `{"status":"idle","current_rid":null}`)
	case "/capabilities":
		http.NotFound(w, r)
	case "/pd/cancel":
		w.WriteHeader(404)
	case "/pd/decode":
		defer b.work()()
		_, _ = io.Copy(io.Discard, r.Body) // its end is what lets the server notice a hang-up
		b.mu.Lock()
		script := (*tokens).hello
		if len(b.onDecode) > 0 {
			script, b.onDecode = b.onDecode[0], b.onDecode[1:]
		}
		b.mu.Unlock()
		script(&tokens{w: w, ctx: r.Context()})
	}
}

// tokens is a token stream in the hands of a script.
type tokens struct {
	w    http.ResponseWriter
	ctx  context.Context
	sent int
}

// hello is a whole reply: "Hello, world".
func (s *tokens) hello() {
	s.line(201)
	s.line(202, 203)
	s.done()
}

// line sends ids; false when nobody takes them.
func (s *tokens) line(ids ...int) bool {
	s.sent += len(ids)
	b, _ := json.Marshal(ids)
	return s.raw(`{"t":` + string(b) + "}\n")
}

func (s *tokens) raw(text string) bool {
	if _, err := io.WriteString(s.w, text); err != nil {
		return false
	}
	return http.NewResponseController(s.w).Flush() == nil
}

func (s *tokens) done() {
	s.raw(fmt.Sprintf(`{"done":true,"n":%d,"finish_reason":"stop"}`+"\n", s.sent))
}

// cut breaks the connection off.
func (s *tokens) cut() { panic(http.ErrAbortHandler) }
