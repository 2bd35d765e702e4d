package scenario

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"
)

// step is where a request is when a fault meets it.
type step int

const (
	anywhere   step = iota // whatever is going on
	inPrefill              // the prompt is computed
	kvToRouter             // staged: bytes are on their way into the router
	kvHeld                 // staged: the router has them, and waits for a decode node
	kvToNode               // bytes are on their way into a decode node, or have stopped half way
	kvThere                // the node has them and makes ready
	inDecode               // the reply is under way
	numSteps
)

var (
	directSteps = []step{anywhere, inPrefill, kvToNode, kvThere, inDecode}
	stagedSteps = []step{anywhere, inPrefill, kvToRouter, kvHeld, kvToNode, kvThere, inDecode}
)

func (s step) String() string {
	return [...]string{"anywhere", "prefill", "KV to router", "KV held", "KV to node", "KV there", "decode"}[s]
}

// harmer draws faults of whole processes, waits for the moment that each is aimed at, and brings back what it has harmed. All of it runs in one
// goroutine; only tells of it are read by others.
type harmer struct {
	in   *world
	r    *rand.Rand
	gap  float64    // requests between two faults
	of   []step     // to aim at
	want func(step) // asks for a request that stays long in a step

	due    []dueAt        // what is to come, in no order
	out    map[*node]bool // nodes that are stopped or gone
	done   tally
	missed int // aims that were given up
	starts int
}

type dueAt struct {
	at time.Time
	do func()
}

// harms are what can be done. Each is done to the node that it is for; nil is the router.
var harms = []struct {
	name string
	to   func(h *harmer, n *node) *node
	do   func(h *harmer, n *node)
}{
	{"kill decode node", (*harmer).decodeNode, func(h *harmer, n *node) { h.kill(n, true) }},
	{"kill decode node, which keeps its agent's name", (*harmer).decodeNode, func(h *harmer, n *node) { h.kill(n, false) }},
	{"kill prefill node", (*harmer).prefillNode, func(h *harmer, n *node) { h.kill(n, false) }},
	{"stop decode node", (*harmer).decodeNode, (*harmer).stop},
	{"stop prefill node", (*harmer).prefillNode, (*harmer).stop},
	{"stop router", func(*harmer, *node) *node { return nil }, (*harmer).stopRouter},
}

func (h *harmer) decodeNode(n *node) *node { return n }
func (h *harmer) prefillNode(*node) *node  { return h.in.prefill }

// harm does one thing after the other until over is closed, and then mends everything.
func (h *harmer) harm(over <-chan struct{}) {
	h.out = map[*node]bool{}
	var next int64
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for ; ; <-look.C {
		h.doDue(time.Now())
		select {
		case <-over:
			h.doDue(time.Now().Add(time.Hour))
			for _, n := range h.in.nodes() {
				h.in.router.up(n, true)
			}
			return
		default:
		}
		if sent := h.in.sent.Load(); sent >= next {
			h.aim(over)
			next = sent + 1 + int64(h.r.ExpFloat64()*h.gap)
		}
	}
}

// aim draws a fault, and does it when a node is in the step that it is for.
func (h *harmer) aim(over <-chan struct{}) {
	what, at := harms[h.r.IntN(len(harms))], h.of[h.r.IntN(len(h.of))]
	h.want(at)
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		select {
		case <-over:
			return
		default:
		}
		h.doDue(time.Now())
		for _, n := range h.at(at) {
			if to := what.to(h, n); !h.out[to] {
				what.do(h, to)
				h.done.add(what.name, at)
				return
			}
		}
	}
	h.missed++
}

// at are the decode nodes whose request is in a step, as far as that can be seen from outside. What the router does by itself is any node's.
func (h *harmer) at(s step) (nodes []*node) {
	var m samples
	if s != anywhere {
		m = h.in.router.metrics()
	}
	for _, i := range h.r.Perm(len(h.in.decode)) {
		if n := h.in.decode[i]; !h.out[n] && h.isAt(m, n, s) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

func (h *harmer) isAt(m samples, n *node, s step) bool {
	room, slot := "", ""
	switch s {
	case anywhere:
		return true
	case kvToRouter:
		room = "receiving"
	case kvHeld:
		room = "held"
	case inPrefill:
		room, slot = "reserved", "prefill"
	case kvThere:
		slot = "kv_wait"
	case inDecode:
		slot = "decode"
	}
	if m.sum("pd_router_arena_slots", fmt.Sprintf("state=%q", room)) > 0 {
		return true
	}
	if s != kvToNode && m[fmt.Sprintf("pd_router_slot_state{node=%q,state=%q}", n.flag(), slot)] != 1 {
		return false
	}
	moving, err := n.receiving()
	return err == nil && moving == (s == kvToNode)
}

// after plans something.
func (h *harmer) after(d time.Duration, do func()) {
	h.due = append(h.due, dueAt{time.Now().Add(d), do})
}

func (h *harmer) doDue(now time.Time) {
	var ripe []dueAt
	h.due = slices.DeleteFunc(h.due, func(d dueAt) bool {
		if now.Before(d.at) {
			return false
		}
		ripe = append(ripe, d)
		return true
	})
	for _, d := range ripe {
		d.do()
	}
}

// kill ends a node as a crash does. It comes again a moment later.
func (h *harmer) kill(n *node, rename bool) {
	n.proc.kill()
	h.out[n] = true
	if rename {
		h.starts++
		n.args[slices.Index(n.args, "--agent-name")+1] = fmt.Sprintf("%s-%d", n.name, h.starts)
	}
	h.after(time.Duration(h.r.IntN(600))*time.Millisecond, func() {
		n.start()
		delete(h.out, n)
	})
}

// stop has a node stand still: mostly for a moment, sometimes for longer than anybody waits.
func (h *harmer) stop(n *node) {
	n.proc.signal(syscall.SIGSTOP)
	h.out[n] = true
	h.after(h.pause(), func() {
		n.proc.signal(syscall.SIGCONT)
		delete(h.out, n)
	})
}

func (h *harmer) pause() time.Duration {
	switch n := h.r.IntN(40); {
	case n == 0:
		return 7 * time.Second
	case n < 6:
		return time.Second + time.Duration(h.r.IntN(1500))*time.Millisecond
	}
	return time.Duration(20+h.r.IntN(400)) * time.Millisecond
}

func (h *harmer) stopRouter(*node) {
	h.in.router.proc.signal(syscall.SIGSTOP)
	time.Sleep(time.Duration(20+h.r.IntN(300)) * time.Millisecond) // it could tell nothing meanwhile
	h.in.router.proc.signal(syscall.SIGCONT)
}
