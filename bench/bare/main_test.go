package main

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

// Each token comes as an event, and the slot comes back: after a reply, and after a leg that failed.
func TestBareServesOneAfterTheOther(t *testing.T) {
	answer := `{"choices":[{"logprobs":{"content":[{"token":"token_id:7"}]}}]}`
	var bodies []string
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(body)) // one request at a time, as there is one slot
		if r.URL.Path == "/pd/decode" {
			answer = `{}` // of the next prefill
			_, _ = io.WriteString(w, "{\"t\":[7]}\n{\"t\":[8]}\n{\"done\":true}\n")
			return
		}
		_, _ = io.WriteString(w, answer)
	}))
	defer node.Close()
	addr := node.Listener.Addr().String()
	b := &bare{slots: make(chan struct{}, 1), prefill: newClient(addr), decode: newClient(addr)}
	b.slots <- struct{}{}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &fasthttp.Server{Handler: b.serve}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()

	ask := func() (int, string) {
		resp, err := http.Post("http://"+ln.Addr().String()+"/v1/chat/completions", "application/json", strings.NewReader(`{"messages":[]}`))
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(text)
	}
	status, text := ask()
	assert.Equal(t, 200, status)
	assert.Equal(t, before+"7"+after+before+"8"+after+last, text)
	require.Len(t, bodies, 2)
	assert.Regexp(t, `^\{"messages":\[\],"max_tokens":1,"stream":false,"request_id":"[0-9a-f]{32}",`, bodies[0])
	assert.Contains(t, bodies[1], `"first_token_id":7,`)
	for range 2 { // the second of them finds the slot too
		status, text = ask()
		assert.Equal(t, 502, status)
		assert.Equal(t, "prefill named no token", text)
	}
	http.DefaultClient.CloseIdleConnections()
	require.NoError(t, s.Shutdown())
	require.NoError(t, <-done)
}
