package server

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"pd-router/internal/queue"
)

// Invariant 2, promise 4: a client that leaves, politely or not, is noticed in every phase, and frees all that it held.
func TestClientThatLeavesIsNoticed(t *testing.T) {
	leave := []struct {
		name string
		how  func(*wire)
	}{{"closing", func(c *wire) { _ = c.Close() }}, {"resetting", (*wire).reset}}
	phases := []struct {
		name  string
		phase string
		// script sets the nodes up and returns what is closed when the request has come to the phase.
		script func(e *edge) <-chan struct{}
	}{
		{"in prefill", "prefill", func(e *edge) <-chan struct{} {
			g := newGate()
			e.backends.prefillsWith(g.at)
			return g.reached
		}},
		{"in the KV wait", "kv_wait", func(e *edge) <-chan struct{} {
			g := newGate()
			e.backends.decodesWith(func(s *tokens) { g.at(s.ctx) })
			return g.reached
		}},
		{"in the stream", "decode", func(e *edge) <-chan struct{} {
			g := newGate()
			e.backends.decodesWith(func(s *tokens) {
				s.line(201)
				g.at(s.ctx)
			})
			return g.reached
		}},
	}
	e := newEdge(t)
	gone := 0
	for _, l := range leave {
		for _, body := range []string{blocking, streaming} {
			for _, p := range phases {
				t.Run(fmt.Sprint(l.name, " ", p.name, ", ", body == streaming), func(t *testing.T) {
					reached := p.script(e)
					same := e.metric("pd_router_client_gone_total", "phase", p.phase)
					c := e.dial().post(chatPath, body)
					happens(t, "the phase", reached)
					switch {
					case p.phase == "decode" && body == streaming:
						c.until(c.head(), "Hello")
					case p.phase == "decode":
						await(t, "the first line is there", func() bool { return e.metric("pd_router_slot_state", "state", "decode") == 1 })
					}
					left := time.Now()
					l.how(c)
					gone++
					e.outcome("client_gone", gone)
					require.Less(t, time.Since(left), noticed)
					require.Equal(t, same+1, e.metric("pd_router_client_gone_total", "phase", p.phase))
					await(t, "the connections upstream are closed", func() bool { return e.backends.busy() == 0 })
					await(t, "the slot is free", func() bool { return e.router.Stats().Slots[queue.Free] == 1 })
					await(t, "the connection is closed", func() bool { return e.server.Connections() == 0 })
				})
			}
			t.Run(fmt.Sprint(l.name, " in the line, ", body == streaming), func(t *testing.T) {
				first, g := e.occupy()
				c := e.dial().post(chatPath, body)
				e.inLine(1)
				left := time.Now()
				l.how(c)
				gone++
				e.outcome("client_gone", gone)
				require.Less(t, time.Since(left), noticed)
				e.inLine(0)
				g.open()
				first.reply().wantOK()
				_ = first.Close()
			})
		}
	}
	e.works()
}

// occupy has a request in the slot until the gate opens.
func (e *edge) occupy() (*wire, *gate) {
	e.Helper()
	g := newGate()
	e.backends.decodesWith(func(s *tokens) {
		s.line(201)
		if g.at(s.ctx) {
			s.line(202, 203)
			s.done()
		}
	})
	c := e.dial().post(chatPath, streaming)
	happens(e.T, "the node is at work", g.reached)
	return c, g
}

func (e *edge) inLine(n int) {
	e.Helper()
	await(e.T, fmt.Sprint(n, " requests wait"), func() bool { return e.router.Stats().Waiting == n })
}

// Also while a reply cannot be written because the client does not read.
func TestClientThatLeavesWithoutReadingIsNoticed(t *testing.T) {
	e := newEdge(t)
	for i, how := range []func(*wire){
		func(c *wire) { _ = c.Close() }, (*wire).reset,
		func(c *wire) { _ = c.CloseWrite() }, // it still has its descriptor: no write would fail by itself
	} {
		flood := newFlood()
		e.backends.decodesWith(flood.play)
		c := e.dial()
		require.NoError(t, c.SetReadBuffer(4<<10))
		c.post(chatPath, streaming)
		flood.stalls(t)
		left := time.Now()
		how(c)
		e.outcome("client_gone", i+1)
		require.Less(t, time.Since(left), noticed)
		await(t, "the node is left too", func() bool { return e.backends.busy() == 0 })
	}
}

// A thousand idle connections do not keep the watcher from one that leaves.
func TestClientIsNoticedAmongMany(t *testing.T) {
	e := newEdge(t)
	for range 500 {
		e.dial()
	}
	g := newGate()
	e.backends.prefillsWith(g.at)
	c := e.dial().post(chatPath, blocking)
	happens(t, "the prefill", g.reached)
	left := time.Now()
	_ = c.Close()
	e.outcome("client_gone", 1)
	require.Less(t, time.Since(left), noticed)
}

// A client that leaves between two requests is no request's end, and the next connection is not taken for it.
func TestClientThatLeavesBetweenRequestsCostsNothing(t *testing.T) {
	e := newEdge(t)
	for range 20 {
		c := e.dial().post(chatPath, blocking)
		c.reply().wantOK()
		_ = c.Close()
	}
	require.Equal(t, 20., e.metric("pd_router_requests_total", "outcome", "ok"))
	require.Zero(t, e.metric("pd_router_requests_total", "outcome", "client_gone"))
}

// pair is both ends of a connection.
func pair(t *testing.T, ln net.Listener) (client, server *net.TCPConn) {
	t.Helper()
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	s, err := ln.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = c.Close(), s.Close() })
	return c.(*net.TCPConn), s.(*net.TCPConn)
}

func TestWatcherTellsEachClientThatLeft(t *testing.T) { // invariant 2
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	w, err := newWatcher()
	require.NoError(t, err)
	told := make(chan uint64, 100)
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		w.run(func(id uint64) { told <- id })
	}()
	add := func(id uint64) *net.TCPConn {
		c, s := pair(t, ln)
		w.add(s, id)
		return c
	}

	stays := add(1)
	_ = add(7).Close()
	require.EqualValues(t, 7, happens(t, "a close", told))

	large := uint64(0xdead_beef_f00d_cafe)
	c := add(large)
	_ = c.SetLinger(0)
	_ = c.Close()
	require.Equal(t, large, happens(t, "a reset", told))

	_ = add(8).CloseWrite()
	require.EqualValues(t, 8, happens(t, "the end of what a client sends", told))

	// Bytes that come are nobody's concern here, before the end or after it.
	c = add(9)
	_, err = c.Write([]byte("a request"))
	require.NoError(t, err)
	_ = c.Close()
	require.EqualValues(t, 9, happens(t, "a close behind bytes", told))

	// One that had left before it was watched.
	c, s := pair(t, ln)
	_ = c.Close()
	time.Sleep(10 * time.Millisecond)
	w.add(s, 10)
	require.EqualValues(t, 10, happens(t, "an early close", told))

	// A server that closes its own side is not told of.
	_, s = pair(t, ln)
	w.add(s, 11)
	_ = s.Close()

	var all sync.WaitGroup
	for i := range 200 {
		c := add(uint64(1000 + i))
		all.Go(func() { _ = c.Close() })
	}
	all.Wait()
	seen := map[uint64]bool{}
	for len(seen) < 200 {
		seen[happens(t, "200 closes", told)] = true
	}
	require.NotContains(t, seen, uint64(11))
	_, err = stays.Write([]byte("x"))
	require.NoError(t, err)
	w.close()
	happens(t, "the end of run", ran)
	require.Empty(t, told)
	w.add(stays, 12) // too late, and harmless
	goleak.VerifyNone(t, notOurs...)
}

// noSocket is a connection without a descriptor.
type noSocket struct{}

func (noSocket) SyscallConn() (syscall.RawConn, error) { return nil, syscall.EINVAL }

func TestConnectionThatCannotBeWatchedIsServedAllTheSame(t *testing.T) {
	w, err := newWatcher()
	require.NoError(t, err)
	defer w.close()
	w.add(noSocket{}, 1)
}

// The end may be told before the request has a context, and when there is none any more.
func TestHangUpBeforeAndAfterARequest(t *testing.T) {
	cs, err := newConnections()
	require.NoError(t, err)
	defer cs.stop()
	client, server := net.Pipe()
	defer client.Close()
	c := cs.add(server)
	require.Equal(t, 1, cs.count())
	ctx := c.begin(context.Background())
	require.NoError(t, ctx.Err())
	c.end()
	require.ErrorIs(t, context.Cause(ctx), context.Canceled)
	c.hangUp()
	ctx = c.begin(context.Background())
	require.ErrorContains(t, context.Cause(ctx), "client")
	c.end()
	c.end()
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	require.Zero(t, cs.count())
}
