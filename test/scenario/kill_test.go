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

// line lets n requests come one after the other, half of them streamed. The first ones are held in prefill until all stand in line.
func line(t *testing.T, n int, s setup) *killing {
	s.tapped = true
	k := &killing{world: newWorld(t, s), replies: make([]*reply, n)}
	k.tap.holdBack(markOf.MatchString)
	for i := range n {
		a, c := say(i, i%2 == 0, "number "+itoa(i)+" says "+strings.Repeat("a few words ", 5)), k.dial()
		k.asks = append(k.asks, a)
		c.send(a)
		k.work.Go(func() { k.replies[i] = c.readReply(a) })
		if slots := len(k.decode); i < slots {
			until(t, "the request is in prefill", func() bool { return k.tap.holding() == i+1 })
		} else {
			k.router.inLine(i + 1 - slots)
		}
	}
	k.tap.release()
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
	t.Parallel()
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
	t.Parallel()
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

// TestKilledDecodeNodeInEveryPhase kills the only node under a request, with one behind it in line, and lets the router see both its end and
// its return before the request goes on.
func TestKilledDecodeNodeInEveryPhase(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		phase   string
		stream  bool
		prefill string
	}{
		{"in prefill", "prefill", true, ""},
		{"in prefill with KV under way", "prefill", true, "--latency 5s"}, // so that the router sees it all before the answer
		{"in the wait for KV", "kv_wait", true, ""},
		{"in a blocking reply", "decode", false, ""},
		{"in a stream", "decode", true, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{
				prefill: words(tc.prefill), decode: [][]string{words("--tokens-per-second 50 --per-token")}, tapped: true, ctrlTap: true,
			})
			switch {
			case tc.phase == "prefill" && tc.prefill == "":
				w.tap.holdBack(func(text string) bool { return strings.Contains(text, mark(0)) })
			case tc.phase == "kv_wait":
				w.ctrl[0].holdBack(func(string) bool { return true })
			}
			asks := []*ask{say(0, tc.stream, strings.Repeat("slowly ", 30)), say(1, true, "and the next")}
			var clients []*client
			for i, a := range asks {
				clients = append(clients, w.dial())
				clients[i].send(a)
				if i == 0 {
					w.router.doing(w.decode[0], tc.phase)
					if tc.prefill != "" {
						until(t, "KV is under way", func() bool { server, _ := sockets(t, w.decode[0].ctrl); return server > 0 })
					}
				} else {
					w.router.inLine(1)
				}
			}
			begun := &answer{}
			if tc.phase == "decode" && tc.stream {
				begun = clients[0].begun()
			}
			w.decode[0].proc.kill()
			w.router.up(w.decode[0], false)
			w.decode[0].start()
			w.router.up(w.decode[0], true)
			for _, p := range append(w.ctrl, w.tap) {
				p.release()
			}
			if begun.rest != nil {
				if r := clients[0].judge(asks[0], clients[0].finish(begun)); r.failure != "decode_truncated" {
					t.Errorf("the stream ended with %q", r.failure)
				}
			} else {
				checkReply(t, 0, asks[0], clients[0].readReply(asks[0]), false)
			}
			checkReply(t, 1, asks[1], clients[1].readReply(asks[1]), false)
			w.settle()
		})
	}
}

// TestKilledPrefillNode kills the prefill node under a request, twice. No reply had begun, so none is lost.
func TestKilledPrefillNode(t *testing.T) {
	t.Parallel()
	for name, flags := range bothWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 16
			w := newWorld(t, setup{
				prefill: words("--latency 300ms"), decode: [][]string{words("--tokens-per-second 30 --per-token")}, httpTap: true, router: flags,
			})
			var asks []*ask
			var work sync.WaitGroup
			replies := make([]*reply, n)
			for i := range n {
				a, c := say(i, i%2 == 0, "number "+itoa(i)), w.dial()
				asks = append(asks, a)
				c.send(a)
				work.Go(func() { replies[i] = c.readReply(a) })
				if i == 0 {
					w.router.doing(w.decode[0], "prefill") // which takes longer than to send the rest
				} else {
					until(t, "the request is let in", func() bool { return w.begun() > i })
				}
			}
			for range 2 {
				until(t, "a prompt is computed", func() bool {
					m := parseMetrics(t, get(t, "http://"+w.prefill.http+"/metrics"))
					return m.sum("vllm:num_requests_running")+m.sum("vllm:num_requests_waiting") > 0
				})
				w.prefill.proc.kill()
				w.router.up(w.prefill, false)
				w.prefill.start()
				w.router.up(w.prefill, true)
			}
			work.Wait()
			at := map[string]int{} // the place of each decode
			for place, rid := range w.http[0].order() {
				at[rid] = place
			}
			for i, r := range replies {
				checkReply(t, i, asks[i], r, false)
				if i > 0 && at[r.rid] < at[replies[i-1].rid] {
					t.Errorf("request %d was decoded before request %d", i, i-1)
				}
			}
			w.settle()
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
