package scenario

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// router is the router in a process of its own.
type router struct {
	t    testing.TB
	proc *process
	log  journal
	addr string // host:port of the API
	side string // URL of the second listener, which is not counted among the API's clients
}

// startRouter runs a router and is over when it is ready.
func startRouter(t testing.TB, flags ...string) *router {
	t.Helper()
	r := &router{t: t}
	r.log.first = map[string]map[string]any{}
	r.log.outcomes = map[string]int{}
	side := hostPort(lowPort(t))
	args := append([]string{"--host", "127.0.0.1", "--port", "0", "--metrics-addr", side, "--pprof", "--model-path", model}, flags...)
	r.proc = start(t, "router", r.log.line, args...)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the router's log:\n%s", r.log.tail.String())
		}
	})
	r.await("ready")
	r.addr, _ = r.log.said("listening")["addr"].(string)
	r.side = "http://" + side
	return r
}

// await waits for a line in the log.
func (r *router) await(msg string) {
	r.t.Helper()
	until(r.t, "the router says "+msg, func() bool {
		select {
		case <-r.proc.ended:
			r.t.Fatalf("the router ended:\n%s", r.log.tail.String())
		default:
		}
		return r.log.said(msg) != nil
	})
}

func (r *router) metrics() samples {
	r.t.Helper()
	return parseMetrics(r.t, get(r.t, r.side+"/metrics"))
}

// waiting is how many requests stand in the line.
func (r *router) waiting() int {
	r.t.Helper()
	var h struct {
		Depth int `json:"queue_depth"`
	}
	must(r.t, json.Unmarshal(get(r.t, r.side+"/health"), &h))
	return h.Depth
}

// inLine waits until n requests stand in the line.
func (r *router) inLine(n int) {
	r.t.Helper()
	until(r.t, fmt.Sprintf("%d requests wait", n), func() bool { return r.waiting() == n })
}

// doing waits until a node's slot is in a state.
func (r *router) doing(n *node, state string) {
	r.t.Helper()
	series := fmt.Sprintf("pd_router_slot_state{node=%q,state=%q}", n.flag(), state)
	until(r.t, n.name+" is in "+state, func() bool { return r.metrics()[series] == 1 })
}

// up waits until the router knows that a node answers, or that it does not.
func (r *router) up(n *node, yes bool) {
	r.t.Helper()
	series, want := fmt.Sprintf("pd_router_node_up{node=%q}", n.flag()), 0.0
	if n.ctrl == "" {
		series = "pd_router_prefill_up"
	}
	if yes {
		want = 1
	}
	until(r.t, fmt.Sprintf("%s is known to be up: %t", n.name, yes), func() bool { return r.metrics()[series] == want })
}

// goroutines counts the router's goroutines by what they do. Workers of fasthttp that wait for a next connection do not count: they
// stay for some seconds.
func (r *router) goroutines() (n int, by map[string]int) {
	r.t.Helper()
	by = map[string]int{}
	for group := range strings.SplitSeq(string(get(r.t, r.side+"/debug/pprof/goroutine?debug=1")), "\n\n") {
		var count int
		var frames []string
		for line := range strings.Lines(group) {
			if f := strings.Fields(line); len(f) > 2 && f[0] == "#" {
				name, _, _ := strings.Cut(f[2], "+0x")
				frames = append(frames, name)
			} else if len(f) > 1 && f[1] == "@" {
				_, _ = fmt.Sscan(f[0], &count)
			}
		}
		if len(frames) == 0 || strings.HasSuffix(frames[0], "(*workerPool).workerFunc") {
			continue
		}
		n += count
		by[strings.Join(frames, " < ")] += count
	}
	return n, by
}

// journal is what is kept of the router's log.
type journal struct {
	tail tail

	mu       sync.Mutex
	first    map[string]map[string]any // the first line of each kind
	outcomes map[string]int            // lines of requests
	bad      []string                  // lines that there must not be
}

func (j *journal) line(s string) {
	j.tail.add(s)
	var fields map[string]any
	plain := json.Unmarshal([]byte(s), &fields) != nil
	msg, _ := fields["msg"].(string)
	outcome, _ := fields["outcome"].(string)
	j.mu.Lock()
	defer j.mu.Unlock()
	if plain && strings.Contains(s, " UCX ") { // the NIXL library's, about peers that died
		return
	}
	if plain || fields["level"] == "error" || outcome == "internal" {
		j.bad = append(j.bad, s) // not the router's own: a panic, or the race detector
		return
	}
	if j.first[msg] == nil {
		j.first[msg] = fields
	}
	if msg == "request" {
		j.outcomes[outcome]++
	}
}

// said gives the first line with msg, or nil.
func (j *journal) said(msg string) map[string]any {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.first[msg]
}

// requests are the requests that have ended, by outcome.
func (j *journal) requests() map[string]int {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := map[string]int{}
	for k, n := range j.outcomes {
		out[k] = n
	}
	return out
}

func (j *journal) complaints() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.bad...)
}
