package router

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zapcore"

	"pd-router/internal/openai"
)

// deaths are the ways in which a node can fail before its first line.
var deaths = []struct {
	name   string
	script nodeScript
}{
	{"it hangs up without a word", hangsUp},
	{"it answers no HTTP", func(d *decode) {
		d.node.state.Lock()
		d.node.refused[d.body["rid"].(string)] = true
		d.node.state.Unlock()
		d.plain("\x00\xff\r\n\r\n")
	}},
	{"it breaks off after the head", streams(begins, cuts)},
	{"its stream is empty", streams(begins)},
}

func TestNodeThatDiesBeforeItsFirstLineIsReplacedByAFreshPairElsewhere(t *testing.T) { // invariant 6
	for _, tc := range deaths {
		t.Run(tc.name, func(t *testing.T) {
			both(t, func(t *testing.T, body func(...string) string) {
				w := newPlace(t, two, noQueueTime)
				w.node.plays(tc.script)
				w.ask(body()).end().wantOK("Hello, world")
				calls := w.prefill.came()
				require.Len(t, calls, 2)
				require.NotEqual(t, calls[0].id, calls[1].id)
				require.Equal(t, calls[1].id, w.nodes[1].asked()[0]["rid"])
				require.Equal(t, 1., w.metric("pd_router_retries_total", "reason", retryPair))
				await(t, "the dead call is cancelled", func() bool { return len(w.node.cancelled()) == 1 })
				require.Equal(t, []string{calls[0].id}, w.node.cancelled())
				require.Empty(t, w.nodes[1].cancelled())
			})
		})
	}
}

func TestAttemptsAreBounded(t *testing.T) { // invariant 6
	for _, tc := range deaths {
		t.Run(tc.name, func(t *testing.T) {
			both(t, func(t *testing.T, body func(...string) string) {
				w := newPlace(t, two)
				w.nodes[0].plays(tc.script)
				w.nodes[1].plays(tc.script)
				w.ask(body()).end().wantRefused(502, w.lastType())
				require.Len(t, w.prefill.came(), maxAttempts)
				require.Equal(t, maxAttempts, len(w.nodes[0].rids())+len(w.nodes[1].rids()))
				require.Equal(t, 1, w.outcomes(DecodeFailed, 502))
			})
		})
	}
}

// lastType waits for the one request and is the error type that the log tells.
func (w *place) lastType() string {
	w.Helper()
	await(w.T, "the log line", func() bool { return w.logs.FilterMessage("request").Len() == w.requests })
	s, _ := w.logs.FilterMessage("request").All()[w.requests-1].ContextMap()["error_type"].(string)
	return s
}

func TestNodeThatCannotBeReachedIsReplaced(t *testing.T) {
	w := newPlace(t, two, noQueueTime)
	w.node.die()
	for range 3 {
		w.ask(streaming).end().wantOK("Hello, world")
	}
	require.Len(t, w.nodes[1].asked(), 3)
	require.LessOrEqual(t, len(w.prefill.came()), 4)
}

func TestOnlyNodeThatDiedIsWaitedFor(t *testing.T) { // promise 1
	w := newPlace(t)
	w.node.script(streams(begins, func(d *decode) bool {
		d.node.die()
		return false
	}))
	c := w.ask(streaming)
	w.inLine(1)
	await(t, "the router knows", func() bool { return !w.router.backends[0].Up() })
	require.Len(t, w.prefill.came(), 1, "a prefill for a node that is down")
	w.node.start()
	c.end().wantOK("Hello, world")
	require.Len(t, w.prefill.came(), 2)
}

// Invariant 6: the bound is on all waits of a request together.
func TestFurtherAttemptsWaitWithinTheSameQueueTime(t *testing.T) {
	w := newPlace(t, func(s *setup) { s.QueueTimeout = time.Second })
	first, g := w.occupy()
	w.node.script(streams(begins, func(d *decode) bool {
		d.node.die()
		return false
	}))
	c := w.ask(blocking)
	w.inLine(1)
	time.Sleep(900 * time.Millisecond)
	g.open()
	first.end().wantOK("Hello")
	require.Equal(t, 502, c.end().status)
	require.GreaterOrEqual(t, c.took, time.Second)
	require.Less(t, c.took, 1850*time.Millisecond) // and not as long again
}

func TestWithoutQueueTimeTheOnlyNodeIsNotTriedAgain(t *testing.T) {
	w := newPlace(t, noQueueTime)
	w.node.plays(hangsUp)
	w.ask(blocking).end().wantRefused(502, "decode_failed")
	require.Len(t, w.node.rids(), 1)
}

// Invariant 6: the same failure is told when no slot was to be had for another attempt.
func TestClientIsToldTheFirstFailureWhenNoOtherSlotIsFree(t *testing.T) {
	w := newPlace(t, two, noQueueTime)
	g := newGate()
	w.nodes[0].script(streams(begins, line(hello), stays(g), done("stop")))
	first := w.ask(prompt("first"))
	happens(t, "the first node is at work", g.reached)
	w.nodes[1].plays(hangsUp)
	w.ask(blocking).end().wantRefused(502, "decode_failed")
	require.Len(t, w.nodes[1].rids(), 1)
	require.Equal(t, 1, w.outcomes(DecodeFailed, 502))
	g.open()
	first.end().wantOK("Hello")
}

func TestAnotherAttemptGoesAheadOfAllThatCameLater(t *testing.T) { // invariant 6
	for _, told := range []bool{false, true} {
		t.Run(fmt.Sprint("told its place: ", told), func(t *testing.T) {
			// However long the request takes to stand in the line again: its slot is idle by then.
			slow := func(e zapcore.Entry) error {
				if e.Message == "another attempt" {
					time.Sleep(50 * time.Millisecond)
				}
				return nil
			}
			w := newPlace(t, func(s *setup) { s.logged = slow })
			g := newGate()
			w.node.script(streams(begins, stays(g), cuts))
			first := w.asks(Call{Endpoint: openai.Completions, Body: []byte(`{"prompt":"first","stream":true}`), TellPlace: told}, nil)
			happens(t, "the node is at work", g.reached)
			var later []*client
			for i := range 3 {
				later = append(later, w.ask(prompt(fmt.Sprint("later", i))))
				w.inLine(i + 1)
			}
			g.open()
			first.end().wantOK("Hello, world")
			for _, c := range later {
				c.end().wantOK("Hello, world")
			}
			require.Equal(t, []string{"first", "first", "later0", "later1", "later2"}, w.prefill.prompts())
		})
	}
}

// A failed answer means that the node is there: it is not asked again for the same request.
func TestNodeThatFailsARequestIsNotAskedAgainForIt(t *testing.T) {
	failures := []struct {
		name   string
		script nodeScript
		says   string
	}{
		{"an untyped 500", answers(500, `{"error":"boom","rid":"RID"}`), "500"},
		{"no JSON", answers(502, `<html>`), "502"},
		{"a type that is not known", answers(418, `{"error":"x","error_type":"teapot"}`), "418"},
		{"an untyped error line", streams(begins, fails("boom", "")), "decode error: boom"},
	}
	for _, tc := range failures {
		t.Run(tc.name, func(t *testing.T) {
			both(t, func(t *testing.T, body func(...string) string) {
				w := newPlace(t)
				w.node.script(tc.script)
				a := w.ask(body()).end().wantRefused(502, "decode_failed")
				require.Contains(t, a.message, tc.says)
				require.Len(t, w.node.asked(), 1)
				require.Equal(t, 1, w.outcomes(DecodeFailed, 502))
				w.wantFreeAtOnce()
			})
		})
		t.Run(tc.name+", with another node", func(t *testing.T) {
			w := newPlace(t, two)
			w.node.script(tc.script)
			w.ask(streaming).end().wantOK("Hello, world")
			require.Len(t, w.prefill.came(), 2)
			require.Empty(t, w.node.cancelled())
		})
	}
}

func TestTypedRefusalOfANodeKeepsItsStatusAndIsFinal(t *testing.T) {
	w := newPlace(t, two)
	for kind, status := range map[string]int{
		"invalid_grammar": 400, "grammar_violation": 400, "grammar_backend_unavailable": 500, "logprobs_unavailable": 501,
		"capability_unavailable": 501, "invalid_parameter": 400, "request_cancelled": 499,
	} {
		for where, script := range map[string]nodeScript{
			"in the status":     answers(status, `{"error":"because","error_type":"`+kind+`","rid":"RID"}`),
			"in the first line": streams(begins, fails("because", kind)),
		} {
			for _, c := range kinds {
				w.run(kind+" "+where+", "+c.name, func(t *testing.T) {
					prefills, same := len(w.prefill.came()), w.outcomes(DecodeRefused, status)
					for _, n := range w.nodes { // whichever is asked
						n.plays(script)
					}
					a := w.ask(c.body).end().wantRefused(status, kind)
					require.Equal(t, "because", a.message)
					require.Len(t, w.prefill.came(), prefills+1, "it would be refused elsewhere too")
					require.Equal(t, same+1, w.outcomes(DecodeRefused, status))
				})
			}
		}
	}
	require.Empty(t, w.node.cancelled())
}

func TestKVThatDoesNotArriveIsAGatewayTimeout(t *testing.T) {
	t.Run("the node says so", func(t *testing.T) {
		w := newPlace(t, two)
		w.node.script(answers(504, `{"error":"kv_transfer_timeout","rid":"RID"}`))
		w.ask(blocking).end().wantRefused(504, "kv_transfer_timeout")
		require.Len(t, w.prefill.came(), 1)
		require.Empty(t, w.node.cancelled())
	})
	t.Run("the node says nothing", func(t *testing.T) {
		w := newPlace(t, two, func(s *setup) { s.KVTimeout = 50 * time.Millisecond })
		g := newGate()
		w.node.script(streams(waitsForKV(g)))
		a := w.ask(blocking).end().wantRefused(504, "kv_transfer_timeout")
		require.Contains(t, a.message, "--kv-timeout")
		require.Len(t, w.prefill.came(), 1)
		await(t, "the cancel", func() bool { return len(w.node.cancelled()) == 1 })
	})
}

// A blocking client has no byte yet when the node dies in the middle: it gets a whole reply of another pair.
func TestBlockingClientSurvivesANodeThatDiesInTheMiddle(t *testing.T) { // invariant 6
	for _, tc := range []struct {
		name string
		how  step
	}{
		{"by a broken connection", cuts},
		{"by an early end", func(*decode) bool { return false }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newPlace(t, two, noQueueTime)
			w.node.script(streams(begins, line(hello), line(comma), tc.how))
			a := w.ask(blocking).end().wantOK("Hello, world")
			require.Equal(t, 3., a.usage["completion_tokens"])
			require.Len(t, w.prefill.came(), 2)
			await(t, "the dead call is cancelled", func() bool { return len(w.node.cancelled()) == 1 })
			require.Equal(t, 1, w.outcomes(OK, 200))
		})
	}
}

// Invariants 2, 5: a stream that has begun is not tried again and never ends well.
func TestNodeThatDiesInMidStreamBreaksTheStreamOff(t *testing.T) {
	for _, tc := range []struct {
		name string
		how  step
		kind string
	}{
		{"by a broken connection", cuts, "decode_truncated"},
		{"by an early end", func(*decode) bool { return false }, "decode_truncated"},
		{"by a line that cannot be read", raw(`{"t": [20` + "\n"), "decode_stream_failed"},
		{"by an untyped error", fails("boom", ""), "decode_failed"},
		{"by a typed error", fails("no", "grammar_violation"), "grammar_violation"},
		{"by a wrong count", doneWith(7, "stop"), "decode_truncated"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newPlace(t, two)
			w.node.script(streams(begins, line(hello), line(comma), tc.how))
			a := w.ask(streaming).end().wantBroken("Hello,", tc.kind)
			require.Equal(t, a.reply.RID, a.json["rid"])
			require.Len(t, w.prefill.came(), 1)
			require.Equal(t, 1, w.outcomes(StreamFailed, 200))
			require.Empty(t, w.nodes[1].asked())
		})
	}
}

// The same failures before a blocking client has a byte: the status tells them.
func TestFailureInTheMiddleHasAStatusForABlockingClient(t *testing.T) { // invariant 5
	for _, tc := range []struct {
		name    string
		how     step
		status  int
		kind    string
		outcome Outcome
	}{
		{"a broken connection", cuts, 502, "decode_truncated", DecodeFailed},
		{"an early end", func(*decode) bool { return false }, 502, "decode_truncated", DecodeFailed},
		{"a line that cannot be read", raw(`{"t": [20` + "\n"), 502, "decode_stream_failed", DecodeFailed},
		{"an untyped error", fails("boom", ""), 502, "decode_failed", DecodeFailed},
		{"a typed error", fails("no", "grammar_violation"), 400, "grammar_violation", DecodeRefused},
		{"a wrong count", doneWith(7, "stop"), 502, "decode_truncated", DecodeFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newPlace(t, noQueueTime)
			w.node.script(streams(begins, line(hello), line(comma), tc.how))
			w.ask(blocking).end().wantRefused(tc.status, tc.kind)
			require.Equal(t, 1, w.outcomes(tc.outcome, tc.status), "the client saw %d", tc.status)
		})
	}
}

func TestStreamThatFallsSilentIsBrokenOff(t *testing.T) {
	w := newPlace(t, func(s *setup) { s.StreamIdleTimeout = 50 * time.Millisecond })
	g := newGate()
	w.node.script(streams(begins, line(hello), stays(g)))
	a := w.ask(streaming).end().wantBroken("Hello", "decode_stream_failed")
	require.Contains(t, a.message, "--stream-idle-timeout")
	await(t, "the cancel", func() bool { return len(w.node.cancelled()) == 1 })
}

// A reply may take longer than every time-out, as long as the node is never silent for so long.
func TestLongStreamIsNotCut(t *testing.T) {
	const bound, lines = 200 * time.Millisecond, 60
	w := newPlace(t, func(s *setup) {
		s.QueueTimeout, s.PrefillTimeout, s.KVTimeout, s.StreamIdleTimeout = bound, bound, bound, bound
	})
	slowly := func(d *decode) bool {
		for range lines {
			time.Sleep(bound / 8) // all together a second more than the bound, which is how exactly it is kept
			line(comma)(d)
		}
		return true
	}
	w.node.script(streams(begins, slowly, done("stop")))
	c := w.ask(streaming)
	c.end().wantOK(strings.Repeat(",", lines))
	require.Greater(t, c.took, time.Second+bound)
}

// A node that fails everything at once would take the whole line, as it is always free (the black hole).
func TestNodeThatFailsEverythingDoesNotDrawTheLineToItself(t *testing.T) {
	w := newPlace(t, two, func(s *setup) { s.nodes = append(s.nodes, nodeSetup{caps: ableToAll}) })
	w.node.plays(answers(500, `{"error":"boom"}`))
	slow := func(d *decode) bool { time.Sleep(5 * time.Millisecond); return true }
	for _, n := range w.nodes[1:] {
		n.plays(streams(begins, line(hi...), slow, done("stop")))
	}
	var clients []*client
	for range 60 {
		clients = append(clients, w.ask(blocking))
	}
	for _, c := range clients {
		c.end().wantOK("Hello, world")
	}
	require.LessOrEqual(t, len(w.node.asked()), 8, "of 60 requests")
	w.node.plays(says(hi...))
	await(t, "it is used again", func() bool {
		w.ask(blocking).end().wantOK("Hello, world")
		return len(w.node.asked()) > 8 || w.router.backends[0].slot.Name() == w.logs.FilterMessage("request").All()[w.requests-1].ContextMap()["node"]
	})
}
