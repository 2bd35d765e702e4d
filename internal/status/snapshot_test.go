package status

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pd-router/internal/metrics"
	"pd-router/internal/openai"
	"pd-router/internal/queue"
	"pd-router/internal/router"
	"pd-router/internal/staging"
)

var update = flag.Bool("update", false, "write the goldens anew")

// noon is the moment of the looks below.
var noon = time.Date(2030, 1, 2, 12, 0, 0, 250e6, time.UTC)

// busyLook is a router at work: one slot decodes, one is down, two requests wait.
func busyLook() router.Look {
	second := func(prefill, decode uint16, tokens uint32) router.Second {
		s := router.Second{Tokens: tokens}
		s.Spent[metrics.SlotPrefill], s.Spent[metrics.SlotDecode] = prefill, decode
		s.Spent[metrics.SlotFree] = 1000 - prefill - decode
		return s
	}
	down := router.Second{}
	down.Spent[metrics.SlotDown] = 1000
	return router.Look{
		At: noon, Ready: true,
		Line: queue.Stats{Waiting: 2, Bytes: 300, Oldest: 90 * time.Second},
		Waiters: []queue.WaiterRow{
			{Since: noon.Add(-90 * time.Second), Bytes: 100},
			{Since: noon.Add(-1500 * time.Millisecond), Bytes: 200},
		},
		MaxCount: 10000, MaxBytes: 4 << 30,
		Prefill: router.PrefillLook{Addr: "10.0.0.1:8000", Up: true, Sick: "no KV connector"},
		Slots: []router.SlotLook{
			{
				Node: "10.0.0.2:5556:5557", Up: true, Phase: metrics.SlotDecode, Since: noon.Add(-2 * time.Second), Taken: noon.Add(-3 * time.Second),
				RID: "0123456789abcdef0123456789abcdef", Tokens: 812, KVUsage: 0.0625,
				From:    noon.Unix() - 4,
				Seconds: []router.Second{second(0, 0, 0), second(400, 0, 0), second(1, 999, 480), second(0, 1000, 500)},
			},
			{Node: "10.0.0.3:5556:5557", Phase: metrics.SlotDown, Since: noon.Add(-time.Hour), From: noon.Unix() - 2, Seconds: []router.Second{down, down}},
		},
		Finished: []router.Finished{
			{
				Seq: 41, End: noon.Add(-5 * time.Second), Endpoint: openai.Chat, Outcome: router.OK, Status: 200, Stream: true, Attempts: 1,
				Node: "10.0.0.2:5556:5557", RID: "fedcba9876543210fedcba9876543210", BodyBytes: 2048, PromptTokens: 500, CompletionTokens: 900,
				ReadBody: time.Millisecond, Queue: 12 * time.Second, Prefill: 300 * time.Millisecond, KVWait: 20 * time.Millisecond,
				Decode: 1800 * time.Millisecond, Total: 14121 * time.Millisecond,
			},
			{
				Seq: 42, End: noon.Add(-time.Second), Endpoint: openai.Completions, Outcome: router.Invalid, Status: 400, BodyBytes: 64,
				Total: 200 * time.Microsecond, ErrorType: openai.TypeInvalidParameter, Param: "temperature",
			},
		},
		Ended: 61, Refused: 3,
		Holds: []time.Duration{2 * time.Second, 6 * time.Second},
	}
}

// golden compares with testdata/name; -update writes it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got))
}

func pretty(t *testing.T, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	require.NoError(t, e.Encode(v))
	return b.Bytes()
}

func TestSnapshotIsWhatOperatorsScriptAgainst(t *testing.T) {
	v := busyLook()
	about := About{Version: "1.2.3", Settings: []Setting{{"--queue-max", "10000", true}, {"--port", "8000", false}}}
	golden(t, "snapshot.json", pretty(t, about.whole(&v, noon.Add(-time.Hour))))
}

func TestArenaOfAStagedRouter(t *testing.T) {
	v := router.Look{At: noon, Arena: &router.ArenaLook{Bytes: 4 << 30, Ready: 2}}
	v.Arena.Slots[staging.Free], v.Arena.Slots[staging.Held], v.Arena.Slots[staging.Quarantined] = 1, 2, 1
	s := snapshot(&v, noon, since{})
	assert.JSONEq(t, `{"slots": {"free": 1, "reserved": 0, "receiving": 0, "held": 2, "sending": 0, "quarantined": 1}, "bytes": 4294967296, "kv_ready": 2}`,
		string(pretty(t, s.Arena)))
	v.Arena = nil
	assert.NotContains(t, string(encode(snapshot(&v, noon, since{}))), "arena", "nothing of it with direct handoff")
}

func TestUpdateHoldsOnlyWhatIsNew(t *testing.T) {
	v := busyLook()
	golden(t, "update.json", pretty(t, snapshot(&v, noon.Add(-time.Hour), since{seq: 41, second: noon.Unix() - 1})))
}

func TestEmptyListsAreListsAndNotNull(t *testing.T) {
	v := router.Look{At: noon}
	b := string(encode(snapshot(&v, noon, since{})))
	assert.Contains(t, b, `"slots":[]`)
	assert.Contains(t, b, `"recent":[]`)
	assert.Contains(t, b, `"first":[]`)
	assert.NotContains(t, b, "null")
}

func TestStateNamesWhatMattersMost(t *testing.T) {
	for want, v := range map[string]router.Look{
		"starting": {},
		"ok":       {Ready: true},
		"draining": {Ready: true, Line: queue.Stats{Draining: true}},
	} {
		assert.Equal(t, want, state(&v))
	}
}

// TestUpdatesAddUp is invariant 5: cut at whatever moments, the parts hold every second and every request once.
func TestUpdatesAddUp(t *testing.T) {
	var digits strings.Builder
	seqs := 0
	seen := since{second: 1000}
	for _, step := range []struct{ second, seq int64 }{{1000, 0}, {1001, 3}, {1001, 3}, {1005, 4}, {1006, 9}} {
		v := router.Look{At: time.Unix(step.second, 5e8), Slots: make([]router.SlotLook, 1)}
		s := &v.Slots[0]
		for at := int64(990); at < step.second; at++ {
			var x router.Second
			x.Spent[metrics.SlotDecode] = uint16((at%9 + 1) * 1000 / 9)
			s.Seconds = append(s.Seconds, x)
		}
		s.From = 990
		for i := int64(1); i <= step.seq; i++ {
			v.Finished = append(v.Finished, router.Finished{Seq: uint64(i)})
		}
		u := snapshot(&v, noon, seen)
		if p := u.Slots[0].Past; p.Seconds > 0 {
			assert.EqualValues(t, 1000+digits.Len(), p.From)
			digits.WriteString(p.Decode)
		}
		for _, r := range u.Recent {
			seqs++
			assert.EqualValues(t, seqs, r.Seq)
		}
		seen = end(&v)
	}
	assert.Equal(t, "234567", digits.String())
	assert.Equal(t, 9, seqs)
}

func TestShortPhasesStillShow(t *testing.T) {
	var s router.Second
	s.Spent[metrics.SlotKVWait], s.Spent[metrics.SlotDecode] = 1, 999
	v := &router.SlotLook{From: 100, Seconds: []router.Second{s, {}}}
	assert.Equal(t, Timeline{From: 100, Seconds: 2, KVWait: "10", Decode: "90"}, timeline(v, 0))
	assert.Equal(t, Timeline{From: 101, Seconds: 1}, timeline(v, 101), "a phase that did not come up is left out")
	assert.Equal(t, Timeline{From: 102}, timeline(v, 500))
}
