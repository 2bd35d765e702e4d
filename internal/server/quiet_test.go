package server

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// descriptors is how many the process has open, where that can be known.
func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc here")
	}
	return len(list)
}

// Load balancers look in by opening a connection and closing it: that is no event.
func TestEmptyConnectionsLeaveNothingBehind(t *testing.T) {
	e := newEdge(t)
	e.works()
	for _, c := range e.wires {
		_ = c.Close()
	}
	await(t, "nobody is connected", func() bool { return e.server.Connections() == 0 })
	open, lines := descriptors(t), e.logs.Len()
	for i := range 300 {
		c := e.dial()
		if i%2 == 0 {
			c.reset()
		} else {
			_ = c.Close()
		}
	}
	await(t, "nobody is connected", func() bool { return e.server.Connections() == 0 })
	for _, entry := range e.logs.All()[lines:] {
		t.Errorf("a log line: %s %v", entry.Message, entry.ContextMap())
	}
	await(t, "the descriptors are back", func() bool { return descriptors(t) <= open+2 }) // connections to the nodes come and go
	require.Equal(t, 1., e.metric("pd_router_requests_total"))
}

// live is the memory in use, without what the test itself keeps of requests.
func (e *edge) live() int {
	e.Helper()
	e.forget()
	await(e.T, "nobody is connected", func() bool { return e.server.Connections() == 0 })
	var m runtime.MemStats
	for range 3 { // pools are emptied by the second
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// A router runs for months: a request, however it ends, may leave nothing in memory.
func TestRequestsLeaveNoMemoryBehind(t *testing.T) {
	const each, may = 300, 100 // requests of each kind, bytes
	e := newEdge(t)
	some := func(n int) {
		for range n {
			c := e.dial()
			c.post(chatPath, blocking).reply().wantOK()
			c.post(chatPath, streaming).reply().wantOK()
			c.post(chatPath, "{").reply().wantError(400, "invalid_json")
			e.backends.decodesWith(func(s *tokens) { s.line(201); s.cut() })
			c.post(chatPath, streaming).reply()
			g := newGate()
			e.backends.prefillsWith(g.at)
			c = e.dial().post(chatPath, blocking)
			happens(t, "prefill", g.reached)
			_ = c.Close()
			await(t, "its end", func() bool { return e.backends.busy() == 0 })
		}
	}
	some(each / 2) // all that is kept for the next request is there
	before := e.live()
	some(each)
	grown := e.live() - before
	t.Logf("%d bytes for each of %d requests", grown/(5*each), 5*each)
	require.Less(t, grown, 5*each*may)
}

// What a client says to the model, and its keys, are in no log line at any level, whatever goes wrong.
func TestNoLogLineHoldsWhatAClientSent(t *testing.T) {
	const secret = "5ecret"
	e := newEdge(t, func(s *setup) { s.MaxBody = 4000 })
	key := "Authorization: Bearer " + secret
	chat := fmt.Sprintf(`{"messages":[{"role":"user","content":"%s"}]`, secret)
	for name, send := range map[string]func(*wire){
		"a good request":           func(c *wire) { c.post(chatPath, chat+"}", key) },
		"a stream":                 func(c *wire) { c.post(chatPath, chat+`,"stream":true}`, key, "Cookie: "+secret) },
		"broken JSON":              func(c *wire) { c.post(chatPath, chat, key) },
		"too long a body":          func(c *wire) { c.post(chatPath, strings.Repeat(secret, 1000), key) },
		"no HTTP":                  func(c *wire) { c.send(secret + "\r\n\r\n") },
		"a forbidden header":       func(c *wire) { c.get("/health\x00" + secret) },
		"a forbidden byte":         func(c *wire) { c.send(request("GET", "/health", "X: "+secret+"\x01")) },
		"a header without a colon": func(c *wire) { c.send(request("GET", "/health", secret)) },
		"too long a head":          func(c *wire) { c.send(request("GET", "/health", "X: "+strings.Repeat(secret, 4000))) },
		"an unknown path":          func(c *wire) { c.get("/" + secret) },
		"a pass-through":           func(c *wire) { c.post("/tokenize", chat+"}", key) },
		"a chunk size":             func(c *wire) { c.send(request("POST", chatPath, "Transfer-Encoding: chunked") + secret + "\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			c := e.dial()
			send(c)
			c.reply()
			_ = c.Close()
		})
	}
	// A client that leaves in the middle, and a prefill node that fails.
	g := newGate()
	e.backends.prefillsWith(g.at)
	c := e.dial().post(chatPath, chat+"}", key)
	happens(t, "the prefill", g.reached)
	_ = c.Close()
	e.outcome("client_gone", 1)
	e.backends.prefill.Close()
	e.dial().post("/tokenize", chat+"}", key).reply().wantError(502, "prefill_failed")
	require.NotEmpty(t, e.logs.All())
	for _, entry := range e.logs.All() {
		require.NotContains(t, fmt.Sprint(entry.Message, entry.ContextMap()), secret)
	}
}
