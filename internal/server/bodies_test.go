package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp/fasthttputil"
	"go.uber.org/zap"

	"pd-router/internal/metrics"
	"pd-router/internal/nodes"
	"pd-router/internal/openai"
	"pd-router/internal/router"
)

func TestBodiesThatAreRefused(t *testing.T) { // invariant 4
	e := newEdge(t, func(s *setup) { s.MaxBody = 1000 })
	big := strings.Repeat("x", 1001)
	for _, path := range []string{chatPath, "/v1/completions", "/tokenize"} {
		for _, tc := range []struct {
			name, sent string
			status     int
			kind       string
		}{
			{"neither a length nor chunks", request("POST", path, "A: b"), 411, "bad_request"},
			{"too long by its length", request("POST", path, "Content-Length: 1001") + big[1:], 413, "payload_too_large"},
			{"far too long by its length", request("POST", path, "Content-Length: 99999999999") + big[1:], 413, "payload_too_large"},
			{"too long by its length, and not sent", request("POST", path, "Content-Length: 1001"), 413, "payload_too_large"},
			{"too long by its length, and waits to be told", request("POST", path, "Content-Length: 1001", "Expect: 100-continue"), 413, "payload_too_large"},
			{"too long by its chunks", request("POST", path, "Transfer-Encoding: chunked") + "3e9\r\n" + big + "\r\n", 413, "payload_too_large"},
			{"compressed", request("POST", path, "Content-Length: 2", "Content-Encoding: gzip") + "{}", 415, "unsupported_media_type"},
			{"a form with files", request("POST", chatPath, "Content-Length: 2", "Content-Type: multipart/form-data; boundary=x") + "{}", 415, "unsupported_media_type"},
		} {
			t.Run(path+" "+tc.name, func(t *testing.T) {
				c := e.dial().send(tc.sent)
				c.reply().wantError(tc.status, tc.kind)
				c.wantClosed()
			})
		}
	}
	require.Zero(t, e.backends.came())
	await(t, "they are accounted for", func() bool { return e.metric("pd_router_requests_total", "outcome", "invalid") == 2*8+1 })
	require.Equal(t, 10., e.metric("pd_router_requests_total", "code", "413"))
	e.works()
}

// Closing with bytes unread resets the connection, and clients report that instead of the refusal.
func TestClientThatIsRefusedMayGoOnSending(t *testing.T) {
	e := newEdge(t, func(s *setup) { s.MaxBody = 8 << 20 })
	half := strings.Repeat("x", 4<<20)
	long := fmt.Sprint("Content-Length: ", 2*len(half))
	for _, tc := range []struct {
		name, head string
		status     int
		kind       string
	}{
		{"a body that is too long", request("POST", chatPath, fmt.Sprint("Content-Length: ", 2*len(half)+1)), 413, "payload_too_large"},
		{"a path that is not there", request("POST", "/nowhere", long), 404, "not_found"},
		{"a path that is not there, and a body that is too long", request("POST", "/nowhere", fmt.Sprint("Content-Length: ", 2*len(half)+1)), 404, "not_found"},
		{"a method that is not allowed", request("POST", "/health", long), 405, "method_not_allowed"},
		{"forbidden bytes in the head", request("POST", chatPath, long, "A: b\x01"), 400, "bad_request"},
		{"a head that is too long", request("POST", chatPath, long, "A: "+half[:headBuffer]), 431, "header_too_large"},
		{"no HTTP", "what is this\r\n\r\n", 400, "bad_request"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := e.dial().send(tc.head + "x")
			c.reply().wantError(tc.status, tc.kind)
			c.send(half[1:]).send(half)
			_, err := c.r.ReadByte()
			require.Equal(t, io.EOF, err)
		})
	}
}

// Once a body that nobody wanted was passed over, the connection is as any other: its end is not waited for.
func TestConnectionThatGoesOnAfterARefusalEndsAtOnce(t *testing.T) {
	e := newEdge(t)
	c := e.dial().post("/nowhere", blocking)
	c.reply().wantError(404, "not_found")
	c.post(chatPath, blocking, "Connection: close").reply().wantOK()
	c.wantClosed()
	start := time.Now()
	await(t, "the connection is gone, though the client keeps its side", func() bool { return e.server.Connections() == 0 })
	require.Less(t, time.Since(start), lingerTime)
}

func TestBodiesThatAreAccepted(t *testing.T) {
	e := newEdge(t)
	large := fmt.Sprintf(`{"messages":[{"role":"user","content":%q}]}`, strings.Repeat("x", 5<<20))
	for _, tc := range []struct {
		name string
		send func(c *wire)
		body string
	}{
		{"with a length", func(c *wire) { c.post(chatPath, blocking) }, blocking},
		{"of any content type", func(c *wire) { c.post(chatPath, blocking, "Content-Type: text/plain") }, blocking},
		{"that say they are plain", func(c *wire) { c.post(chatPath, blocking, "Content-Encoding: identity") }, blocking},
		{"in chunks", func(c *wire) {
			c.send(request("POST", chatPath, "Transfer-Encoding: chunked"))
			for i := range len(blocking) {
				c.send("1\r\n" + blocking[i:i+1] + "\r\n")
			}
			c.send("0\r\n\r\n")
		}, blocking},
		{"after 100 Continue", func(c *wire) {
			c.send(request("POST", chatPath, fmt.Sprint("Content-Length: ", len(blocking)), "Expect: 100-continue"))
			require.Equal(t, 100, c.head().StatusCode)
			c.send(blocking)
		}, blocking},
		{"of five megabytes", func(c *wire) { c.post(chatPath, large) }, large},
		{"of five megabytes in chunks", func(c *wire) {
			c.send(request("POST", chatPath, "Transfer-Encoding: chunked"))
			for rest := large; rest != ""; {
				n := min(len(rest), 100_000)
				c.send(fmt.Sprintf("%x\r\n%s\r\n", n, rest[:n]))
				rest = rest[n:]
			}
			c.send("0\r\n\r\n")
		}, large},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := e.dial()
			tc.send(c)
			c.reply().wantOK()
			sent := e.backends.bodies[len(e.backends.bodies)-1]
			require.True(t, strings.HasPrefix(sent, tc.body[:len(tc.body)-1]), "the body came changed")
			c.post(chatPath, blocking).reply().wantOK() // on the same connection
		})
	}
}

func TestEmptyBodyIsNoJSON(t *testing.T) {
	e := newEdge(t)
	e.dial().post(chatPath, "").reply().wantError(400, "invalid_json")
	e.dial().send(request("POST", chatPath, "Transfer-Encoding: chunked")+"0\r\n\r\n").reply().wantError(400, "invalid_json")
}

const (
	size = 20_000
	head = 8 << 10 // of a body that comes in two parts
)

// Invariant 1: a slow upload takes neither a place in the line nor a slot.
func TestBodyIsReadWholeBeforeTheRequestQueues(t *testing.T) {
	e := newEdge(t)
	body := blocking + strings.Repeat(" ", size-len(blocking))
	slow := e.dial().send(request("POST", chatPath, fmt.Sprint("Content-Length: ", size)) + body[:head])
	await(t, "the body is being read", func() bool { return e.server.reading.Load() == size })
	for range 3 {
		e.works()
	}
	require.Equal(t, 3, e.backends.came())
	require.Zero(t, e.router.Stats().Waiting)
	slow.send(body[head:])
	slow.reply().wantOK()
	require.Zero(t, e.server.reading.Load())
}

// Invariant 1, promise 8: the bodies that are being read are bounded together.
func TestBytesOfBodiesBeingReadAreBounded(t *testing.T) {
	e := newEdge(t, func(s *setup) { s.MaxReading = 30_000 })
	part := strings.Repeat(" ", head)
	first := e.dial().send(request("POST", chatPath, fmt.Sprint("Content-Length: ", size)) + part)
	await(t, "the first is being read", func() bool { return e.server.reading.Load() == size })
	for _, sent := range []string{
		request("POST", chatPath, fmt.Sprint("Content-Length: ", size)) + part,
		request("POST", chatPath, "Transfer-Encoding: chunked") + "4e20\r\n" + strings.Repeat("x", size) + "\r\n",
	} {
		a := e.dial().send(sent).reply().wantError(429, "queue_full")
		require.Equal(t, "1", a.Header.Get("Retry-After"))
		require.Contains(t, a.body, "--queue-max-bytes 30000")
	}
	e.outcome("queue_full", 2)
	e.dial().post(chatPath, blocking).reply().wantOK() // there is room for a small one
	first.send(strings.Repeat(" ", size-head-len(blocking)) + blocking)
	first.reply().wantOK()
	require.Zero(t, e.server.reading.Load())
}

// A body that ends too early is a client that has left; one that makes no sense is the client's fault.
func TestBodyThatIsCutShort(t *testing.T) {
	e := newEdge(t)
	part := strings.Repeat(" ", head+10)
	n := 0
	for _, sent := range []string{
		request("POST", chatPath, fmt.Sprint("Content-Length: ", size)) + "{",
		request("POST", chatPath, fmt.Sprint("Content-Length: ", size)) + part,
		request("POST", chatPath, "Transfer-Encoding: chunked") + "4e20\r\n" + part,
		request("POST", chatPath, "Transfer-Encoding: chunked") + "200a\r\n" + part + "\r\n",
	} {
		for _, end := range []func(*wire){func(c *wire) { _ = c.Close() }, (*wire).reset} {
			c := e.dial().send(sent)
			await(t, "the body is being read", func() bool { return e.server.reading.Load() >= head+10 })
			left := time.Now()
			end(c)
			await(t, "it is given up", func() bool { return e.server.reading.Load() == 0 && e.server.Connections() == 0 })
			require.Less(t, time.Since(left), noticed)
			n++
			e.outcome("client_gone", n)
		}
	}
	e.dial().send(request("POST", chatPath, "Transfer-Encoding: chunked")+"2\r\n{}nonsense\r\n").reply().wantError(400, "bad_request")
	e.outcome("invalid", 1)
	require.Zero(t, e.backends.came())
	require.Equal(t, float64(n), e.metric("pd_router_client_gone_total", "phase", "read_body"))
}

// frozen is a server in a bubble of fake time: nothing in it touches the network. Its router has nodes that nobody
// looks at, so every request waits.
func frozen(t *testing.T, queueTime time.Duration) (*Server, *fasthttputil.InmemoryListener, func()) {
	t.Helper()
	o := router.Options{QueueTimeout: queueTime, QueueMax: 10, QueueMaxBytes: 1 << 20, Parser: "none"}
	a := nodes.Address{Host: "127.0.0.1", CtrlPort: 1, HTTPPort: 1}
	m := metrics.New(prometheus.NewRegistry(), router.MetricsOptions(o, []string{a.String()}, nil))
	r, err := router.New(o, router.Backends{VLLM: "http://127.0.0.1:1", Decode: []nodes.Address{a}}, &openai.Gate{}, nil, m, zap.NewNop())
	require.NoError(t, err)
	s, err := New(Options{MaxBody: 1 << 20, DrainTimeout: time.Minute}, r, m.Write, zap.NewNop())
	require.NoError(t, err)
	s.http.LazyRequestTime, s.http.NoDefaultDate = false, true // their clock would outlive the bubble
	ln := fasthttputil.NewInmemoryListener()
	sockets := s.conns.wrap(likeSockets{ln})
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(sockets) }()
	return s, ln, func() {
		s.drain(nil)
		require.NoError(t, <-served)
		s.conns.stop()
		time.Sleep(time.Minute) // for fasthttp's idle cleaners
	}
}

// likeSockets makes the time-outs of connections in memory those of sockets.
type likeSockets struct{ net.Listener }

func (l likeSockets) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return likeSocket{c}, err
}

type likeSocket struct{ net.Conn }

func (c likeSocket) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, fasthttputil.ErrTimeout) {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

func dialFrozen(t *testing.T, ln *fasthttputil.InmemoryListener, sent string) net.Conn {
	t.Helper()
	c, err := ln.Dial()
	require.NoError(t, err)
	_, err = c.Write([]byte(sent))
	require.NoError(t, err)
	return c
}

// readAll reads until the server closes, and says how long that took.
func readAll(c net.Conn) (string, time.Duration) {
	start := time.Now()
	var b strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			_ = c.Close()
			return b.String(), time.Since(start)
		}
	}
}

func TestSilentClientsAreGivenUpInTheirTime(t *testing.T) { // in fake time
	for _, tc := range []struct {
		name, sent string
		took       time.Duration
		status     string
	}{
		{"half a head", "POST /v1/chat/completions HTTP/1.1\r\nHos", headTimeout, "HTTP/1.1 408 "},
		{"half a body", request("POST", chatPath, "Content-Length: 20000") + strings.Repeat(" ", head+1), bodySilence, "HTTP/1.1 408 "},
		{"no request", "", headTimeout, ""},
		{"no second request", "GET /health HTTP/1.1\r\nHost: x\r\n\r\n", keepAlive, "HTTP/1.1 503 "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, ln, end := frozen(t, 0)
				got, took := readAll(dialFrozen(t, ln, tc.sent))
				require.Equal(t, tc.took, took.Truncate(time.Second))
				require.True(t, strings.HasPrefix(got, tc.status), got)
				end()
			})
		})
	}
}

// A slow upload is none that is silent: there is no bound on the whole.
func TestSlowUploadMayTakeItsTime(t *testing.T) { // in fake time
	synctest.Test(t, func(t *testing.T) {
		_, ln, end := frozen(t, 0)
		c := dialFrozen(t, ln, request("POST", chatPath, fmt.Sprint("Content-Length: ", head+20))+strings.Repeat("x", head))
		for range 20 {
			time.Sleep(bodySilence - 2*time.Second)
			_, err := c.Write([]byte("x"))
			require.NoError(t, err)
		}
		buf := make([]byte, 4096)
		n, err := c.Read(buf)
		require.NoError(t, err)
		require.Contains(t, string(buf[:n]), "invalid_json")
		_ = c.Close()
		end()
	})
}

// Promise 1, through the whole edge: half an hour of waiting, then the refusal.
func TestRequestMayWaitHalfAnHour(t *testing.T) { // in fake time
	synctest.Test(t, func(t *testing.T) {
		s, ln, end := frozen(t, 1800*time.Second)
		c := dialFrozen(t, ln, request("POST", chatPath, fmt.Sprint("Content-Length: ", len(blocking)), "Connection: close")+blocking)
		synctest.Wait()
		require.Equal(t, 1, s.router.Stats().Waiting)
		got, took := readAll(c)
		require.Equal(t, 1800*time.Second, took)
		require.True(t, strings.HasPrefix(got, "HTTP/1.1 503 "), got)
		require.Contains(t, got, "Retry-After: 1\r\n")
		end()
	})
}
