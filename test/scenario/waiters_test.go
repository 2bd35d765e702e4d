package scenario

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// maxWaiterBytes is what a waiter may cost the router with its connection, its goroutine and its body of 1 KB.
const maxWaiterBytes = 60 << 10

// TestTenThousandWaitersOnOneSlot fills the line to --queue-max. With the race detector there are fewer: it does not know so many goroutines.
func TestTenThousandWaitersOnOneSlot(t *testing.T) {
	t.Parallel()
	n := 10000
	if raced {
		n = 2500
	}
	waitersOnOneSlot(t, roomFor(t, n), setup{
		prefill: words("--kv none"), decode: [][]string{words("--kv none")}, tapped: true,
	})
}

// TestThousandWaitersPrefilledAhead is the same with KV that is checked, and with the next in line prefilled into the node that still decodes.
func TestThousandWaitersPrefilledAhead(t *testing.T) {
	t.Parallel()
	n := 1000
	if raced {
		n = 200
	}
	waitersOnOneSlot(t, n, setup{decode: [][]string{nil}, tapped: true, router: words("--prefill-ahead")})
}

// roomFor raises the limit of descriptors, and lowers n to what it leaves.
func roomFor(t *testing.T, n int) int {
	const others = 3000 // descriptors of all else that the tests do meanwhile
	var limit unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	want := uint64(n + others)
	if limit.Max < want {
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: want, Max: want}) // only root may
	} else if limit.Cur < want {
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit.Max, Max: limit.Max})
	}
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	if limit.Cur < want {
		n = int(limit.Cur) - others
		t.Logf("only %d waiters: RLIMIT_NOFILE is %d", n, limit.Cur)
	}
	return n
}

// waitersOnOneSlot lets n requests wait while another is held in prefill, and then has them all served.
func waitersOnOneSlot(t *testing.T, n int, s setup) {
	s.router = append(s.router, "--queue-max", itoa(n))
	w := newWorld(t, s)
	before := resident(t, w.router.proc.pid())
	w.tap.holdBack(func(text string) bool { return strings.Contains(text, mark(0)) })

	var reading sync.WaitGroup
	send := func(i int) {
		c, a := w.dial(), short(i)
		c.send(a)
		reading.Go(func() { checkReply(t, i, a, c.readReply(a), slices.Contains(s.prefill, "none")) })
	}
	send(0)
	until(t, "the first request is in prefill", func() bool { return w.tap.holding() == 1 })

	// The first ones come strictly one after the other, the rest in batches: within one the order is not known.
	const strict, batch = 300, 100
	for i := 1; i <= n; i++ {
		send(i)
		if i < strict || i%batch == 0 || i == n {
			w.router.inLine(i)
		}
	}
	w.full(n, before)
	w.tap.release()
	reading.Wait()

	order := w.tap.order()
	if len(order) != n+1 {
		t.Errorf("the prefill node was asked %d times for %d requests", len(order), n+1)
	}
	inOrder(t, order[:min(strict, len(order))], min(strict, n+1), 0)
	inOrder(t, order, n+1, batch)
	inBatches(t, order, strict, batch)
	for _, node := range []*node{w.prefill, w.decode[0]} {
		if got := node.counters()["Requests"]; int(got) != n+1 {
			t.Errorf("%s served %v requests, want %d", node.name, got, n+1)
		}
	}
	if got := w.router.metrics().outcomes(); got["ok"] != n+1 || got["queue_full"] != 1 {
		t.Errorf("outcomes: %v", got)
	}
	w.settle()
}

// full looks at a router whose line is full: what it costs, whether it answers operators, and that one more is refused.
func (w *world) full(n int, before int64) {
	w.t.Helper()
	each := (resident(w.t, w.router.proc.pid()) - before) / int64(n)
	w.t.Logf("%d waiters, %d bytes each", n, each)
	if each > maxWaiterBytes && !raced {
		w.t.Errorf("a waiter costs %d bytes, more than %d", each, maxWaiterBytes)
	}
	var times []time.Duration
	for _, url := range []string{w.router.side + "/metrics", w.router.side + "/health", "http://" + w.router.addr + "/metrics", "http://" + w.router.addr + "/health", "http://" + w.router.addr + "/queue"} {
		start := time.Now()
		get(w.t, url)
		times = append(times, time.Since(start))
	}
	w.t.Logf("status pages while full: %v", times)
	if m := w.router.metrics(); int(m.sum("pd_router_queue_depth")) != n || int(m.sum("pd_router_connections")) < n+1 {
		w.t.Errorf("depth %v, connections %v, want %d waiters", m.sum("pd_router_queue_depth"), m.sum("pd_router_connections"), n)
	}
	c := w.dial()
	c.send(short(n + 1))
	if a := c.read(); a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" || !strings.Contains(string(a.body), `"queue_full"`) {
		w.t.Errorf("one request too many: %d, %v: %s", a.status, a.header, a.body)
	}
}

// inBatches checks that each batch was over before the next began.
func inBatches(t *testing.T, order []string, strict, batch int) {
	t.Helper()
	for at := strict; at < len(order); at++ {
		if got := (atoi(order[at]) + batch - 1) / batch; got != (at+batch-1)/batch {
			t.Errorf("request %s was number %d at the node", order[at], at)
			return
		}
	}
}

// short is a chat of 1 KB with a short reply.
func short(i int) *ask {
	return say(i, false, fmt.Sprintf("%06d was served", i), `"max_tokens":16`, `"user":"`+strings.Repeat("so that it is long ", 45)+`"`)
}

// checkReply compares the reply with what the request wanted. Without KV the decode node knows the first token only, and goes on with
// a text of its own.
func checkReply(t testing.TB, i int, a *ask, r *reply, noKV bool) {
	t.Helper()
	if r.failure != "" {
		t.Errorf("request %d: %d %s: %s", i, r.status, r.failure, r.message)
	} else if noKV && (r.text == "" || r.text[0] != a.want.text[0]) {
		t.Errorf("request %d was answered %q", i, r.text)
	} else if what := a.wrong(r); !noKV && what != "" {
		t.Errorf("request %d: %s", i, what)
	}
}
