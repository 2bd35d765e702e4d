package scenario

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// setup says what a world is made of.
type setup struct {
	prefill []string   // flags of the prefill node
	decode  [][]string // flags of each decode node
	router  []string   // flags of the router
	tapped  bool       // a tap stands before the prefill node
	httpTap bool       // and one before the HTTP port of each decode node
	ctrlTap bool       // and one before the control port of each decode node
}

// world is a router with its nodes.
type world struct {
	t       testing.TB
	prefill *node
	tap     *tap // before the prefill node, or nil
	decode  []*node
	ctrl    []*tap // before control ports
	http    []*tap // before HTTP ports of decode nodes
	router  *router

	sent    atomic.Int64 // requests that were sent whole
	busy    bool         // nodes were told to answer 429
	wrongKV bool         // and the prefill node to send wrong KV
	before  struct{ goroutines, descriptors int }
	idling  map[string]int // goroutines of the idle router
	kept    int            // descriptors that the library may keep for its connections between rooms of an arena and nodes
}

func newWorld(t testing.TB, s setup) *world {
	t.Helper()
	w := &world{t: t}
	w.prefill = startPrefill(t, s.prefill...)
	if s.tapped {
		w.tap = newTap(t, w.prefill.http, markOf)
		w.prefill.viaHTTP = w.tap.addr
	}
	flags := []string{"--vllm-url", "http://" + w.prefill.reachedAt(), "--parser", "glm47"}
	for i, args := range s.decode {
		n := startDecode(t, fmt.Sprintf("decode %d", i), args...)
		if s.ctrlTap {
			w.ctrl = append(w.ctrl, newTap(t, n.ctrl, markOf))
			n.viaCtrl = w.ctrl[i].addr
		}
		if s.httpTap {
			w.http = append(w.http, newTap(t, n.http, ridOf))
			n.viaHTTP = w.http[i].addr
		}
		w.decode = append(w.decode, n)
		flags = append(flags, "--decode", n.flag())
	}
	w.router = startRouter(t, append(flags, s.router...)...)
	for _, n := range w.decode {
		w.router.up(n, true)
	}
	if status, _, err := fetch("http://" + w.router.addr + "/health"); err != nil || status != http.StatusOK { // which starts what the first reply starts
		t.Fatalf("GET /health: %d, %v", status, err)
	}
	w.rest()
	return w
}

// rest notes what an idle router holds.
func (w *world) rest() {
	w.t.Helper()
	until(w.t, "the client of /health is gone", func() bool { return w.router.metrics().sum("pd_router_connections") == 0 })
	w.before.goroutines, w.idling = w.router.goroutines()
	w.before.descriptors = descriptors(w.t, w.router.proc.pid())
}

// ports are those on which the router meets nodes, and on which nodes meet each other.
func (w *world) ports() (upstream, between []string) {
	upstream = append(upstream, w.prefill.reachedAt())
	for _, n := range w.decode {
		upstream, between = append(upstream, n.reachedAt()), append(between, n.ctrl)
	}
	return upstream, between
}

// mark is the text that makes request i known wherever it passes.
func mark(i int) string { return fmt.Sprintf("#%06d#", i) }

// begun is how many requests have ended, have a slot, or wait for one.
func (w *world) begun() int {
	w.t.Helper()
	m := w.router.metrics()
	return total(m.outcomes()) + int(m.sum("pd_router_queue_depth")+m.sum("pd_router_slots_busy"))
}

// slots is how many slots are in a state.
func (w *world) slots(state string) int {
	w.t.Helper()
	return int(w.router.metrics().sum("pd_router_slot_state", `state="`+state+`"`))
}

func (w *world) nodes() []*node { return append([]*node{w.prefill}, w.decode...) }

// words splits a line of flags.
func words(s string) []string { return strings.Fields(s) }
