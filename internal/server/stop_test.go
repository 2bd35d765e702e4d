package server

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

// refusesDials waits until nobody listens any more.
func (e *edge) refusesDials() {
	e.Helper()
	await(e.T, "nobody listens", func() bool {
		c, err := net.Dial("tcp", e.addr)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
}

func TestIdleServerStopsAtOnce(t *testing.T) { // promise 10
	for name, visit := range map[string]func(*edge){
		"nobody came":           func(*edge) {},
		"after a visit":         func(e *edge) { e.works() },
		"with idle connections": func(e *edge) { e.dial().post(chatPath, blocking).reply().wantOK(); e.dial().get("/health").reply() },
		"with silent connections": func(e *edge) {
			e.dial()
			e.dial()
			await(e.T, "they are in", func() bool { return e.server.Connections() == 2 })
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEdge(t)
			visit(e)
			start := time.Now()
			e.ends()
			require.Less(t, time.Since(start), slack*150*time.Millisecond)
			for _, c := range e.wires {
				c.wantClosed()
			}
			e.refusesDials()
			require.Empty(t, e.logs.FilterMessage("running requests are cut off").All())
		})
	}
}

// Invariant 5, promise 10: who is in the middle is served, who waits is told to come again, who is idle is let go, and
// nobody new gets in.
func TestDrainInTheOrderOfThePromises(t *testing.T) {
	e := newEdge(t)
	idle := e.dial().get("/health")
	idle.reply()
	running, g := e.occupy()
	head := running.head()
	running.until(head, "Hello")
	waiters := []*wire{e.dial().post(chatPath, blocking), e.dial().post(chatPath, streaming)}
	e.inLine(2)
	start := time.Now()
	e.stop()
	e.refusesDials()
	idle.wantClosed()
	for _, c := range waiters {
		a := c.reply().wantError(503, "draining")
		require.Equal(t, "1", a.Header.Get("Retry-After"))
		c.wantClosed()
	}
	require.Less(t, time.Since(start), slack*250*time.Millisecond)
	select {
	case <-e.stopped:
		t.Fatal("the server has stopped beside a running stream")
	case <-time.After(50 * time.Millisecond):
	}
	g.open()
	rest, err := io.ReadAll(head.Body)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(rest), "data: [DONE]\n\n"), "%q", rest)
	running.wantClosed()
	ended := time.Now()
	e.ends()
	require.Less(t, time.Since(ended), slack*150*time.Millisecond)
	require.Equal(t, []float64{1, 2}, []float64{
		e.metric("pd_router_requests_total", "outcome", "ok"), e.metric("pd_router_requests_total", "outcome", "draining"),
	})
}

// A request that comes on an open connection while the server drains is refused too. The connection is one that the
// drain must leave open, as it is in the middle of a request.
func TestRequestDuringADrainIsRefused(t *testing.T) {
	e := newEdge(t)
	running, g := e.occupy()
	late := e.dial().send("POST " + chatPath + " HTTP/1.1\r\nHost: x\r\n")
	await(t, "its first bytes are read", func() bool { return e.server.Connections() == 2 && e.idle() == 0 })
	e.stop()
	e.refusesDials()
	late.send("Content-Length: 2\r\n\r\n{}")
	late.reply().wantError(503, "draining")
	late.wantClosed()
	g.open()
	running.reply().wantOK()
	e.ends()
}

// Who is still sending a request is not waited for, and is told.
func TestClientThatIsStillSendingDoesNotHoldUpTheEnd(t *testing.T) {
	for name, sent := range map[string]string{
		"a head":         "POST " + chatPath + " HTTP/1.1\r\nHost: x\r\n",
		"a short body":   request("POST", chatPath, "Content-Length: 100"),
		"a body":         request("POST", chatPath, "Content-Length: 20000") + strings.Repeat(" ", 10_000),
		"a body, chunks": request("POST", chatPath, "Transfer-Encoding: chunked") + "2\r\n{}\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			e := newEdge(t)
			c := e.dial().send(sent)
			await(t, "its first bytes are read", func() bool { return e.server.Connections() == 1 && e.idle() == 0 })
			start := time.Now()
			e.ends()
			require.Less(t, time.Since(start), sendGrace+slack*150*time.Millisecond)
			c.reply().wantError(503, "draining")
			require.Empty(t, e.logs.FilterMessage("running requests are cut off").All())
		})
	}
}

func TestHealthSaysThatTheServerDrains(t *testing.T) {
	e := newEdge(t)
	running, g := e.occupy()
	c := e.dial().send("GET /health HTTP/1.1\r\n")
	await(t, "its first bytes are read", func() bool { return e.server.Connections() == 2 && e.idle() == 0 })
	e.stop()
	e.refusesDials()
	require.Equal(t, 503, c.send("Host: x\r\n\r\n").reply().StatusCode)
	g.open()
	running.reply().wantOK()
	e.ends()
}

// What still runs when the drain time is over, or at a second signal, is told so and cut.
func TestRunningRequestsAreCut(t *testing.T) {
	for name, cut := range map[string]func(*edge) time.Duration{
		"when the drain time is over": func(*edge) time.Duration { return 200 * time.Millisecond },
		"at the second signal":        func(e *edge) time.Duration { close(e.forced); return 0 },
	} {
		t.Run(name, func(t *testing.T) {
			e := newEdge(t, func(s *setup) {
				if strings.HasPrefix(name, "when") {
					s.DrainTimeout = 200 * time.Millisecond
				}
			})
			stream, _ := e.occupy()
			stream.until(stream.head(), "Hello")
			start := time.Now()
			e.stop()
			e.refusesDials()
			after := cut(e)
			rest, err := io.ReadAll(stream.r)
			require.NoError(t, err)
			require.Contains(t, string(rest), "event: error\ndata: ")
			require.Contains(t, string(rest), `"error_type":"draining"`)
			require.NotContains(t, string(rest), "[DONE]")
			require.False(t, strings.HasSuffix(string(rest), "0\r\n\r\n"), "a clean end")
			e.ends()
			require.GreaterOrEqual(t, time.Since(start), after)
			require.Less(t, time.Since(start), after+slack*150*time.Millisecond)
			require.Len(t, e.logs.FilterMessage("running requests are cut off").All(), 1)
			require.Equal(t, 1., e.metric("pd_router_requests_total", "outcome", "draining"))
		})
	}
}

func TestBlockingRequestThatIsCutHasAStatus(t *testing.T) {
	e := newEdge(t)
	g := newGate()
	e.backends.prefillsWith(g.at)
	c := e.dial().post(chatPath, blocking)
	happens(t, "the prefill", g.reached)
	e.stop()
	close(e.forced)
	c.reply().wantError(503, "draining")
	c.wantClosed()
	e.ends()
}

// A client that does not even read cannot hold up the end.
func TestClientThatDoesNotReadDoesNotHoldUpTheEnd(t *testing.T) {
	e := newEdge(t)
	f := newFlood()
	e.backends.decodesWith(f.play)
	c := e.dial().post(chatPath, streaming)
	f.stalls(t)
	start := time.Now()
	e.stop()
	close(e.forced)
	e.ends()
	require.Less(t, time.Since(start), forcedGrace+slack*150*time.Millisecond)
	_, _ = io.Copy(io.Discard, c.r)
	e.outcome("draining", 1)
}

// A connection that was accepted in the moment in which the drain began would be waited for, as nobody closes it.
func TestConnectionThatComesIntoADrainIsClosed(t *testing.T) {
	cs, err := newConnections()
	require.NoError(t, err)
	defer cs.stop()
	before, _ := net.Pipe()
	first := cs.add(before)
	cs.state(first, fasthttp.StateActive)
	cs.closeIdle(time.Now())
	client, late := net.Pipe()
	require.NoError(t, client.SetReadDeadline(time.Now().Add(soon)))
	cs.add(late)
	_, err = client.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, 1, cs.count())
	select {
	case <-cs.drained():
		t.Fatal("drained beside an open connection")
	default:
	}
	require.NoError(t, first.Close())
	happens(t, "drained", cs.drained())
}

// A listener that fails ends Run by itself.
func TestListenerThatFails(t *testing.T) {
	e := newEdge(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	broken := errors.New("broken")
	s, err := New(Options{MaxBody: 1}, e.router, e.server.page, e.server.log)
	require.NoError(t, err)
	require.ErrorIs(t, s.Run(t.Context(), failing{ln, broken}, nil), broken)
	require.NoError(t, ln.Close())
}

// A server that is told to stop before it has begun does not begin.
func TestStopBeforeTheStart(t *testing.T) {
	e := newEdge(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		s, err := New(Options{MaxBody: 1}, e.router, e.server.page, e.server.log)
		require.NoError(t, err)
		stopped := make(chan error, 1)
		go func() { stopped <- s.Run(ctx, ln, nil) }() // ended by ctx
		require.NoError(t, happens(t, "the end of Run", stopped))
	}
}

type failing struct {
	net.Listener
	err error
}

func (f failing) Accept() (net.Conn, error) { return nil, f.err }
