package router

import (
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// soon bounds every wait of a test for something that should happen at once.
const soon = 5 * time.Second

// slack is by how much a promised time bound may be missed on a loaded machine.
const slack = 4

// await returns when cond holds. It is for states that nobody announces; what a fake does is told by gates.
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

// gate is a point in a script: the fake says that it is there, and waits.
type gate struct {
	reached, opened chan struct{}
	once            sync.Once
}

func newGate() *gate { return &gate{reached: make(chan struct{}), opened: make(chan struct{})} }

func (g *gate) arrive() { g.once.Do(func() { close(g.reached) }) }

func (g *gate) open() { close(g.opened) }

// fake is an HTTP server on a real socket that can die and come back on the same port.
type fake struct {
	t       *testing.T
	addr    string
	handler http.Handler

	mu   sync.Mutex
	srv  *http.Server
	open int            // requests in work
	came map[string]int // requests by connection

	handlers sync.WaitGroup
	serving  sync.WaitGroup
}

// start listens, on the port of before if there was one.
func (f *fake) start() {
	f.t.Helper()
	addr := f.addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	ln, err := net.Listen("tcp", addr)
	require.NoError(f.t, err)
	f.addr = ln.Addr().String()
	srv := &http.Server{Handler: f.handler, ErrorLog: log.New(io.Discard, "", 0)}
	f.mu.Lock()
	f.srv = srv
	f.mu.Unlock()
	f.serving.Go(func() { _ = srv.Serve(ln) })
}

// die closes the port and every connection.
func (f *fake) die() {
	f.mu.Lock()
	srv := f.srv
	f.mu.Unlock()
	_ = srv.Close()
}

func (f *fake) close() {
	f.die()
	f.serving.Wait()
	f.handlers.Wait()
}

func (f *fake) port() int {
	_, port, err := net.SplitHostPort(f.addr)
	require.NoError(f.t, err)
	n, err := strconv.Atoi(port)
	require.NoError(f.t, err)
	return n
}

// working is how many requests are in work.
func (f *fake) working() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

// exchange is one request at a fake, and what a script does with it.
type exchange struct {
	w    http.ResponseWriter
	r    *http.Request
	raw  []byte
	body map[string]any
	nth  int // request of its connection, from 1
}

// work reads a request and has it answered by play, which may panic with http.ErrAbortHandler to cut the connection.
func (f *fake) work(w http.ResponseWriter, r *http.Request, play func(*exchange)) {
	f.handlers.Add(1)
	defer f.handlers.Done()
	f.mu.Lock()
	f.open++
	if f.came == nil {
		f.came = map[string]int{}
	}
	f.came[r.RemoteAddr]++
	nth := f.came[r.RemoteAddr]
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.open--
	}()
	x := &exchange{w: w, r: r, nth: nth}
	var err error
	if x.raw, err = io.ReadAll(r.Body); err != nil {
		return // the router hung up while it was sending
	}
	if err := json.Unmarshal(x.raw, &x.body); err != nil {
		f.t.Errorf("%s got no JSON: %q", r.URL.Path, x.raw)
	}
	play(x)
}

// gone is closed when the router has closed the connection.
func (x *exchange) gone() <-chan struct{} { return x.r.Context().Done() }

// answer sends a whole reply.
func (x *exchange) answer(status int, body string) {
	x.w.Header().Set("Content-Type", "application/json")
	x.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	x.w.WriteHeader(status)
	_, _ = io.WriteString(x.w, body)
}

// cut breaks the connection off, whatever was sent. Nothing after it runs.
func (x *exchange) cut() { panic(http.ErrAbortHandler) }

// plain sends bytes that may be no HTTP, and closes the connection.
func (x *exchange) plain(s string) {
	c, _, err := x.w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	_, _ = io.WriteString(c, s)
	_ = c.Close()
}

// at waits at a gate; false when the router left meanwhile.
func (x *exchange) at(g *gate) bool {
	g.arrive()
	select {
	case <-g.opened:
		return true
	case <-x.gone():
		return false
	}
}
