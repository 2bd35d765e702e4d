package scenario

import (
	"strings"
	"sync"
	"testing"
)

// TestThousandClientsLeaveAtOnce has clients in every phase: two in prefill, two that wait for KV, two whose replies stream, and the rest in
// line. All leave in one moment, half of them with a reset.
func TestThousandClientsLeaveAtOnce(t *testing.T) {
	t.Parallel()
	const all, active = 1000, 6
	nodes := make([][]string, active)
	for i := range nodes {
		nodes[i] = words("--tokens-per-second 20 --per-token")
	}
	w := newWorld(t, setup{decode: nodes, ctrlTap: true, tapped: true})
	clients := make([]*client, all)
	text := strings.Repeat("a reply that takes its time ", 20)
	pair := func(first int, state string) {
		for i := first; i < first+2; i++ {
			clients[i] = w.dial()
			clients[i].send(say(i, true, text))
		}
		until(t, "two are in "+state, func() bool { return w.slots(state) == 2 })
	}
	pair(0, "decode")
	for _, ctrl := range w.ctrl {
		ctrl.holdBack(func(string) bool { return true })
	}
	pair(2, "kv_wait")
	w.tap.holdBack(func(text string) bool { return strings.Contains(text, mark(4)) || strings.Contains(text, mark(5)) })
	pair(4, "prefill")
	for i := active; i < all; i++ {
		clients[i] = w.dial()
		clients[i].send(say(i, i%2 == 0, text))
	}
	w.router.inLine(all - active)

	var leaving sync.WaitGroup
	for i, c := range clients {
		leaving.Go(func() { c.hangUp(i%2 == 0) })
	}
	leaving.Wait()
	until(t, "all have ended", func() bool { return total(w.router.metrics().outcomes()) == all })
	w.tap.release() // what the nodes hold back is nobody's any more
	for _, ctrl := range w.ctrl {
		ctrl.release()
	}
	until(t, "all slots are free", func() bool { return w.slots("free") == len(w.decode) })

	m := w.router.metrics()
	if got := m.outcomes(); got["client_gone"] != all {
		t.Errorf("outcomes: %v", got)
	}
	// Some of the line may have had a slot for a moment, when those before them had left.
	for phase, least := range map[string]int{"prefill": 2, "kv_wait": 2, "decode": 2, "queue": all / 2} {
		if got := m.sum("pd_router_client_gone_total", `phase="`+phase+`"`); int(got) < least {
			t.Errorf("%v left in %s, want %d or more", got, phase, least)
		}
	}
	if got := m.sum("pd_router_client_gone_total"); int(got) != all {
		t.Errorf("%v left in some phase, want %d", got, all)
	}
	var after sync.WaitGroup
	for i := range 3 * len(w.decode) { // each node serves again
		after.Go(func() {
			a := say(all+i, i%2 == 0, "and the next "+itoa(i))
			c := w.dial()
			c.send(a)
			checkReply(t, all+i, a, c.readReply(a), false)
		})
	}
	after.Wait()
	w.settle()
}

// TestClientLeavesWhileItsKVComes leaves the node with a transfer that will never be complete. The next request must not pay for that.
func TestClientLeavesWhileItsKVComes(t *testing.T) {
	t.Parallel()
	for name, flags := range bothWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{
				prefill: words("--latency 1s"), decode: [][]string{words("--tokens-per-second 50 --per-token")}, router: flags,
			})
			var asks []*ask
			var clients []*client
			send := func(text string) {
				asks, clients = append(asks, say(len(asks), true, text)), append(clients, w.dial())
				clients[len(asks)-1].send(asks[len(asks)-1])
			}
			if flags != nil {
				send(strings.Repeat("behind this one the next is prefilled ", 8))
				w.router.doing(w.decode[0], "decode")
			}
			send("never said")
			until(t, "its KV is under way", func() bool { server, _ := sockets(t, w.decode[0].ctrl); return server > 0 })
			leaver := clients[len(clients)-1]
			send("the next in line")
			leaver.hangUp(false)
			for i, c := range clients {
				if c != leaver {
					checkReply(t, i, asks[i], c.readReply(asks[i]), false)
				}
			}
			w.settle()
		})
	}
}
