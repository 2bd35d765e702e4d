package scenario

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// What nodes do wrong, each nth request. The numbers have no common factor, so that faults meet each other in all ways.
var (
	prefillFaults = words("--fault refuse=1/61 --fault reset=1/43 --fault hang=1/211 --fault truncate=1/67 --fault garbage=1/71 --fault slow=1/53 " +
		"--fault kv-flip=1/59 --fault kv-rid=1/73 --fault kv-offset=1/79 --fault kv-size=1/83 --fault kv-short=1/89 --fault kv-lost=1/197 --fault kv-none=1/193")
	decodeFaults = words("--fault refuse=1/47 --fault reset=1/37 --fault hang=1/181 --fault truncate=1/31 --fault garbage=1/41 --fault slow=1/29 " +
		"--fault busy=1/17 --fault error=1/23 --fault stall=1/163")
)

// honest are the ways in which a request may fail under those faults, with the status before the first byte.
var honest = map[string][]int{
	"prefill_failed": {502, 504}, "kv_transfer_timeout": {504}, "decode_failed": {502}, "decode_truncated": {502}, "decode_stream_failed": {502},
}

// TestMixedFaults has nodes that do everything wrong now and then, and clients that ask for everything and sometimes leave. Whatever
// happens, no client takes a wrong text for a whole reply, and all come to an end.
func TestMixedFaults(t *testing.T) {
	t.Parallel()
	for name, flags := range bothWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFaultRun(t, flags)
			var work sync.WaitGroup
			for range 32 {
				seed := f.seeds.Uint64()
				work.Go(func() { f.client(rand.New(rand.NewPCG(seed, 0))) })
			}
			work.Wait()
			f.report()
			f.settle()
		})
	}
}

// faultTime is how long clients come.
const faultTime = 20 * time.Second

// faultRun counts what came of the requests.
type faultRun struct {
	*world
	seeds *rand.Rand
	end   time.Time
	last  atomic.Int64

	mu    sync.Mutex
	good  map[string]int // by kind
	bad   map[string]int // by failure
	left  int
	waits []time.Duration
}

func newFaultRun(t *testing.T, flags []string) *faultRun {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	bad := slices.Concat(words("--tokens-per-second 1000 --jitter 0.5"), decodeFaults)
	w := newWorld(t, setup{
		prefill: slices.Concat(words("--tokens-per-second 30000 --latency 5ms --jitter 0.5"), prefillFaults), decode: [][]string{bad, bad, bad},
		// A rank that meets a node which does not want its KV any more asks again for 3 s, and those behind it wait.
		router: slices.Concat(words("--kv-timeout 8 --prefill-timeout 3 --stream-idle-timeout 1"), flags),
	})
	w.busy, w.wrongKV = true, true
	return &faultRun{world: w, seeds: rand.New(rand.NewPCG(seed, 1)), end: time.Now().Add(faultTime), good: map[string]int{}, bad: map[string]int{}}
}

// client asks for one thing after the other until the time is up.
func (f *faultRun) client(r *rand.Rand) {
	for time.Now().Before(f.end) {
		kind := kinds[r.IntN(len(kinds))]
		a, c := kind.make(int(f.last.Add(1)), r), f.dial()
		c.send(a)
		if r.IntN(10) == 0 {
			time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond) // in whatever phase that is
			c.hangUp(coin(r))
			f.note(func() { f.left++ })
			continue
		}
		start := time.Now()
		f.judgeReply(kind.name, a, c.readReply(a), time.Since(start))
	}
}

func (f *faultRun) note(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// judgeReply takes a reply for what it says it is, and then looks whether that is true.
func (f *faultRun) judgeReply(kind string, a *ask, r *reply, took time.Duration) {
	if r.failure == "" {
		if what := a.wrong(r); what != "" {
			f.t.Errorf("FALSE SUCCESS: %s %.400s: %s", kind, a.body, what)
		}
		f.note(func() { f.good[kind]++; f.waits = append(f.waits, took) })
		return
	}
	statuses, known := honest[r.failure]
	fits := r.status == 200 && a.stream
	for _, s := range statuses {
		fits = fits || r.status == s
	}
	if !known || !fits {
		f.t.Errorf("%s failed with %d %s: %s", kind, r.status, r.failure, r.message)
	}
	f.note(func() { f.bad[fmt.Sprint(r.status, " ", r.failure)]++; f.waits = append(f.waits, took) })
}

func (f *faultRun) report() {
	good, bad := total(f.good), total(f.bad)
	f.t.Logf("good %v\nbad %v\n%d left; the slowest took %s; retries: %v", f.good, f.bad, f.left, slowest(f.waits), f.router.metrics().sum("pd_router_retries_total"))
	if good < bad || len(f.good) < len(kinds) || len(f.bad) < 3 {
		f.t.Errorf("%d of %d are good, of %d kinds; %d ways to fail", good, good+bad, len(f.good), len(f.bad))
	}
	if got := f.router.metrics().outcomes()["ok"]; got < good || got > good+f.left {
		f.t.Errorf("%d requests count as ok, clients had %d good replies, and %d left", got, good, f.left)
	}
}
