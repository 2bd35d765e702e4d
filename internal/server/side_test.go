package server

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// side is a second listener of e, until the end of the test.
func side(e *edge, profiles bool) *edge {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(e, err)
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- e.server.ServeSide(ctx, ln, profiles) }() // ended by stop
	e.Cleanup(func() {
		stop()
		require.NoError(e, happens(e.T, "the end of the second listener", stopped))
	})
	at := *e
	at.addr = ln.Addr().String()
	return &at
}

func TestSecondListenerServesPagesForOperatorsOnly(t *testing.T) {
	e := newEdge(t)
	for _, tc := range []struct {
		name, method, path string
		profiles           bool
		status             int
		holds              string
	}{
		{"metrics", "GET", "/metrics", false, 200, "pd_router_requests_total"},
		{"health", "GET", "/health", false, 200, `"status":"ok"`},
		{"what slots do", "GET", "/pool_status", false, 200, `"nodes"`},
		{"not the API", "GET", "/v1/models", false, 404, "see /metrics"},
		{"nor its requests", "POST", "/v1/chat/completions", false, 404, "not_found"},
		{"nothing is changed", "POST", "/health", false, 405, "use GET"},
		{"no profiles unless asked for", "GET", "/debug/pprof/goroutine?debug=1", false, 404, "not_found"},
		{"profiles", "GET", "/debug/pprof/goroutine?debug=1", true, 200, "goroutine profile:"},
		{"no profiles of another name", "GET", "/debug/pprofx", true, 404, "not_found"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := side(e, tc.profiles).dial().send(request(tc.method, tc.path, "Content-Length: 0")).reply()
			require.Equal(t, tc.status, a.StatusCode, a.body)
			require.Contains(t, a.body, tc.holds)
		})
	}
}

func TestSecondListenerThatIsStoppedAtOnceEnds(t *testing.T) {
	e := newEdge(t)
	for range 50 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		ctx, stop := context.WithCancel(context.Background())
		stop()
		stopped := make(chan error, 1)
		go func() { stopped <- e.server.ServeSide(ctx, ln, false) }()
		require.NoError(t, happens(t, "the end of the second listener", stopped))
	}
}
