package metrics

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// update makes the tests write what they otherwise compare.
var update = flag.Bool("update", false, "write generated files instead of comparing them")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// example are the options that the golden page and docs/metrics.md are made with.
func example() Options {
	return Options{
		Version: "1.2.3", Revision: "0123abc", Dialect: "tilert",
		Nodes:     []string{"10.0.0.2:5556:5557", "10.0.0.3:5556:5557"},
		Endpoints: []string{"chat", "completions"},
		Outcomes: []Outcome{{"ok", []int{200}}, {"invalid", []int{400}}, {"queue_timeout", []int{429}}, {"client_gone", []int{499}},
			{"prefill_failed", []int{502}}, {"stream_failed", []int{200}}},
		WaitOutcomes: []string{"granted", "full", "expired", "client_gone", "draining"},
		Legs:         []string{"prefill", "decode"},
		ErrorClasses: []string{"connect", "status"},
		Retries:      []string{"prefill_connection", "decode_busy", "decode_failed"},
		Hops:         []string{"in", "out"},
		HopReasons:   []string{"timeout", "lost"},
		RoomStates:   []string{"free", "held"},
		QueueMax:     10000, QueueMaxBytes: 4 << 30, QueueTimeout: 30 * time.Minute,
	}
}

// page is a scrape without the families of the runtime, which change from moment to moment.
func page(t *testing.T, m *Metrics) string {
	t.Helper()
	var b bytes.Buffer
	kind, err := m.Write(&b, "")
	require.NoError(t, err)
	assert.Contains(t, kind, "text/plain; version=0.0.4")
	var own []string
	for line := range strings.Lines(b.String()) {
		if regexp.MustCompile(`^(# (HELP|TYPE) )?(pd_router_|vllm:)`).MatchString(line) {
			own = append(own, strings.ReplaceAll(line, runtime.Version(), "GOVERSION"))
		}
	}
	return strings.Join(own, "")
}

// value is one sample of the page.
func value(t *testing.T, m *Metrics, series string) string {
	t.Helper()
	for line := range strings.Lines(page(t, m)) {
		if v, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(v)
		}
	}
	t.Fatalf("no series %s", series)
	return ""
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got, "run go test ./internal/metrics -update")
}

// Invariant 2: this is the page before the first request.
func TestPageOfAFreshRouter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		golden(t, "testdata/fresh.txt", page(t, New(prometheus.NewRegistry(), example())))
	})
}

func TestPageOfABusyRouter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := example()
		o.ModelName = "glm5"
		o.State = func(s *State) {
			s.QueueDepth, s.QueueBytes, s.QueueOldest, s.Connections, s.PrefillUp = 3, 4096, 1500*time.Millisecond, 7, true
			s.Nodes[0] = NodeState{Up: true, Busy: true, KVUsage: 0.25, Sequence: 1042}
			s.Rooms[1], s.ArenaBytes = 2, 8<<20
		}
		m := New(prometheus.NewRegistry(), o)
		n := m.Node(o.Nodes[0])
		n.Enter(SlotPrefill)
		time.Sleep(2 * time.Second)
		n.Enter(SlotKVWait)
		time.Sleep(250 * time.Millisecond)
		n.Enter(SlotDecode)
		n.Generated(41)
		time.Sleep(time.Minute)
		r := &m.Requests
		r.Ended("chat", "ok", 200)
		r.Ended("chat", "ok", 200)
		r.Ended("completions", "invalid", 400)
		r.Ended("chat", "invalid", 413)
		for p := range numPhases {
			r.Phase(p, time.Duration(p)*time.Second)
		}
		r.FirstByte(70*time.Millisecond, "0af7651916cd43dd8448eb211c80319c")
		r.InterToken(9*time.Millisecond, 4)
		r.InterToken(time.Second, 1)
		r.Body(1 << 20)
		r.Added(300 * time.Microsecond)
		m.Engine.Step(Convert, 8*time.Millisecond)
		m.Engine.Accepted(2.6)
		r.Prompt(1000, 640)
		r.Completion(42)
		r.ClientGone(Waiting)
		r.Cancelled(Decode)
		m.Queue.Waited("granted", 30*time.Minute)
		m.Queue.Waited("expired", -time.Second)
		m.Upstream.Failed("prefill", "connect")
		m.Upstream.Retried("decode_busy")
		m.Arena.Transferred("in", "", 4<<20, 16, 300*time.Millisecond)
		m.Arena.Transferred("in", "lost", 4<<20, 16, time.Second)
		m.Arena.Transferred("out", "", 4<<20, 8, 40*time.Millisecond)
		m.Arena.Quarantined()
		m.Arena.Overlapped(2 * time.Second)
		golden(t, "testdata/busy.txt", page(t, m))
	})
}

// Invariant 1.
func TestNothingFromOutsideBecomesALabel(t *testing.T) {
	m := New(prometheus.NewRegistry(), example())
	before := strings.Count(page(t, m), "\n")
	for i := range 2000 {
		odd := fmt.Sprintf("a\"\\\n%d", i)
		m.Requests.Ended(odd, odd, i-100)
		m.Requests.Ended("chat", "ok", i)
		m.Queue.Waited(odd, time.Second)
		m.Upstream.Failed(odd, odd)
		m.Upstream.Failed("prefill", odd)
		m.Upstream.Retried(odd)
	}
	after := strings.Count(page(t, m), "\n")
	assert.LessOrEqual(t, after-before, 2*len(codeNames), "series that were made on the way")
	assert.Equal(t, "2000", value(t, m, `pd_router_retries_total{reason="other"}`))
	assert.Equal(t, "2000", value(t, m, `pd_router_upstream_errors_total{class="other",leg="prefill"}`))
	assert.Equal(t, "1", value(t, m, `pd_router_requests_total{code="429",endpoint="chat",outcome="ok"}`))
	assert.Equal(t, "90", value(t, m, `pd_router_requests_total{code="4xx",endpoint="chat",outcome="ok"}`), "a hundred statuses less those with a name of their own")
}

func TestCodeOfEveryStatus(t *testing.T) {
	for status, want := range map[int]string{200: "200", 499: "499", 504: "504", 201: "2xx", 302: "3xx", 418: "4xx", 599: "5xx", 0: "other", -1: "other", 100: "other", 600: "other", 99999: "other"} {
		assert.Equal(t, want, codeNames[codeIndex(status)], status)
	}
	assert.True(t, slices.IsSorted(codes))
}

// A page stays small with many nodes: tools keep every series of every scrape.
func TestNumberOfSeries(t *testing.T) {
	o := example()
	count := func() int { return strings.Count(page(t, New(prometheus.NewRegistry(), o)), "\n") }
	few := count()
	for i := range 30 {
		o.Nodes = append(o.Nodes, fmt.Sprintf("n%d:1:2", i))
	}
	assert.Equal(t, 16*30, count()-few, "series of a node")
	assert.Less(t, few, 700)
}

// Invariants 3 and 4, and one block for each family.
func TestNames(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := New(reg, example())
	families, err := reg.Gather()
	require.NoError(t, err)
	var busy, line []string
	labels := map[string]bool{}
	for _, f := range families {
		name := f.GetName()
		assert.NotContains(t, name, "dynamo")
		switch own := strings.TrimPrefix(name, "pd_router_"); {
		case strings.HasPrefix(name, "vllm:"):
			for _, metric := range f.GetMetric() {
				labels[strings.Join(labelNames(metric), ",")] = true
			}
		case own == name:
			assert.Regexp(t, `^(go|process)_`, name)
		case f.GetType() != dto.MetricType_GAUGE:
		case strings.HasSuffix(own, "busy"):
			busy = append(busy, name)
		case strings.HasSuffix(own, "waiting") || strings.HasSuffix(own, "queue_depth"):
			line = append(line, name)
		default:
			assert.NotRegexp(t, `busy|waiting|in_?flight|depth|running|queued`, own)
		}
	}
	assert.Equal(t, []string{"pd_router_slots_busy"}, busy)
	assert.Equal(t, []string{"pd_router_queue_depth"}, line)
	assert.Equal(t, map[string]bool{"component,worker_id": true}, labels)

	seen := map[string]bool{}
	for line := range strings.Lines(page(t, m)) {
		if strings.HasPrefix(line, "# TYPE ") {
			assert.False(t, seen[line], line)
			seen[line] = true
		}
	}
}

func TestLint(t *testing.T) {
	reg := prometheus.NewRegistry()
	New(reg, example())
	problems, err := testutil.GatherAndLint(reg)
	require.NoError(t, err)
	for _, p := range problems {
		if !strings.HasPrefix(p.Metric, "vllm:") { // its colon is vLLM's
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// What is not the line's truth at the moment of a scrape is not shown: a holder that forgot to leave cannot make a gauge stay.
func TestSlotStateFollowsTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now NodeState
		o := example()
		o.State = func(s *State) { s.Nodes[0] = now }
		m := New(prometheus.NewRegistry(), o)
		n := m.Node(o.Nodes[0])
		shows := func(want SlotState, running string) {
			t.Helper()
			for s := range numSlotStates {
				v := value(t, m, fmt.Sprintf(`pd_router_slot_state{node=%q,state=%q}`, o.Nodes[0], s))
				assert.Equal(t, s == want, v == "1", "state %v while it should be %v", s, want)
			}
			assert.Equal(t, running, value(t, m, fmt.Sprintf(`vllm:num_requests_running{component="decode",worker_id=%q}`, o.Nodes[0])))
		}
		shows(SlotDown, "0")
		now.Up = true
		shows(SlotFree, "0")
		now.Busy = true
		shows(SlotPrefill, "0")
		n.Enter(SlotPrefill)
		shows(SlotPrefill, "0")
		n.Enter(SlotKVWait)
		shows(SlotKVWait, "1")
		n.Enter(SlotDecode)
		shows(SlotDecode, "1")
		now.Up = false
		shows(SlotDecode, "1")
		n.Enter(SlotSettle)
		shows(SlotSettle, "1")
		now = NodeState{Up: true}
		shows(SlotFree, "0")
	})
}

// Invariant 6.
func TestSlotSecondsGrowWhileThePhaseRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := example()
		m := New(prometheus.NewRegistry(), o)
		n := m.Node(o.Nodes[0])
		decode := func() string {
			return value(t, m, fmt.Sprintf(`pd_router_slot_seconds_total{node=%q,phase="decode"}`, o.Nodes[0]))
		}
		time.Sleep(time.Hour) // free
		n.Enter(SlotDecode)
		for _, want := range []string{"0", "1", "2"} {
			assert.Equal(t, want, decode())
			time.Sleep(time.Second)
		}
		n.Enter(SlotFree)
		time.Sleep(time.Hour)
		assert.Equal(t, "3", decode())
		n.Enter(SlotDecode)
		time.Sleep(500 * time.Millisecond)
		assert.Equal(t, "3.5", decode())
	})
}

func TestStateIsZeroedForEachScrape(t *testing.T) {
	o := example()
	first := true
	o.State = func(s *State) {
		if first {
			s.QueueDepth, s.Nodes[1].Busy = 5, true
		}
		first = false
	}
	m := New(prometheus.NewRegistry(), o)
	assert.Equal(t, "5", value(t, m, "pd_router_queue_depth"))
	assert.Equal(t, "0", value(t, m, "pd_router_queue_depth"))
	assert.Equal(t, "0", value(t, m, `pd_router_slots_busy{node="10.0.0.3:5556:5557"}`))
}

func TestNodeThatIsNotConfigured(t *testing.T) {
	m := New(prometheus.NewRegistry(), example())
	assert.PanicsWithValue(t, "BUG: metrics of a node that is not configured: x", func() { m.Node("x") })
}

func TestForms(t *testing.T) {
	m := New(prometheus.NewRegistry(), example())
	for _, tc := range []struct{ name, accept, kind, end string }{
		{"no wish", "", "text/plain; version=0.0.4", "\n"},
		{"anything", "*/*", "text/plain; version=0.0.4", "\n"},
		{"what makes no sense", "a/b;q=x, \x00", "text/plain; version=0.0.4", "\n"},
		{"OpenMetrics", "application/openmetrics-text; version=1.0.0; charset=utf-8", "application/openmetrics-text; version=1.0.0", "# EOF\n"},
		{"native histograms", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited", "application/vnd.google.protobuf", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var b bytes.Buffer
			kind, err := m.Write(&b, tc.accept)
			require.NoError(t, err)
			assert.True(t, strings.HasPrefix(kind, tc.kind), kind)
			assert.True(t, strings.HasSuffix(b.String(), tc.end))
		})
	}
}

func TestWriteTellsOfAReaderThatIsGone(t *testing.T) {
	m := New(prometheus.NewRegistry(), example())
	_, err := m.Write(brokenWriter{}, "")
	assert.ErrorIs(t, err, os.ErrClosed)
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, os.ErrClosed }

func labelNames(m *dto.Metric) []string {
	var names []string
	for _, l := range m.GetLabel() {
		names = append(names, l.GetName())
	}
	return names
}

// Events and scrapes meet all the time; the race detector watches this test.
func TestScrapesBesideEvents(t *testing.T) {
	o := example()
	m := New(prometheus.NewRegistry(), o)
	var g sync.WaitGroup
	for range 4 {
		g.Go(func() {
			for range 200 {
				n := m.Node(o.Nodes[0])
				n.Enter(SlotDecode)
				n.Generated(1)
				n.Enter(SlotFree)
				m.Requests.Ended("chat", "ok", 418)
				m.Requests.Phase(Decode, time.Second)
				m.Queue.Waited("granted", time.Second)
				m.Upstream.Failed("decode", "status")
			}
		})
		g.Go(func() {
			for range 10 {
				page(t, m)
			}
		})
	}
	g.Wait()
	assert.Equal(t, "800", value(t, m, `pd_router_requests_total{code="4xx",endpoint="chat",outcome="ok"}`))
	assert.Equal(t, "800", value(t, m, fmt.Sprintf(`vllm:generation_tokens_total{component="decode",worker_id=%q}`, o.Nodes[0])))
}
