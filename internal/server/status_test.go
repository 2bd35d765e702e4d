package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"pd-router/internal/metrics"
	"pd-router/internal/nodes"
	"pd-router/internal/openai"
	"pd-router/internal/router"
	"pd-router/internal/status"
)

// statusRig is a server whose nodes were never heard of, with the pages that need none.
type statusRig struct {
	*testing.T
	base   string
	server *Server
	client *http.Client
	stop   func() time.Duration // ends Run and tells how long that took
}

func newStatusRig(t *testing.T, ln net.Listener) *statusRig {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t, notOurs...) }) // after all else
	node := nodes.Address{Host: "127.0.0.1", CtrlPort: 1, HTTPPort: 2}
	o := router.Options{QueueTimeout: time.Minute, QueueMax: 77, QueueMaxBytes: 1 << 20, Parser: "none"}
	m := metrics.New(prometheus.NewRegistry(), router.MetricsOptions(o, []string{node.String()}, func(*metrics.State) {}))
	r, err := router.New(o, router.Backends{VLLM: "http://127.0.0.1:9", Decode: []nodes.Address{node}}, &openai.Gate{}, nil, m, zap.NewNop())
	require.NoError(t, err)
	about := status.About{Version: "1.2.3", Settings: []status.Setting{{Flag: "--queue-max", Value: "77"}}}
	s, err := New(Options{MaxBody: 1 << 20, DrainTimeout: time.Minute, About: about}, r, m.Write, zap.NewNop())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx, ln, nil) }()
	rig := &statusRig{T: t, server: s, client: &http.Client{Transport: &http.Transport{}}}
	rig.base = "http://" + ln.Addr().String()
	rig.stop = func() time.Duration {
		t.Helper()
		began := time.Now()
		cancel()
		require.NoError(t, <-ran)
		ran <- nil
		return time.Since(began)
	}
	t.Cleanup(func() {
		rig.client.CloseIdleConnections()
		rig.stop()
		gone, end := context.WithCancel(context.Background())
		end()
		r.Run(gone) // only closes what New has opened
	})
	return rig
}

func onLoopback(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return ln
}

func (s *statusRig) do(method, path string, header ...string) *http.Response {
	s.Helper()
	req, err := http.NewRequest(method, s.base+path, nil)
	require.NoError(s, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.client.Do(req)
	require.NoError(s, err)
	return resp
}

func (s *statusRig) body(resp *http.Response) string {
	s.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(s, err)
	return string(b)
}

func TestStatusPageIsServedClosed(t *testing.T) {
	s := newStatusRig(t, onLoopback(t))
	resp := s.do("GET", "/")
	page := s.body(resp)
	h := resp.Header
	assert.Equal(t, []any{200, "text/html; charset=utf-8", string(status.HTML().HTML)}, []any{resp.StatusCode, h.Get("Content-Type"), page})
	assert.Equal(t, status.HTML().Policy, h.Get("Content-Security-Policy"))
	assert.Equal(t, []string{"nosniff", "no-referrer", "same-origin", "same-origin", "no-cache"}, []string{h.Get("X-Content-Type-Options"),
		h.Get("Referrer-Policy"), h.Get("Cross-Origin-Opener-Policy"), h.Get("Cross-Origin-Resource-Policy"), h.Get("Cache-Control")})

	resp = s.do("GET", "/", "If-None-Match", `"other", W/`+h.Get("ETag"))
	assert.Equal(t, []any{304, ""}, []any{resp.StatusCode, s.body(resp)})
	resp = s.do("GET", "/", "If-None-Match", `"other"`)
	assert.Equal(t, []any{200, page}, []any{resp.StatusCode, s.body(resp)})
	resp = s.do("HEAD", "/")
	assert.Equal(t, []any{200, ""}, []any{resp.StatusCode, s.body(resp)})
	resp = s.do("POST", "/")
	assert.Equal(t, 405, resp.StatusCode)
	s.body(resp)
}

func TestHealthIsBadUntilTheNodesHaveAnswered(t *testing.T) {
	s := newStatusRig(t, onLoopback(t))
	resp := s.do("GET", "/health")
	page := s.body(resp)
	assert.Equal(t, 503, resp.StatusCode)
	assert.Contains(t, page, `"status":"starting"`)
	assert.Contains(t, page, `"missing":["the prefill node (--vllm-url) does not answer","no decode node (--decode) answers, of 1"]`)
}

func TestQueueIsTheSnapshot(t *testing.T) {
	s := newStatusRig(t, onLoopback(t))
	resp := s.do("GET", "/queue")
	var got status.Snapshot
	require.NoError(t, json.Unmarshal([]byte(s.body(resp)), &got))
	assert.Equal(t, []string{"application/json", "no-store", "nosniff"},
		[]string{resp.Header.Get("Content-Type"), resp.Header.Get("Cache-Control"), resp.Header.Get("X-Content-Type-Options")})
	assert.Equal(t, []any{"starting", "1.2.3", 77, "down", 1}, []any{got.State, got.Version, got.Line.Max, got.Slots[0].Phase, len(got.Config)})
	assert.NotEmpty(t, got.Missing)
}

// event reads one event of a feed.
func event(t *testing.T, r *bufio.Reader) (name, data string) {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		require.NoError(t, err)
		switch line = strings.TrimSuffix(line, "\n"); {
		case line == "":
			return name, data
		case strings.HasPrefix(line, "event: "):
			name = line[len("event: "):]
		default:
			data = strings.TrimPrefix(line, "data: ")
		}
	}
}

func TestFeedStreamsAndEndsWithADrain(t *testing.T) {
	s := newStatusRig(t, onLoopback(t))
	resp := s.do("GET", "/status/feed")
	defer resp.Body.Close()
	assert.Equal(t, []any{200, "text/event-stream; charset=utf-8", "no-store", "nosniff"},
		[]any{resp.StatusCode, resp.Header.Get("Content-Type"), resp.Header.Get("Cache-Control"), resp.Header.Get("X-Content-Type-Options")})
	assert.True(t, resp.Close, "nothing else may run on the connection: its write deadline may be spent")
	r := bufio.NewReader(resp.Body)
	name, data := event(t, r)
	assert.Equal(t, "snapshot", name)
	assert.True(t, json.Valid([]byte(data)))
	name, data = event(t, r)
	assert.Equal(t, "update", name)
	assert.True(t, json.Valid([]byte(data)))
	assert.Less(t, s.stop(), 5*time.Second, "with a drain time-out of a minute")
	for name != "bye" {
		name, _ = event(t, r)
	}
	_, err := r.ReadByte()
	assert.ErrorIs(t, err, io.EOF, "the stream ends cleanly")
}

func TestHeadOfTheFeedHasNoBody(t *testing.T) {
	s := newStatusRig(t, onLoopback(t))
	resp := s.do("HEAD", "/status/feed")
	assert.Equal(t, []any{200, "text/event-stream; charset=utf-8", ""}, []any{resp.StatusCode, resp.Header.Get("Content-Type"), s.body(resp)})
}

func TestOldClientsGetTheFirstEventAlone(t *testing.T) {
	s := newStatusRig(t, onLoopback(t))
	c, err := net.Dial("tcp", strings.TrimPrefix(s.base, "http://"))
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "GET /status/feed HTTP/1.0\r\n\r\n")
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	body := s.body(resp)
	assert.Positive(t, resp.ContentLength)
	assert.True(t, strings.HasPrefix(body, "event: snapshot\ndata: {"))
	assert.Equal(t, 1, strings.Count(body, "event: "))
}

// TestWatchersThatLeaveMakeRoom also shows that the server notices them.
func TestWatchersThatLeaveMakeRoom(t *testing.T) {
	s := newStatusRig(t, onLoopback(t))
	var open []*http.Response
	var full *http.Response
	for full == nil {
		resp := s.do("GET", "/status/feed")
		if resp.StatusCode == 200 {
			open = append(open, resp)
			require.LessOrEqual(t, len(open), 32)
			continue
		}
		full = resp
	}
	assert.Len(t, open, 32)
	assert.Equal(t, []any{503, "5"}, []any{full.StatusCode, full.Header.Get("Retry-After")})
	assert.Contains(t, s.body(full), "/queue")
	for _, resp := range open {
		resp.Body.Close() // closes the connection: there is more to come on it
	}
	for end := time.Now().Add(noticed); ; time.Sleep(10 * time.Millisecond) { // nobody announces it
		resp := s.do("GET", "/status/feed")
		resp.Body.Close()
		if resp.StatusCode == 200 {
			break
		}
		require.True(t, time.Now().Before(end), "no room, though all have left")
	}
}

// pipes is a listener of connections without any buffer: a client that does not read blocks the server at once.
type pipes struct {
	accept chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func TestWatcherThatDoesNotReadHoldsUpNoDrain(t *testing.T) {
	ln := &pipes{accept: make(chan net.Conn), closed: make(chan struct{})}
	s := newStatusRig(t, ln)
	ours, theirs := net.Pipe()
	defer ours.Close()
	ln.accept <- theirs
	_, err := fmt.Fprint(ours, "GET /status/feed HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	head, err := bufio.NewReaderSize(ours, 16).ReadString(' ')
	require.NoError(t, err)
	assert.Equal(t, "HTTP/1.1 ", head) // the server is in the middle of its first write
	assert.Less(t, s.stop(), 5*time.Second)
}
