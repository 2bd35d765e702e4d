package server

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

func TestPathsAndMethods(t *testing.T) {
	e := newEdge(t)
	for _, tc := range []struct {
		method, path string
		status       int
		kind         string // of an error
		allow        string
		holds        string
	}{
		{"GET", "/health", 200, "", "", `"status":"ok"`},
		{"GET", "/pool_status", 200, "", "", `"nodes":[{"host":"127.0.0.1"`},
		{"GET", "/metrics", 200, "", "", "pd_router_requests_total"},
		{"GET", "/v1/models", 200, "", "", "4096"},
		{"GET", "/v1/models?x=y", 200, "", "", "4096"},
		{"POST", "/tokenize", 200, "", "", `"got":"{}"`},
		{"POST", "/detokenize", 200, "", "", `"path":"/detokenize"`},
		{"GET", "/nowhere", 404, openai404, "", "/v1/chat/completions"},
		{"POST", "/v1/embeddings", 404, openai404, "", ""},
		{"GET", "/v1/chat/completions/", 404, openai404, "", ""},
		{"GET", "/v1/chat/completions", 405, openai405, "POST", ""},
		{"DELETE", "/v1/completions", 405, openai405, "POST", ""},
		{"POST", "/health", 405, openai405, "GET, HEAD", ""},
		{"PUT", "/metrics", 405, openai405, "GET, HEAD", ""},
		{"OPTIONS", "/v1/models", 405, openai405, "GET, HEAD", ""},
	} {
		t.Run(tc.method+" "+tc.path, func(t *testing.T) {
			a := e.dial().send(request(tc.method, tc.path, "Content-Length: 2") + "{}").reply()
			if tc.kind != "" {
				a.wantError(tc.status, tc.kind)
			}
			require.Equal(t, tc.status, a.StatusCode)
			require.Equal(t, tc.allow, a.Header.Get("Allow"))
			require.Contains(t, a.body, tc.holds)
			require.Empty(t, a.Header.Get("Server"))
		})
	}
}

const (
	openai404 = "not_found"
	openai405 = "method_not_allowed"
)

func TestHeadHasNoBody(t *testing.T) {
	e := newEdge(t)
	c := e.dial()
	c.send("HEAD /health HTTP/1.1\r\nHost: x\r\n\r\nGET /pool_status HTTP/1.1\r\nHost: x\r\n\r\n")
	r := c.head()
	require.Equal(t, 200, r.StatusCode)
	require.Contains(t, c.reply().body, "nodes") // right behind the head
}

// What a refused request still sends is not taken for the next one.
func TestBodyOfARefusedPathIsNoRequest(t *testing.T) {
	e := newEdge(t)
	inner := "GET /pool_status HTTP/1.1\r\nHost: x\r\n\r\n"
	for name, head := range map[string]string{
		"with a length": request("POST", "/nowhere", "Content-Length: 38"),
		"chunked":       request("POST", "/nowhere", "Transfer-Encoding: chunked") + "26\r\n",
		"a GET":         request("GET", "/health", "Content-Length: 38"),
	} {
		t.Run(name, func(t *testing.T) {
			require.Len(t, inner, 38)
			c := e.dial()
			c.send(head + inner)
			if strings.Contains(head, "chunked") {
				c.send("\r\n0\r\n\r\n")
			}
			c.reply()
			_ = c.CloseWrite()
			rest, _ := io.ReadAll(c.r)
			require.Empty(t, string(rest), "the body was taken for a request")
		})
	}
}

func TestNodeThatTellsNoModels(t *testing.T) {
	e := newEdge(t)
	e.backends.prefill.Config.Handler = nil // 404 to all
	require.Equal(t, 404, e.dial().get("/v1/models").reply().StatusCode, "it is passed on as it is")
}

func TestMetricsPageThatFails(t *testing.T) {
	e := newEdge(t, func(s *setup) {
		s.page = func(w io.Writer, _ string) (string, error) {
			_, _ = io.WriteString(w, "half a page")
			return "", errors.New("broken")
		}
	})
	a := e.dial().get("/metrics").reply().wantError(500, "internal_error")
	require.NotContains(t, a.body, "half")
	require.NotContains(t, a.body, "broken")
}

// A mistake of ours is one request's bad luck: fasthttp would let it end the process.
func TestPanicInAHandlerIsAnInternalError(t *testing.T) {
	e := newEdge(t, func(s *setup) {
		s.page = func(io.Writer, string) (string, error) { panic("a mistake") }
	})
	c := e.dial().get("/metrics")
	a := c.reply().wantError(500, "internal_error")
	require.NotContains(t, a.body, "mistake")
	c.wantClosed()
	require.Len(t, e.logs.FilterMessage("panic in a handler").All(), 1)
	e.logs.TakeAll()
	require.Equal(t, 200, e.dial().get("/health").reply().StatusCode)
}

func TestMalformedRequestsAreRefused(t *testing.T) { // invariant 4
	e := newEdge(t)
	for _, tc := range []struct {
		name, sent string
		status     int
		kind       string
	}{
		{"no HTTP at all", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "bad_request"},
		{"half a request line", "GET\r\n\r\n", 400, "bad_request"},
		{"a header without a colon", "GET /health HTTP/1.1\r\nHost: x\r\nnonsense\r\n\r\n", 400, "bad_request"},
		{"a header name with a space", "GET /health HTTP/1.1\r\nHost: x\r\nA B: c\r\n\r\n", 400, "bad_request"},
		{"a space before the colon", "GET /health HTTP/1.1\r\nHost: x\r\nA : c\r\n\r\n", 400, "bad_request"},
		{"a header name with a forbidden byte", "GET /health HTTP/1.1\r\nHost: x\r\nA\x01: c\r\n\r\n", 400, "bad_request"},
		{"an empty header name", "GET /health HTTP/1.1\r\nHost: x\r\n: c\r\n\r\n", 400, "bad_request"},
		{"a zero byte in a value", "GET /health HTTP/1.1\r\nHost: x\r\nA: b\x00c\r\n\r\n", 400, "bad_request"},
		{"a control byte in a value", "GET /health HTTP/1.1\r\nHost: x\r\nA: b\x1bc\r\n\r\n", 400, "bad_request"},
		{"a delete in a value", "GET /health HTTP/1.1\r\nHost: x\r\nA: b\x7fc\r\n\r\n", 400, "bad_request"},
		{"a bare carriage return in a value", "GET /health HTTP/1.1\r\nHost: x\r\nA: b\rc\r\n\r\n", 400, "bad_request"},
		{"a length that is no number", "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n", 400, "bad_request"},
		{"a negative length", "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", 400, "bad_request"},
		{"two lengths", "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400, "bad_request"},
		{"a length and chunks", "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", 400, "bad_request"},
		{"a length and chunks that are good", "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 400, "bad_request"},
		{"chunks and a length", "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\ncontent-length: 12\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 400, "bad_request"},
		{"a transfer coding that nobody knows", "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n{}", 400, "bad_request"},
		{"a chunk size that is no number", "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n{}", 400, "bad_request"},
		{"too long a head", "GET /health HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("a", 2*headBuffer) + "\r\n\r\n", 431, "header_too_large"},
		{"too long a path", "GET /" + strings.Repeat("a", 2*headBuffer) + " HTTP/1.1\r\nHost: x\r\n\r\n", 431, "header_too_large"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := e.dial().send(tc.sent)
			c.reply().wantError(tc.status, tc.kind)
			c.wantClosed()
		})
	}
	require.Zero(t, e.backends.came())
	e.works()
}

func TestEveryForbiddenByteIsFound(t *testing.T) {
	for b := range 256 {
		var h fasthttp.RequestHeader
		h.DisableNormalizing()
		h.SetBytesKV([]byte("A"+string([]byte{byte(b)})), []byte("x"))
		_, found := forbidden(&h)
		token := strings.IndexByte("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", byte(b)) >= 0
		require.Equal(t, !token, found, "name with %q", b)
		h.Reset()
		h.SetBytesKV([]byte("A"), []byte{'x', byte(b), 'x'})
		_, found = forbidden(&h)
		allowed := b == '\t' || b >= ' ' && b != 0x7f
		if b != '\r' && b != '\n' { // fasthttp itself replaces these
			require.Equal(t, !allowed, found, "value with %q", b)
		}
	}
}
