package scenario

import (
	"strings"
	"sync"
	"testing"
)

// killing is a line of requests during which nodes are killed and come again.
type killing struct {
	*world
	replies []*reply // by request; read them after wait
	asks    []*ask
	work    sync.WaitGroup
	broken  int // streams that had begun
}

// line sends n requests, each when the one before stands in the line or has a slot, half of them streamed.
func line(t *testing.T, n int, s setup) *killing {
	s.tapped = true
	k := &killing{world: newWorld(t, s), replies: make([]*reply, n)}
	for i := range n {
		a, c := say(i, i%2 == 0, "number "+itoa(i)+" says "+strings.Repeat("a few words ", 5)), k.dial()
		k.asks = append(k.asks, a)
		c.send(a)
		k.work.Go(func() { k.replies[i] = c.readReply(a) })
		k.router.inLine(max(0, i+1-len(k.decode)))
	}
	return k
}

// wait is over when all have been answered. Only streams that had begun may have failed, one for each kill at most.
func (k *killing) wait(kills int) {
	k.t.Helper()
	k.work.Wait()
	for i, r := range k.replies {
		switch {
		case r.failure != "" && k.asks[i].stream && r.status == 200:
			k.t.Logf("stream %d broke off after %q: %s", i, r.text, r.failure)
			k.broken++
		case r.failure != "":
			k.t.Errorf("request %d was lost: %d %s: %s", i, r.status, r.failure, r.message)
		default:
			if what := k.asks[i].wrong(r); what != "" {
				k.t.Errorf("request %d: %s", i, what)
			}
		}
	}
	if k.broken > kills {
		k.t.Errorf("%d streams broke off with %d kills", k.broken, kills)
	}
}

func TestKilledDecodeNodeOfTwo(t *testing.T) {
	for name, flags := range bothWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slow := words("--tokens-per-second 100 --per-token")
			k := line(t, 60, setup{decode: [][]string{slow, slow}, router: flags})
			for _, n := range k.decode {
				k.killDuring(n, "decode")
				k.served(3) // by the other one
				n.start()
				k.router.up(n, true)
				k.router.doing(n, "decode")
			}
			k.wait(2)
			inOrder(t, k.tap.order(), 60, 8)
			k.settle()
		})
	}
}

func TestKilledDecodeNodeAlone(t *testing.T) {
	for name, flags := range bothWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := line(t, 30, setup{decode: [][]string{words("--tokens-per-second 100 --per-token")}, router: flags})
			for range 3 {
				k.killDuring(k.decode[0], "decode")
				k.decode[0].start()
				k.router.up(k.decode[0], true)
				k.served(3)
			}
			k.wait(3)
			inOrder(t, k.tap.order(), 30, len(flags))
			k.settle()
		})
	}
}

// bothWays are the two ways to use a slot.
var bothWays = map[string][]string{"slot held through prefill": nil, "prefilled ahead": {"--prefill-ahead"}}

// killDuring kills a node whose slot is in a state, and waits until the router knows.
func (k *killing) killDuring(n *node, state string) {
	k.t.Helper()
	k.router.doing(n, state)
	n.proc.kill()
	k.router.up(n, false)
}

// served waits until n more requests have been served.
func (k *killing) served(n int) {
	k.t.Helper()
	want := k.router.metrics().outcomes()["ok"] + n
	until(k.t, itoa(n)+" more are served", func() bool { return k.router.metrics().outcomes()["ok"] >= want })
}
