package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStreamArrivesAsItIsMade(t *testing.T) {
	e := newEdge(t)
	g := newGate()
	e.backends.decodesWith(func(s *tokens) {
		s.line(201)
		if g.at(s.ctx) {
			s.line(202, 203)
			s.done()
		}
	})
	c := e.dial().post(chatPath, streaming)
	r := c.head()
	require.Equal(t, 200, r.StatusCode)
	require.Equal(t, "text/event-stream; charset=utf-8", r.Header.Get("Content-Type"))
	require.Equal(t, "no-cache", r.Header.Get("Cache-Control"))
	require.Equal(t, "no", r.Header.Get("X-Accel-Buffering"))
	require.Len(t, r.Header.Get("X-Pd-Rid"), 32)
	require.Contains(t, r.Header.Get("Server-Timing"), "prefill;dur=")
	require.Equal(t, []string{"chunked"}, r.TransferEncoding)
	c.until(r, "Hello") // while the node waits
	g.open()
	rest, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Contains(t, string(rest), " world")
	require.True(t, strings.HasSuffix(string(rest), "data: [DONE]\n\n"))
}

// recording keeps what was written to a client last.
type recording struct {
	net.Listener
	last atomic.Value
}

type recorded struct {
	net.Conn
	last *atomic.Value
}

func (r *recording) Accept() (net.Conn, error) {
	c, err := r.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &recorded{c, &r.last}, nil
}

func (r *recorded) Write(p []byte) (int, error) {
	r.last.Store(string(p))
	return r.Conn.Write(p)
}

// The end of the body is no system call, and no packet, of its own.
func TestEndOfAStreamGoesOutWithItsLastChunk(t *testing.T) {
	r := &recording{}
	e := newEdge(t, func(s *setup) {
		s.listener = func(ln net.Listener) net.Listener { r.Listener = ln; return r }
	})
	c := e.dial()
	for _, lines := range []int{1, 1000, 0, 1} { // of so many, what is left at the end is too long to be copied
		e.backends.decodesWith(func(s *tokens) {
			for range lines {
				s.line(201)
			}
			s.done()
		})
		c.post(chatPath, streaming)
		c.reply().wantOK()
		if last := r.last.Load().(string); lines < 1000 {
			require.True(t, strings.HasSuffix(last, "data: [DONE]\n\n\r\n0\r\n\r\n"), "%q", last)
		}
	}
}

func TestConnectionIsUsedAgainAfterAStream(t *testing.T) {
	e := newEdge(t)
	c := e.dial()
	for _, body := range []string{streaming, blocking, `{"messages":`, streaming, streaming, blocking} {
		c.post(chatPath, body)
		a := c.reply()
		if body == `{"messages":` {
			a.wantError(400, "invalid_json")
		} else {
			a.wantOK()
		}
	}
	require.Equal(t, 1, e.server.Connections())
}

// Several requests may be sent at once; they are answered one after the other.
func TestPipelinedRequestsAreAnsweredInOrder(t *testing.T) {
	e := newEdge(t)
	c := e.dial()
	length := func(body string) string { return fmt.Sprint("Content-Length: ", len(body)) }
	c.send(request("POST", chatPath, length(streaming)) + streaming + request("GET", "/health", "A: b") + request("POST", chatPath, length(blocking)) + blocking)
	c.reply().wantOK()
	require.Contains(t, c.reply().body, `"status":"ok"`)
	c.reply().wantOK()
}

// A client that sends its next request ahead has its reply when that is there.
func TestReplyDoesNotWaitForTheNextOne(t *testing.T) {
	e := newEdge(t)
	g := newGate()
	e.backends.prefillsWith(func(context.Context) bool { return true })
	e.backends.prefillsWith(g.at)
	c := e.dial()
	one := request("POST", chatPath, fmt.Sprint("Content-Length: ", len(blocking))) + blocking
	c.send(one + one)
	c.reply().wantOK()
	happens(t, "the second prefill", g.reached)
	g.open()
	c.reply().wantOK()
}

// Invariant 3, promise 7: no client can take a broken stream for a whole one.
func TestFailedStreamEndsInAnAbortedConnection(t *testing.T) {
	for name, end := range map[string]func(*tokens){
		"by a broken connection": func(s *tokens) { s.cut() },
		"by an early end":        func(*tokens) {},
		"by an error":            func(s *tokens) { s.raw(`{"error":"boom"}` + "\n") },
		"by nonsense":            func(s *tokens) { s.raw("nonsense\n") },
		"by a wrong count":       func(s *tokens) { s.sent = 99; s.done() },
	} {
		t.Run(name, func(t *testing.T) {
			e := newEdge(t)
			e.backends.decodesWith(func(s *tokens) {
				s.line(201)
				end(s)
			})
			c := e.dial().post(chatPath, streaming)
			a := c.reply()
			require.ErrorIs(t, a.err, io.ErrUnexpectedEOF, "the body has a clean end")
			require.Contains(t, a.body, "Hello")
			require.Contains(t, a.body, "event: error\ndata: {\"error\":{")
			require.NotContains(t, a.body, "[DONE]")
			require.NotContains(t, a.body, `"finish_reason":"stop"`)
			c.wantClosed()
			e.outcome("stream_failed", 1)
		})
	}
}

// A failure before the first byte has its status, and the connection goes on.
func TestFailureBeforeTheFirstByteHasItsStatus(t *testing.T) {
	e := newEdge(t)
	e.backends.decodesWith(func(s *tokens) { s.raw(`{"error":"boom"}` + "\n") })
	c := e.dial().post(chatPath, streaming)
	c.reply().wantError(502, "decode_failed")
	c.post(chatPath, streaming).reply().wantOK()
}

func TestHTTP10ClientGetsTheWholeReplyWithItsLength(t *testing.T) {
	e := newEdge(t)
	send := func(body, header string) *wire {
		return e.dial().send(fmt.Sprintf("POST %s HTTP/1.0\r\n%sContent-Length: %d\r\n\r\n%s", chatPath, header, len(body), body))
	}
	for _, body := range []string{streaming, blocking} {
		c := send(body, "")
		a := c.reply().wantOK()
		require.Empty(t, a.TransferEncoding)
		require.Equal(t, int64(len(a.body)), a.ContentLength)
		c.wantClosed()
		c = send(body, "Connection: keep-alive\r\n")
		c.reply().wantOK()
		c.post(chatPath, blocking).reply().wantOK()
	}
	e.backends.decodesWith(func(s *tokens) {
		s.line(201)
		s.cut()
	})
	send(streaming, "").reply().wantError(502, "decode_stream_failed")
	e.outcome("stream_failed", 1)
}

// flood is a node that never stops talking.
type flood struct{ sent atomic.Int64 }

func newFlood() *flood { return &flood{} }

func (f *flood) play(s *tokens) {
	ids := make([]int, 2000) // 10 KB a line, and 400 KB for the client
	for i := range ids {
		ids[i] = 201
	}
	for f.sent.Load() < 1<<16 && s.line(ids...) { // 25 GB in all
		f.sent.Add(1)
	}
}

// stalls waits until the node can send no more.
func (f *flood) stalls(t *testing.T) {
	t.Helper()
	last, since := int64(-1), time.Now()
	for end := time.Now().Add(4 * soon); last <= 0 || time.Since(since) < 200*time.Millisecond; time.Sleep(time.Millisecond) {
		if n := f.sent.Load(); n != last {
			last, since = n, time.Now()
		}
		if time.Now().After(end) {
			t.Fatalf("the node is not held up: it has sent %d lines", last)
		}
	}
}

// A slow reader holds up its own node by back-pressure; what it has not read is in no memory of ours.
func TestSlowReaderHoldsUpItsOwnNodeOnly(t *testing.T) {
	e := newEdge(t)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f := newFlood()
	e.backends.decodesWith(f.play)
	c := e.dial().post(chatPath, streaming)
	f.stalls(t)
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(8<<20))
	require.Equal(t, 200, e.dial().get("/health").reply().StatusCode)

	// It is held up, not broken off: the client may go on when it likes.
	c.until(c.head(), "Hello")
	_, err := io.CopyN(io.Discard, c.r, 4<<20)
	require.NoError(t, err)
	c.reset()
	e.outcome("client_gone", 1)
}
