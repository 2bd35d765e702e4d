package router

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"pd-router/internal/openai"
	"pd-router/internal/queue"
)

func TestEachOutcomeHasANameAndItsCodes(t *testing.T) { // invariant 2
	seen := map[string]bool{}
	for o := range NumOutcomes {
		name := o.String()
		require.NotEmpty(t, name)
		require.False(t, seen[name], name)
		seen[name] = true
		require.NotEmpty(t, outcomeCodes[o], name)
	}
	m := MetricsOptions(Options{QueueMax: 3, QueueMaxBytes: 4}, []string{"n"}, nil)
	require.Len(t, m.Outcomes, int(NumOutcomes))
	require.Len(t, m.WaitOutcomes, int(queue.NumOutcomes)-1)
	require.Equal(t, []string{"chat", "completions"}, m.Endpoints)
	require.Equal(t, []any{3, int64(4)}, []any{m.QueueMax, m.QueueMaxBytes})
}

func TestOutcomeOfWhatEndedARequest(t *testing.T) {
	for _, tc := range []struct {
		name    string
		cause   error
		outcome Outcome
		status  int
	}{
		{"the client left", ErrClientGone, ClientGone, 499},
		{"the same, wrapped", fmt.Errorf("x: %w", ErrClientGone), ClientGone, 499},
		{"a context without a cause", context.Canceled, ClientGone, 499},
		{"the router stops", ErrDraining, Draining, 503},
		{"the line is drained", queue.ErrDraining, Draining, 503},
		{"anything else is our mistake", errors.New("x"), Internal, 500},
		{"a deadline that nobody set", context.DeadlineExceeded, Internal, 500},
		{"nothing", nil, Internal, 500},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := outcomeOf(tc.cause)
			require.Equal(t, tc.outcome, f.outcome)
			require.Equal(t, tc.status, f.err.Status)
			require.Equal(t, never, f.retry)
		})
	}
	require.Nil(t, ended(t.Context()))
	require.Equal(t, 1, outcomeOf(ErrDraining).err.RetryAfter)
}

// A life ends once, whoever ends it first.
func TestLifeEndsOnce(t *testing.T) { // invariant 2
	w := newPlace(t)
	w.requests++
	l := w.router.begin(t.Context(), Call{Start: time.Now()})
	l.finish(outcomeOf(ErrClientGone))
	l.finish(nil)
	require.Equal(t, 1., w.metric("pd_router_requests_total", "outcome", "client_gone"))
}

func TestLogLineOfARequest(t *testing.T) { // promise 9
	w := newPlace(t)
	w.requests++
	secret := "my own secret"
	p := w.router.Serve(t.Context(), Call{
		Body: []byte(`{"messages":[{"role":"user","content":"` + secret + `"}]}`), Start: time.Now(), ReadBody: time.Millisecond,
		ClientID: "client-7", Correlation: "corr-8", Forward: []byte("Authorization: Bearer " + secret + "\r\n"),
	})
	require.Equal(t, 200, p.Status)
	lines := w.logs.FilterMessage("request").All()
	require.Len(t, lines, 1)
	fields := lines[0].ContextMap()
	require.Equal(t, zap.InfoLevel, lines[0].Level)
	for name, want := range map[string]any{
		"outcome": "ok", "status": int64(200), "endpoint": "chat", "attempts": int64(1), "node": w.router.backends[0].slot.Name(),
		"rid": p.RID, "prompt_tokens": int64(4), "completion_tokens": int64(3), "client_request_id": "client-7", "correlation_id": "corr-8",
		"stream": false, "read_body": time.Millisecond,
	} {
		require.Equal(t, want, fields[name], name)
	}
	for _, entry := range w.logs.All() {
		require.NotContains(t, fmt.Sprint(entry.Message, entry.ContextMap()), secret)
	}
}

func TestANodeThatGoesIsAWarning(t *testing.T) {
	w := newPlace(t)
	w.router.backends[0].Failed(errors.New("gone"))
	for _, entry := range w.logs.FilterMessage("decode node").All() {
		fields := entry.ContextMap()
		if fields["up"] == true {
			require.Equal(t, zap.InfoLevel, entry.Level)
			require.Contains(t, fields, "capabilities")
			continue
		}
		require.Equal(t, zap.WarnLevel, entry.Level)
		require.Equal(t, "gone", fields["error"])
		return
	}
	t.Fatal("nobody is told of a node that went")
}

// A client that leaves, or asks for what cannot be, is no warning; what an operator must see is.
func TestLevelOfTheLogLine(t *testing.T) {
	w := newPlace(t)
	w.requests += int(NumOutcomes)
	for o := range NumOutcomes {
		l := w.router.begin(t.Context(), Call{Start: time.Now()})
		l.finish(&failure{outcome: o, err: openai.Errorf(openai.TypeInternalError, "x")})
	}
	levels := map[string]string{}
	for _, e := range w.logs.FilterMessage("request").All() {
		levels[e.ContextMap()["outcome"].(string)] = e.Level.String()
	}
	require.Equal(t, map[string]string{
		"ok": "info", "invalid": "info", "unavailable": "info", "draining": "info", "client_gone": "info", "prefill_refused": "info",
		"queue_full": "warn", "queue_timeout": "warn", "prefill_failed": "warn", "decode_busy": "warn", "decode_refused": "warn",
		"decode_failed": "warn", "stream_failed": "warn", "internal": "error",
	}, levels)
}

func TestPhasesAreMeasured(t *testing.T) {
	w := newPlace(t)
	a := w.ask(blocking).end().wantOK("Hello, world")
	for _, phase := range []string{"queue", "prefill", "kv_wait", "decode", "total", "read_body"} {
		require.Equal(t, 1., w.metric("pd_router_phase_seconds", "phase", phase), phase)
	}
	require.Equal(t, 1., w.metric("pd_router_ttft_seconds"))
	require.Equal(t, 4., w.metric("pd_router_tokens_total", "kind", "prompt"))
	require.Equal(t, 3., w.metric("pd_router_tokens_total", "kind", "completion"))
	require.Regexp(t, `^queue;dur=[0-9.]+, prefill;dur=[0-9.]+, kv;dur=[0-9.]+$`, a.reply.Timing)
	timing := a.json["pd_timing_ms"].(map[string]any)
	require.Equal(t, 1.5, timing["decode"], "the node's own measure")
	require.Contains(t, timing, "prefill")
	// A request that never got a slot has no phases but its own.
	w.ask(`{`).end().wantRefused(400, "invalid_json")
	require.Equal(t, 1., w.metric("pd_router_phase_seconds", "phase", "queue"))
	require.Equal(t, 2., w.metric("pd_router_phase_seconds", "phase", "total"))
}

func TestTimingsInMilliseconds(t *testing.T) {
	l := times{queue: 1500 * time.Microsecond, prefill: 2 * time.Second, kvWait: 49 * time.Microsecond}
	require.Equal(t, "queue;dur=1.5, prefill;dur=2000, kv;dur=0", l.header())
	for node, want := range map[string]string{
		``: `{"prefill":2000}`, `{}`: `{"prefill":2000}`, `{"decode":1.5}`: `{"prefill":2000,"decode":1.5}`, `null`: `{"prefill":2000}`,
	} {
		require.Equal(t, want, string(l.timing([]byte(node))), node)
	}
}

// Where nodes are is for the log. Clients are told what went wrong without it.
func TestNoAddressReachesClients(t *testing.T) {
	bound := func(s *setup) { s.QueueTimeout, s.KVTimeout = 50*time.Millisecond, 50*time.Millisecond }
	for name, spoil := range map[string]func(w *place){
		"prefill is down":            func(w *place) { w.prefill.die() },
		"prefill breaks":             func(w *place) { w.prefill.script(breaks, breaks, breaks, breaks, breaks, breaks) },
		"prefill makes no sense":     func(w *place) { w.prefill.script(refuses(200, "{")) },
		"the node is down":           func(w *place) { w.node.die() },
		"the node breaks":            func(w *place) { w.node.plays(hangsUp) },
		"the node says nothing":      func(w *place) { w.node.script(streams(waitsForKV(newGate()))) },
		"the node breaks in between": func(w *place) { w.node.script(streams(begins, line(hello), cuts)) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newPlace(t, bound)
			spoil(w)
			a := w.ask(streaming).end()
			require.NotEmpty(t, a.kind, a.text())
			require.NotContains(t, a.text(), "127.0.0.1")
		})
	}
}
