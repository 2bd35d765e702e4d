package scenario

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
)

// tally counts faults, by what they are and by the step that they met.
type tally map[string][numSteps]int

func (t tally) add(what string, at step) { t.addN(what, at, 1) }

func (t tally) addN(what string, at step, n int) {
	row := t[what]
	row[at] += n
	t[what] = row
}

func (t tally) sum() (n int) {
	for _, row := range t {
		for _, k := range row {
			n += k
		}
	}
	return n
}

// table writes the tally with a column for each step.
func (t tally) table(steps []step) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\t")
	for _, s := range steps {
		fmt.Fprint(w, s, "\t")
	}
	for _, what := range slices.Sorted(maps.Keys(t)) {
		fmt.Fprint(w, "\n", what, "\t")
		for _, s := range steps {
			fmt.Fprint(w, t[what][s], "\t")
		}
	}
	fmt.Fprintln(w)
	_ = w.Flush() // to memory
	return b.String()
}

// told is what a node has said of its own faults.
type told struct {
	mu    sync.Mutex
	kinds map[string]int
	of    map[string]string // rid -> kind
	wrong map[string]string // rid -> what was wrong with its KV
}

// unread begins the complaint about whole KV that the router does not want any more: it has it decoded from no token, which frees the buffer.
const unread = "KV check: first_token_id is 0,"

func (f *told) line(s string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kinds == nil {
		f.kinds, f.of, f.wrong = map[string]int{}, map[string]string{}, map[string]string{}
	}
	if rest, is := strings.CutPrefix(s, "wrong KV for "); is {
		if rid, why, _ := strings.Cut(rest, ": "); !strings.HasPrefix(why, unread) {
			f.wrong[rid] = why
		}
	} else if rest, is := strings.CutPrefix(s, "fault "); is {
		kind, rid, _ := strings.Cut(rest, " for ")
		f.kinds[kind]++
		f.of[rid] = kind
	}
}

// all are copies of what was told: the node goes on.
func (f *told) all() (kinds map[string]int, of, wrong map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.kinds), maps.Clone(f.of), maps.Clone(f.wrong)
}

// stepOf is the step that a node's own fault of some kind meets.
func stepOf(kind string, prefill bool) step {
	switch {
	case strings.HasPrefix(kind, "kv-"):
		return kvToNode
	case prefill:
		return inPrefill
	case slices.Contains([]string{"refuse", "reset", "hang", "busy"}, kind):
		return kvThere
	}
	return inDecode
}

// report prints all faults and what came of the requests, and checks that only KV that was sent damaged was found wrong.
func (c *chaos) report() {
	c.t.Helper()
	m := c.router.metrics()
	for phase, at := range map[string]step{"read_body": anywhere, "queue": anywhere, "prefill": inPrefill, "kv_wait": kvThere, "decode": inDecode} {
		c.done.addN("client leaves", at, int(m.sum("pd_router_client_gone_total", `phase="`+phase+`"`)))
	}
	for _, n := range c.nodes() {
		kinds, _, _ := n.faults.all()
		for kind, count := range kinds {
			role := strings.Fields(n.name)[0]
			c.done.addN(role+" node: "+kind, stepOf(kind, n == c.prefill), count)
		}
	}
	wrong := 0
	_, sent, _ := c.prefill.faults.all()
	for _, n := range c.decode {
		_, _, found := n.faults.all()
		for rid, why := range found {
			wrong++
			if kind := sent[rid]; !slices.Contains(damage, kind) {
				c.t.Errorf("WRONG KV was to be decoded: request %s (fault %q) at %s: %s", rid, kind, n.name, why)
			}
		}
	}
	good, bad := total(c.good), total(c.bad)
	c.t.Logf("%d faults by step, %d more found no moment for it:\n%s", c.done.sum(), c.missed, c.done.table(c.of))
	c.t.Logf("%d good, %d failed, %d left; %d times KV that was sent damaged was found\ngood %v\nfailed %v\nretries %v, the slowest took %s",
		good, bad, c.left, wrong, c.good, c.bad, m.sum("pd_router_retries_total"), slowest(c.waits))
	if good < 3*bad {
		c.t.Errorf("only %d of %d replies are good", good, good+bad)
	}
}
