package router

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pd-router/internal/openai"
	"pd-router/internal/queue"
)

// wantFreeAtOnce asserts that the slot is back: nothing settles and a plain request is served.
func (w *place) wantFreeAtOnce() {
	w.Helper()
	require.Zero(w, w.router.Stats().Waiting)
	before := len(w.node.cancelled())
	w.ask(blocking).end().wantOK("Hello, world")
	require.Len(w, w.node.cancelled(), before)
}

func TestRefusalOfThePrefillNodeIsPassedOnByteForByte(t *testing.T) {
	w := newPlace(t)
	long := `{"error": {"message": "` + strings.Repeat("é", 3000) + `", "code": 1.0E+2}} ` + "\n"
	for _, tc := range []struct {
		name   string
		status int
		body   string
	}{
		{"a bad request, spaces and all", 400, "{ \"object\":\"error\",  \"message\": \"no\\u0041\" }\n"},
		{"too long a prompt", 400, long},
		{"a wrong key", 401, `{"error":"Unauthorized"}`},
		{"no such model", 404, `{"error":{"message":"The model does not exist","code":404}}`},
		{"a wrong type", 422, `[1]`},
		{"too many requests", 429, `{"error":"slow down"}`},
	} {
		for _, kind := range kinds {
			w.run(tc.name+", "+kind.name, func(t *testing.T) {
				prefills, same := len(w.prefill.came()), w.outcomes(PrefillRefused, tc.status)
				w.prefill.script(refuses(tc.status, tc.body))
				c := w.ask(kind.body)
				happens(t, "the reply", c.ended)
				require.Equal(t, tc.status, c.reply.Status)
				require.Equal(t, tc.body, string(c.reply.Body))
				require.Equal(t, typeJSON, c.reply.ContentType)
				require.Len(t, w.prefill.came(), prefills+1, "a refusal is not tried again")
				require.Equal(t, same+1, w.outcomes(PrefillRefused, tc.status))
				require.Zero(t, w.metric("pd_router_upstream_errors_total"), "a refusal is no failure of the node")
				w.wantFreeAtOnce()
			})
		}
	}
	require.Len(t, w.node.asked(), w.outcomes(OK, 200))
}

// vLLM quotes what it refuses, which may be the prompt.
func TestRefusalOfThePrefillNodeIsNotLogged(t *testing.T) {
	w := newPlace(t)
	for _, body := range []string{`{"error":"Input should be a list, got 'my-secret'"}`, "my-secret"} {
		w.prefill.script(refuses(400, body))
		require.Contains(t, w.ask(blocking).end().text(), "my-secret")
	}
	lines := w.logs.FilterMessage("request").All()
	require.Len(t, lines, 2)
	for _, e := range lines {
		require.Equal(t, "prefill_refused", e.ContextMap()["outcome"])
		require.NotContains(t, fmt.Sprint(e.ContextMap()), "my-secret")
	}
}

func TestRefusalThatIsNoJSONIsPutIntoTheUsualForm(t *testing.T) {
	w := newPlace(t)
	w.prefill.script(refuses(404, "<html>not here\xff"))
	a := w.ask(blocking).end().wantRefused(404, "bad_request")
	require.Contains(t, a.message, "<html>not here")
	for _, blank := range []string{"", " \n"} {
		w.prefill.script(refuses(401, blank))
		a = w.ask(blocking).end().wantRefused(401, "bad_request")
		require.Contains(t, a.message, "status 401")
	}
	for _, long := range []string{"x", "é", "漢", "😀"} {
		w.prefill.script(refuses(403, strings.Repeat(long, 501)))
		a = w.ask(blocking).end().wantRefused(403, "bad_request")
		require.Equal(t, strings.Repeat(long, 500), a.message)
	}
}

// A failed answer is no second prefill: its KV may be under way already. The client gets 502, the slot is back at once.
func TestFailureOfThePrefillNodeIsABadGateway(t *testing.T) {
	w := newPlace(t)
	good := `{"id":"chatcmpl-ab","choices":[{"logprobs":{"content":[{"token":"Hello"}]}}]}`
	for _, tc := range []struct {
		name   string
		script prefillScript
		says   string
	}{
		{"500", refuses(500, `{"error":"secret inside"}`), "the prefill node failed"},
		{"503", refuses(503, ``), "the prefill node failed"},
		{"a redirect", refuses(307, ``), "the prefill node failed"},
		{"a cut body", func(_ *fakePrefill, x *exchange) {
			x.w.Header().Set("Content-Length", "100")
			x.w.WriteHeader(200)
			_, _ = x.w.Write([]byte(`{"id":`))
			x.w.(http.Flusher).Flush()
			x.cut()
		}, "broke"},
		{"a cut refusal", func(_ *fakePrefill, x *exchange) {
			x.w.Header().Set("Content-Length", "100")
			x.w.WriteHeader(400)
			_, _ = x.w.Write([]byte(`{"error":`))
			x.w.(http.Flusher).Flush()
			x.cut()
		}, "broke"},
		{"half a head", func(_ *fakePrefill, x *exchange) { x.plain("HTTP/1.1 200 OK\r\nContent-") }, "broke"},
		{"no HTTP", func(_ *fakePrefill, x *exchange) { x.plain("\x00\xff not http\r\n\r\n") }, "broke"},
		{"no JSON", refuses(200, `{"id":`), "cannot be read"},
		{"no token id", refuses(200, good), "--return-tokens-as-token-ids"},
		{"no id", refuses(200, `{}`), "no id"},
	} {
		for _, kind := range kinds {
			w.run(tc.name+", "+kind.name, func(t *testing.T) {
				prefills, same := len(w.prefill.came()), w.outcomes(PrefillFailed, 502)
				w.prefill.script(tc.script)
				a := w.ask(kind.body).end().wantRefused(502, "prefill_failed")
				require.Contains(t, a.message, tc.says)
				require.NotContains(t, a.text(), "secret")
				require.Len(t, w.prefill.came(), prefills+1)
				require.Equal(t, same+1, w.outcomes(PrefillFailed, 502))
				w.wantFreeAtOnce()
			})
		}
	}
	require.Len(t, w.node.asked(), w.outcomes(OK, 200))
}

func TestPrefillThatBreaksBeforeAnyByteIsTriedOnceMoreUnderANewID(t *testing.T) {
	w := newPlace(t, func(s *setup) { s.QueueTimeout = 0 })
	w.prefill.script(breaks)
	w.ask(streaming).end().wantOK("Hello, world")
	calls := w.prefill.came()
	require.Len(t, calls, 2)
	require.NotEqual(t, calls[0].id, calls[1].id)
	require.Equal(t, calls[1].id, w.node.asked()[0]["rid"])
	require.Equal(t, 1., w.metric("pd_router_retries_total", "reason", retryPrefill))

	w.prefill.script(breaks, breaks)
	w.ask(blocking).end().wantRefused(502, "prefill_failed")
	require.Len(t, w.prefill.came(), 4, "no third try")
	await(t, "the prefill node is used", func() bool { return !w.router.Stats().Paused })
	w.wantFreeAtOnce()
}

func TestPrefillThatDoesNotAnswerInTimeIsAGatewayTimeout(t *testing.T) {
	const bound = 300 * time.Millisecond
	w := newPlace(t, func(s *setup) { s.PrefillTimeout = bound })
	g := newGate()
	w.prefill.script(waitsAt(g))
	c := w.ask(blocking)
	a := c.end().wantRefused(504, "prefill_failed")
	require.Contains(t, a.message, "--prefill-timeout")
	require.GreaterOrEqual(t, c.took, bound)
	require.Less(t, c.took, bound+slack*100*time.Millisecond)
	require.Len(t, w.prefill.came(), 1, "it may be at work already: no second prefill")
	require.Equal(t, 1., w.metric("pd_router_upstream_errors_total", "leg", legPrefill, "class", classTimeout))
	w.wantFreeAtOnce()
}

// Promise 1: while the prefill node is down a request waits for it, and holds no slot.
func TestRequestWaitsForThePrefillNodeWithoutASlot(t *testing.T) {
	w := newPlace(t)
	w.prefill.die()
	first, second := w.ask(blocking), w.ask(streaming)
	w.inLine(2)
	await(t, "the slot is free", func() bool { return w.state() == queue.Free }) // its node is told first that no KV will come
	require.Contains(t, w.router.Missing()[0], "--vllm-url")
	w.prefill.start()
	first.end().wantOK("Hello, world")
	second.end().wantOK("Hello, world")
	require.Zero(t, w.metric("pd_router_upstream_errors_total", "leg", legDecode))
}

func TestWithoutQueueTimeAnUnreachablePrefillNodeIsABadGatewayAtOnce(t *testing.T) {
	w := newPlace(t, func(s *setup) { s.QueueTimeout = 0 })
	w.prefill.die()
	c := w.ask(blocking)
	a := c.end()
	if a.status == 503 { // the router knew already that it is down
		a.wantRefused(503, "queue_timeout")
		require.Contains(t, a.message, "--vllm-url")
	} else {
		a.wantRefused(502, "prefill_failed")
		require.Contains(t, a.message, "cannot be reached")
	}
	require.Less(t, c.took, slack*100*time.Millisecond)
	w.prefill.start()
	await(t, "the prefill node is back", func() bool { return !w.router.Stats().Paused })
	w.wantFreeAtOnce()
}

func TestWaitForThePrefillNodeEndsAtTheBound(t *testing.T) {
	w := newPlace(t, func(s *setup) { s.QueueTimeout = 100 * time.Millisecond })
	w.prefill.die()
	c := w.ask(blocking)
	a := c.end()
	require.Contains(t, []int{502, 503}, a.status, a.text())
	require.Equal(t, 1, a.reply.RetryAfter)
	require.GreaterOrEqual(t, c.took, 100*time.Millisecond)
	require.Less(t, c.took, 100*time.Millisecond+slack*50*time.Millisecond)
	require.Empty(t, w.node.asked())
}

func TestRequestsWaitUntilThePrefillNodeAnswersForTheFirstTime(t *testing.T) { // promise 10
	w := newPlace(t, func(s *setup) { s.down = true })
	health, ok := w.router.Health()
	require.False(t, ok)
	require.Equal(t, "starting", health.Status)
	c := w.ask(blocking)
	w.inLine(1)
	w.prefill.start()
	c.end().wantOK("Hello, world")
	happens(t, "ready", w.router.Ready())
}

func TestHeadersOfTheClientGoOnToPrefill(t *testing.T) {
	w := newPlace(t)
	w.requests++
	p := w.router.Serve(t.Context(), Call{Body: []byte(blocking), Start: time.Now(), Forward: []byte("Authorization: Bearer k\r\ntraceparent: 00-1\r\n")})
	require.Equal(t, 200, p.Status)
	require.Equal(t, "Bearer k", w.prefill.came()[0].forward.Get("Authorization"))
	require.Equal(t, "00-1", w.prefill.came()[0].forward.Get("traceparent"))
}

// A client that comes again as soon as it was refused finds its slot free.
func TestSlotIsFreeWhenTheRefusalIsThere(t *testing.T) {
	w := newPlace(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // what is left to another goroutine comes too late
	for range 20 {
		w.prefill.script(refuses(400, `{"error":"no"}`))
		w.requests++
		reply := w.router.Serve(t.Context(), Call{Endpoint: openai.Chat, Body: []byte(blocking), Start: time.Now()})
		state := w.state()
		require.Equal(t, 400, reply.Status)
		require.Equal(t, queue.Free, state)
	}
}
