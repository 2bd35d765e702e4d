package scenario

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// settle is the end of every scenario that leaves its router running: after a while nothing is left of all that was done (invariants 1, 3 and 5).
// Then the router is asked to end, which it must do well.
func (w *world) settle() {
	w.t.Helper()
	const slow = 10 * time.Second // idle connections are closed after 4
	start, told := time.Now(), false
	for {
		left, after := w.leftovers(), time.Since(start)
		if len(left) == 0 {
			break
		}
		if after > patience {
			w.t.Fatalf("left behind, %s later:\n%s", patience, strings.Join(left, "\n"))
		}
		if after > slow && !told {
			w.t.Logf("still there after %s:\n%s", slow, strings.Join(left, "\n"))
			told = true
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.accounts()
	w.router.proc.stop()
	w.quiet()
}

// leftovers is what an idle router does not have. It looks at what costs more only when nothing else is left.
func (w *world) leftovers() (left []string) {
	w.t.Helper()
	for _, look := range []func() []string{w.inMetrics, w.atWork, w.inProcess, w.openConnections} {
		if left = look(); len(left) > 0 {
			break
		}
	}
	return left
}

// inMetrics are gauges that are not zero, slots that are not free, and requests without an end.
func (w *world) inMetrics() (left []string) {
	w.t.Helper()
	m := w.router.metrics()
	for _, gauge := range []string{
		"pd_router_queue_depth", "pd_router_queue_bytes", "pd_router_queue_oldest_seconds", "pd_router_slots_busy", "pd_router_connections",
		"pd_router_node_sequence_tokens", "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
	} {
		if v := m.sum(gauge); v != 0 {
			left = append(left, fmt.Sprintf("%s is %v", gauge, v))
		}
	}
	if w.kept > 0 && m.sum("pd_router_arena_slots") != m.sum("pd_router_arena_slots", `state="free"`) {
		left = append(left, "not all rooms of the arena are free")
	}
	if free := m.sum("pd_router_slot_state", `state="free"`); int(free) != len(w.decode) {
		left = append(left, fmt.Sprintf("%v of %d slots are free", free, len(w.decode)))
	}
	if ended, sent := total(m.outcomes()), int(w.sent.Load()); ended != sent {
		left = append(left, fmt.Sprintf("%d requests were sent, %d have ended: %v", sent, ended, m.outcomes()))
	}
	return left
}

// atWork are nodes that work on a request.
func (w *world) atWork() (left []string) {
	w.t.Helper()
	for _, n := range w.decode {
		if !n.idle() {
			left = append(left, n.name+" is at work")
		}
	}
	return left
}

// inProcess are goroutines and descriptors of the router that were not there before.
func (w *world) inProcess() (left []string) {
	w.t.Helper()
	if n, by := w.router.goroutines(); n > w.before.goroutines {
		left = append(left, fmt.Sprintf("%d goroutines, %d before:%s", n, w.before.goroutines, moreOf(by, w.idling)))
	}
	if n := descriptors(w.t, w.router.proc.pid()); n > w.before.descriptors+w.kept {
		left = append(left, fmt.Sprintf("%d descriptors, %d before", n, w.before.descriptors))
	}
	return left
}

// openConnections are those that nobody needs: the router keeps one to each node, for its looks at it.
func (w *world) openConnections() (left []string) {
	w.t.Helper()
	upstream, between := w.ports()
	for i, ports := range [][]string{upstream, between} {
		allowed := 1 - i
		for _, p := range ports {
			if server, client := sockets(w.t, p); server > allowed || client > allowed {
				left = append(left, fmt.Sprintf("%d connections to %s, %d at the other end", server, p, client))
			}
		}
	}
	return left
}

func moreOf(now, before map[string]int) string {
	var b strings.Builder
	for what, n := range now {
		if n > before[what] {
			fmt.Fprintf(&b, "\n  %d, %d before: %s", n, before[what], what)
		}
	}
	return b.String()
}

// accounts compares what the router has counted with what it has logged and with what the nodes have counted.
func (w *world) accounts() {
	w.t.Helper()
	counted, logged := w.router.metrics().outcomes(), w.router.log.requests()
	if fmt.Sprint(counted) != fmt.Sprint(logged) {
		w.t.Errorf("counted %v, logged %v", counted, logged)
	}
	if counted["internal"] > 0 {
		w.t.Errorf("%d requests ended in a mistake of the router", counted["internal"])
	}
	for _, n := range w.decode {
		c := n.counters()
		if !w.busy && c["Busy"] != 0 {
			w.t.Errorf("%s was asked %v times while it was at work", n.name, c["Busy"])
		}
		if !w.wrongKV && c["ChecksFailed"] != 0 {
			w.t.Errorf("%s was to decode with wrong KV %v times", n.name, c["ChecksFailed"])
		}
	}
}

// quiet checks that the log holds neither a panic nor a word of the race detector.
func (w *world) quiet() {
	w.t.Helper()
	if bad := w.router.log.complaints(); len(bad) > 0 {
		w.t.Errorf("in the router's log:\n%s", strings.Join(bad[:min(len(bad), 40)], "\n"))
	}
}

// inOrder checks that marks came in rising order, none further back than slack places (invariant 2). Each must be there.
func inOrder(t testing.TB, marks []string, n, slack int) {
	t.Helper()
	seen := map[string]bool{}
	highest := 0
	for at, m := range marks {
		seen[m] = true
		var i int
		_, _ = fmt.Sscan(strings.TrimLeft(m, "0")+" ", &i)
		if i < highest-slack {
			t.Errorf("request %d came to the node after request %d: … %v …", i, highest, marks[max(0, at-5):min(len(marks), at+5)])
			return
		}
		highest = max(highest, i)
	}
	if len(seen) != n {
		t.Errorf("%d requests came to the node, of %d", len(seen), n)
	}
}

// slowest is the longest of some times.
func slowest(times []time.Duration) time.Duration { return slices.Max(times) }
