package router

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"pd-router/internal/engine"
	"pd-router/internal/metrics"
	"pd-router/internal/openai"
)

// endAt puts a request that ended at t into j; a served one had a slot.
func endAt(j *journal, t time.Time, served bool, f *failure) {
	l := &life{}
	l.times.start, l.times.end = t.Add(-time.Second), t
	if served {
		l.times.granted = t.Add(-time.Millisecond)
	}
	j.finished(l, f)
}

func TestJournalKeepsTheLastFewOfEachKind(t *testing.T) {
	var j journal
	now := time.Unix(1e9, 0)
	for range 3 * keptServed {
		endAt(&j, now, true, &failure{})
	}
	for range 1000 { // a flood of refusals
		endAt(&j, now, false, refuseFull("%d", 1))
	}
	rows, _ := j.read(now)
	require.Len(t, rows, keptServed+keptUnserved)
	for i, row := range rows {
		want := uint64(2*keptServed + 1 + i) // the last of those that were served are all there
		if i >= keptServed {
			want = uint64(3*keptServed + 1000 - keptUnserved + 1 + i - keptServed)
		}
		assert.Equal(t, want, row.Seq)
	}
	assert.Equal(t, keptServed, cap(j.served.rows), "its space does not grow")
	assert.Equal(t, keptUnserved, cap(j.unserved.rows))
}

func TestJournalCountsTheWholeMinuteBefore(t *testing.T) {
	var j journal
	at := time.Unix(1e9, 0)
	for i := range 200 { // one that ends well and one that is refused in each second
		endAt(&j, at.Add(time.Duration(i)*time.Second), true, &failure{})
		endAt(&j, at.Add(time.Duration(i)*time.Second), false, refuseFull("%d", 1))
	}
	_, minute := j.read(at.Add(199*time.Second + 900*time.Millisecond))
	assert.Equal(t, []int{120, 60}, []int{minute.ended, minute.refused})
	_, minute = j.read(at.Add(229 * time.Second))
	assert.Equal(t, []int{62, 31}, []int{minute.ended, minute.refused}, "old seconds do not count, though their space was not used again")
	_, minute = j.read(at.Add(time.Hour))
	assert.Zero(t, minute.ended)
}

// TestJournalKeepsNoForeignText is invariant 7: an error's text may quote a request or a node's words.
func TestJournalKeepsNoForeignText(t *testing.T) {
	const secret = "my-secret"
	line := func(l *life) { _ = l.line.Parse([]byte(`{"error":"` + secret + `","error_type":"decode_failed"}`)) }
	for _, tc := range []struct {
		name string
		f    *failure
		do   func(*life)
		want string
	}{
		{"the gate quotes a value", &failure{outcome: Invalid, err: openai.Errorf(openai.TypeInvalidParameter, "x=%s", secret).About("x")}, nil, ""},
		{"so does a capability that is missing", &failure{outcome: Unavailable, err: openai.Errorf(openai.TypeCapabilityUnavailable, "%s", secret)}, nil, ""},
		{"vLLM may quote the prompt", prefillRefused(400, []byte(`{"error":"`+secret+`"}`)), nil, ""},
		{"an answer of the prefill node that failed", prefillFailed("the prefill node failed").because(&statusError{legPrefill, 503, []byte(secret)}), nil,
			"the prefill node answered 503"},
		{"an answer of the prefill node that makes no sense", prefillFailed("it said " + secret).because(errors.New("it said " + secret)), nil,
			"the prefill node's answer cannot be used"},
		{"a refusal of the decode node", &failure{outcome: DecodeRefused, err: openai.Errorf(openai.TypeInvalidGrammar, "%s", secret)}, nil,
			"the decode node refused the request"},
		{"an answer of the decode node that failed", decodeFailed(openai.TypeDecodeFailed, secret).because(&statusError{legDecode, 500, []byte(secret)}), nil,
			"the decode node answered 500"},
		{"an error line before the first token", decodeFailed(openai.TypeDecodeFailed, "decode error: "+secret).because(errors.New(secret)), line,
			"the decode node ended the request with an error"},
		{"an error line in the middle of a reply", streamFailed(openai.TypeDecodeFailed, "decode error: "+secret).because(errors.New(secret)), line,
			"the decode node ended the request with an error"},
		{"our own words stay", streamFailed(openai.TypeDecodeStreamFailed, "decode stalled").because(errors.New(secret)), nil, "decode stalled"},
		{"a full line", refuseFull("full (%d)", 7), nil, "full (7): send the request again later"},
		{"all is well", &failure{outcome: OK}, nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := &life{}
			if tc.do != nil {
				tc.do(l)
			}
			row := l.row(tc.f)
			assert.Equal(t, tc.want, row.Error)
			assert.NotContains(t, fmt.Sprintf("%+v", row), secret)
		})
	}
}

// newTrack is a slot's record that begins at t.
func newTrack(t time.Time) *backend {
	be := &backend{meter: &metrics.Node{}}
	be.track.since, be.track.first, be.track.upTo = t, t.UnixMilli(), t.UnixMilli()
	return be
}

// TestEverySecondIsAccountedFor checks that whatever happens when, each whole second holds 1,000 ms, and no token is lost or
// made up while the window holds them.
func TestEverySecondIsAccountedFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := time.UnixMilli(rapid.Int64Range(1e12, 1e12+5000).Draw(t, "start"))
		be := newTrack(start)
		now, tokens := start, 0
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.SampledFrom([]int{0, 1, 7, 400, 1000, 2500, 90_000, 400_000}).Draw(t, "ms")) * time.Millisecond)
			if n := rapid.IntRange(0, 50).Draw(t, "tokens"); be.track.phase == metrics.SlotDecode {
				be.sequence.Add(int64(n))
				tokens += n
			}
			be.accountLocked(now)
			be.track.up = rapid.Bool().Draw(t, "up")
			be.track.phase = metrics.SlotState(rapid.IntRange(int(metrics.SlotFree), int(metrics.SlotSettle)).Draw(t, "phase"))
		}
		from, all := be.track.wholeSeconds(now)
		require.LessOrEqual(t, len(all), Window)
		require.Equal(t, now.Unix(), from+int64(len(all)), "they end with the last whole second")
		got := int(be.track.second(now.Unix()).Tokens)
		for i, s := range all {
			sum := 0
			for _, ms := range s.Spent {
				sum += int(ms)
			}
			want := 1000
			if at := from + int64(i); at == start.Unix() {
				want = 1000 - start.Nanosecond()/1e6
			}
			require.Equal(t, want, sum, "second %d of %d", i, len(all))
			got += int(s.Tokens)
		}
		if now.Sub(start) < Window*time.Second {
			require.Equal(t, tokens, got)
		} else {
			require.LessOrEqual(t, got, tokens)
		}
	})
}

func TestTokensSpreadOverTheTimeTheyTook(t *testing.T) {
	start := time.Unix(1e9, 0)
	be := newTrack(start)
	be.track.phase, be.track.prompt = metrics.SlotDecode, 5000
	be.sequence.Store(5000 + 1000)
	be.accountLocked(start.Add(10 * time.Second))
	_, all := be.track.wholeSeconds(start.Add(10 * time.Second))
	require.Len(t, all, 10)
	for _, s := range all {
		assert.EqualValues(t, 100, s.Tokens)
	}
}

func TestAClockThatIsSetBackCostsNothingButTheTruthOfASecond(t *testing.T) {
	start := time.Unix(1e9, 0)
	be := newTrack(start)
	be.track.up = true
	be.accountLocked(start.Add(10 * time.Second))
	be.accountLocked(start.Add(2 * time.Second))
	be.accountLocked(start.Add(20 * time.Second))
	_, all := be.track.wholeSeconds(start.Add(20 * time.Second))
	for i, s := range all {
		assert.EqualValues(t, 1000, s.Spent[metrics.SlotFree], i)
	}
}

func TestHoldsCountFromTheFirstPhaseToTheLast(t *testing.T) {
	be := newTrack(time.Now())
	be.heard(true)
	for range 2 * keptHolds {
		be.enter(metrics.SlotKVWait, &engine.Prefilled{RID: "r", PromptTokens: 7}) // prefilled ahead
		require.False(t, be.track.taken.IsZero())
		require.Equal(t, "r", be.track.rid)
		be.enter(metrics.SlotDecode, nil)
		be.enter(metrics.SlotSettle, nil)
		require.Equal(t, "r", be.track.rid)
		be.enter(metrics.SlotFree, nil)
		require.True(t, be.track.taken.IsZero())
	}
	assert.Equal(t, 2*keptHolds, be.track.held)
	assert.Len(t, be.track.holds, keptHolds)
}

// TestLookShowsARequestFromLineToEnd goes through the whole life, with prompt and headers that must not come out.
func TestLookShowsARequestFromLineToEnd(t *testing.T) {
	const secret = "my-secret"
	w := newPlace(t)
	first, g := w.occupy()
	second := w.ask(`{"stream":true,"messages":[{"role":"user","content":"` + secret + `"}]}`)
	w.inLine(1)
	v := w.router.Look(50)
	require.Len(t, v.Waiters, 1)
	require.Len(t, v.Slots, 1)
	assert.NotEqual(t, metrics.SlotFree, v.Slots[0].Phase)
	assert.False(t, v.Slots[0].Taken.IsZero())
	assert.True(t, v.Ready && v.Prefill.Up && v.Slots[0].Up)
	g.open()
	happens(t, "the end of the first", first.ended)
	happens(t, "the end of the second", second.ended)
	await(t, "both are in the journal", func() bool { return len(w.router.Look(50).Finished) == 2 })
	v = w.router.Look(50)
	last := v.Finished[1]
	if !last.Stream { // the slot is given on before the first one is in the journal
		last = v.Finished[0]
	}
	assert.Equal(t, []any{OK, 200, true, 1, w.router.backends[0].slot.Name()},
		[]any{last.Outcome, last.Status, last.Stream, last.Attempts, last.Node})
	assert.Len(t, last.RID, 32)
	assert.Positive(t, last.Queue)
	assert.Positive(t, last.Prefill)
	assert.Positive(t, last.Decode)
	assert.Equal(t, len(hi), last.CompletionTokens)
	assert.Len(t, v.Holds, 2)
	assert.Equal(t, metrics.SlotFree, v.Slots[0].Phase)
	tokens := 0
	for i := range w.router.backends[0].track.seconds {
		tokens += int(w.router.backends[0].track.seconds[i].Tokens)
	}
	assert.Equal(t, 1+len(hi), tokens, "each token is in some second")
	w.ask(`{"messages":[],"temperature":"` + secret + `"}`)
	await(t, "the refusal is in the journal", func() bool { return len(w.router.Look(50).Finished) == 3 })
	v = w.router.Look(50)
	assert.Equal(t, []any{Invalid, 400, openai.TypeInvalidParameter, "temperature"},
		[]any{v.Finished[2].Outcome, v.Finished[2].Status, v.Finished[2].ErrorType, v.Finished[2].Param})
	assert.False(t, strings.Contains(fmt.Sprintf("%+v", v), secret))
}
