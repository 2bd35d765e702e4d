package router

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pd-router/internal/queue"
)

func TestReplyIsTheSameForBothKindsOfClient(t *testing.T) {
	both(t, func(t *testing.T, body func(...string) string) {
		w := newPlace(t)
		a := w.ask(body(`"max_tokens":7`, `"stream_options":{"include_usage":true}`)).end().wantOK("Hello, world")
		require.Equal(t, "stop", a.finish)
		require.Equal(t, map[string]any{"prompt_tokens": 4., "completion_tokens": 3., "total_tokens": 7.}, a.usage)
		prefill, decode := w.prefill.came(), w.node.asked()
		require.Len(t, prefill, 1)
		require.Len(t, decode, 1)
		require.Equal(t, prefill[0].id, decode[0]["rid"], "the decode is for the KV that prefill has sent")
		require.Equal(t, prefill[0].id, a.reply.RID)
		require.Equal(t, w.router.backends[0].slot.Name(), a.reply.Node)
		require.Contains(t, a.reply.Timing, "prefill;dur=")
		require.Equal(t, []any{float64(hello), 7.}, []any{decode[0]["first_token_id"], decode[0]["max_tokens"]})
		require.Equal(t, 1, w.outcomes(OK, 200))
		require.Empty(t, w.node.cancelled(), "a cancel after a good end")
	})
}

func TestBytesOfTheClientReachPrefillUnchanged(t *testing.T) { // promise 6
	w := newPlace(t)
	messages := `"messages": [ {"content":"\u00e4\/ 1.0E+2","role":"user"} ],  "x_unknown" : 9007199254740993.0`
	w.ask(`{` + messages + `}`).end().wantOK("Hello, world")
	require.Contains(t, string(w.prefill.came()[0].raw), messages)
}

func TestCompletionsAreServedToo(t *testing.T) {
	w := newPlace(t)
	w.ask(`{"prompt":"x"}`).end().wantOK("Hello, world")
	w.ask(`{"prompt":"x","stream":true}`).end().wantOK("Hello, world")
	require.Equal(t, "/v1/completions", w.prefill.came()[0].path)
	require.Equal(t, 2., w.metric("pd_router_requests_total", "endpoint", "completions", "outcome", "ok"))
}

// Each flush of the node is relayed at once, and what it has sent together goes out together.
func TestEachFlushOfTheNodeIsOneWrite(t *testing.T) {
	w := newPlace(t)
	first, second := newGate(), newGate()
	w.node.script(streams(begins, line(hello), stays(first),
		raw(`{"t":[202]}`+"\n"+`{"t":[203]}`+"\n"), stays(second), raw(`{"done":true,"n":3,"finish_reason":"length"}`+"\n"),
		func(d *decode) bool { d.end(); return true }))
	c := w.ask(streaming)
	happens(t, "the node waits", first.reached)
	c.until("Hello")
	require.NotContains(t, c.text(), "world")
	first.open()
	happens(t, "the node waits again", second.reached)
	c.until("world")
	require.NotContains(t, c.text(), "[DONE]")
	second.open()
	require.Equal(t, "length", c.end().wantOK("Hello, world").finish)
	require.Len(t, c.writes, 3, "%q", c.writes)
	require.Contains(t, c.writes[1], `","`)
	require.Contains(t, c.writes[1], ` world`)
}

// Invariant 3: a client that comes again when it has read the end of its reply finds the slot free.
func TestSlotIsFreeBeforeTheEndOfTheReplyCanBeRead(t *testing.T) {
	both(t, func(t *testing.T, body func(...string) string) {
		w := newPlace(t)
		var at []queue.State
		c := w.askWith(body(), func(chunk string) {
			if strings.Contains(chunk, "[DONE]") || strings.Contains(chunk, `"finish_reason":"stop"`) {
				at = append(at, w.state())
			}
		})
		c.end().wantOK("Hello, world")
		if strings.Contains(body(), "stream") {
			require.Equal(t, []queue.State{queue.Free}, at)
		} else {
			require.Equal(t, queue.Free, w.state())
		}
	})
}

// Promise 3: the node lets go of its slot after its last line, so the router waits for the end of the body.
func TestNextRequestComesWhenTheNodeHasEndedTheBody(t *testing.T) {
	for name, last := range map[string]step{
		"a good end": done("stop"), "an untyped error": fails("x", ""), "a typed error": fails("x", "invalid_parameter"), "a wrong count": doneWith(7, "stop"),
	} {
		for _, kind := range kinds {
			t.Run(name+", "+kind.name, func(t *testing.T) {
				w := newPlace(t, noQueueTime)
				w.node.plays(streams(begins, line(hello), last, func(*decode) bool { time.Sleep(20 * time.Millisecond); return true }))
				for range 2 {
					w.ask(kind.body).end()
				}
				require.Len(t, w.node.asked(), 2, "a decode met a busy node")
				require.Empty(t, w.node.cancelled())
			})
		}
	}
}

// Invariant 4, and a bound on it for the client: a node that has said the end and does not end the body is cancelled.
func TestNodeThatNeverEndsItsBodyIsCancelledAndSettles(t *testing.T) {
	both(t, func(t *testing.T, body func(...string) string) {
		w := newPlace(t)
		g := newGate()
		w.node.script(streams(begins, line(hi...), raw(`{"done":true,"n":3,"finish_reason":"stop"}`+"\n"), deaf(g)))
		c := w.ask(body())
		c.end().wantOK("Hello, world")
		require.Less(t, c.took, slack*250*time.Millisecond)
		require.NotEqual(t, queue.Free, w.state())
		await(t, "the cancel", func() bool { return len(w.node.cancelled()) == 1 })
		next := w.ask(body())
		await(t, "the next request is in line", func() bool { return w.router.Stats().Waiting == 1 })
		require.Len(t, w.prefill.came(), 1)
		g.open()
		next.end().wantOK("Hello, world")
	})
}

func TestClientThatTakesNoMoreBytesIsGone(t *testing.T) {
	w := newPlace(t)
	g := newGate()
	w.node.script(streams(begins, line(hello), stays(g), line(comma), stays(newGate())))
	c := w.ask(streaming)
	c.until("Hello")
	c.mu.Lock()
	c.refuses = ErrClientGone
	c.mu.Unlock()
	g.open()
	require.Error(t, c.end().err)
	await(t, "the cancel", func() bool { return len(w.node.cancelled()) == 1 })
	require.Equal(t, 1, w.outcomes(ClientGone, 499))
}

// Whoever holds a Reply with a stream and cannot write it closes it.
func TestStreamThatIsNotWrittenIsCancelled(t *testing.T) {
	w := newPlace(t)
	g := newGate()
	w.node.script(streams(begins, line(hello), stays(g)))
	w.requests++
	p := w.router.Serve(t.Context(), Call{Body: []byte(streaming), Start: time.Now()})
	require.True(t, p.Stream())
	p.Close()
	p.Close()
	require.False(t, p.Stream())
	await(t, "the cancel", func() bool { return len(w.node.cancelled()) == 1 })
	require.Equal(t, 1, w.outcomes(ClientGone, 499))
	n, err := p.WriteTo(nil)
	require.Zero(t, n)
	require.NoError(t, err)
}

func TestWithoutATokenizerRepliesHaveIDsOnly(t *testing.T) {
	w := newPlace(t, func(s *setup) { s.noTokenizer = true })
	a := w.ask(blocking).end()
	require.Equal(t, 200, a.status, a.text())
	choice := a.json["choices"].([]any)[0].(map[string]any)
	require.Equal(t, []any{201., 202., 203.}, choice["token_ids"])
	w.ask(streaming).end().wantRefused(501, "capability_unavailable")
}
