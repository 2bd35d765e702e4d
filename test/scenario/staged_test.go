package scenario

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// TestStaged runs a router that holds KV itself, with the real NIXL library on all sides.
func TestStaged(t *testing.T) {
	useNIXL(t)
	for _, tc := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"decode slots are given in the order of arrival, to KV that is ready", inOrderWithKVReady},
		{"KV outlives the decode node that it was for", decodeNodeComesAgain},
		{"KV that its node has let go of is made again", nodeLetsGo},
		{"a prefill node that dies takes its transfers with it", prefillNodeComesAgain},
		{"a prompt takes the room that it needs", roomsOfSeveralSizes},
		{"a client that leaves gives its room back", clientLeavesWithKVReady},
		{"a signal refuses those whose KV is ready", signalWithKVReady},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.run(t)
		})
	}
}

// slowly is a decode node whose replies can be stopped in the middle.
const slowly = "--tokens-per-second 60 --per-token"

// staged is a world with one decode node and an arena.
func staged(t *testing.T, decode, router string, s setup) *world {
	s.prefill = append(s.prefill, words("--transport nixl")...)
	s.decode = [][]string{words("--transport nixl " + decode)}
	s.router = append(s.router, words("--kv-handoff staged --kv-verify 1 "+router)...)
	w := newWorld(t, s)
	w.kept = 3 * w.rooms("free")
	return w
}

// rooms is how many slots of the arena are in a state.
func (w *world) rooms(state string) int {
	w.t.Helper()
	return int(w.router.metrics().sum("pd_router_arena_slots", fmt.Sprintf("state=%q", state)))
}

func (w *world) held(n int) {
	w.t.Helper()
	until(w.t, fmt.Sprintf("%d requests wait with their KV ready", n), func() bool { return w.rooms("held") == n })
}

// crowd are n requests, each in its line before the next came. The decode node stands still in the middle of the first reply until goOn.
type crowd struct {
	*world
	asks    []*ask
	clients []*client
	replies []*reply
	reading sync.WaitGroup
}

func (w *world) crowd(n int) *crowd {
	w.t.Helper()
	c := &crowd{world: w, replies: make([]*reply, n)}
	for i := range n {
		a, client := say(i, i%2 == 0, "number "+itoa(i)+" says "+strings.Repeat("a few words ", 5)), w.dial()
		c.asks, c.clients = append(c.asks, a), append(c.clients, client)
		client.send(a)
		until(w.t, "the request is let in", func() bool {
			m := w.router.metrics()
			return int(m.sum("pd_router_queue_depth")+m.sum("pd_router_slots_busy"))+w.filling() > i
		})
		if i == 0 {
			w.router.doing(w.decode[0], "decode")
			w.decode[0].proc.signal(syscall.SIGSTOP)
		}
	}
	return c
}

func (c *crowd) goOn() { c.decode[0].proc.signal(syscall.SIGCONT) }

// filling is how many requests have a room and no KV yet.
func (w *world) filling() int { return w.rooms("reserved") + w.rooms("receiving") }

// served checks that all got what they asked for.
func (c *crowd) served() {
	c.t.Helper()
	for i, client := range c.clients {
		c.reading.Go(func() { c.replies[i] = client.readReply(c.asks[i]) })
	}
	c.reading.Wait()
	for i, r := range c.replies {
		checkReply(c.t, i, c.asks[i], r, false)
	}
}

func inOrderWithKVReady(t *testing.T) {
	w := staged(t, slowly, "--kv-arena-slots 3", setup{httpTap: true, tapped: true, prefill: words("--latency 20ms")})
	w.tap.holdBack(func(text string) bool { return strings.Contains(text, mark(1)) }) // its KV is ready last
	c := w.crowd(12)
	w.held(2)
	w.tap.release()
	w.held(3)
	c.goOn()
	c.served()
	at := map[string]int{} // the place of each decode
	for place, rid := range w.http[0].order() {
		at[rid] = place
	}
	for i, r := range c.replies {
		if i > 0 && at[r.rid] < at[c.replies[i-1].rid] {
			t.Errorf("request %d was decoded before request %d", i, i-1)
		}
	}
	if n := len(w.http[0].order()); n != len(c.replies) {
		t.Errorf("%d decodes", n)
	}
	if won := w.router.metrics().sum("pd_router_overlap_seconds_total"); !(won > 0.1) {
		t.Errorf("%v s of prefill while the slot decoded", won)
	}
	w.settle()
}

// decodeNodeComesAgain kills the decode node when KV is on its way there, and others wait with theirs: nobody is prefilled again.
func decodeNodeComesAgain(t *testing.T) {
	w := staged(t, slowly, "--kv-arena-slots 3", setup{tapped: true, ctrlTap: true})
	c := w.crowd(4)
	w.held(3)
	w.ctrl[0].holdBack(func(string) bool { return true })
	c.goOn()
	until(t, "KV is on its way to the node", func() bool { return w.rooms("sending") == 1 })
	w.decode[0].proc.kill()
	w.router.up(w.decode[0], false)
	w.ctrl[0].release()
	w.decode[0].start()
	c.served()
	times := map[string]int{} // that each was prefilled
	for _, m := range w.tap.order() {
		times[m]++
	}
	for i := range c.replies {
		if n := times[strings.Trim(mark(i), "#")]; n != 1 {
			t.Errorf("request %d was prefilled %d times", i, n)
		}
	}
	w.settle()
}

// nodeLetsGo has the only decode node break off the second request, as one that lives on: it refuses the KV of that id from then on.
func nodeLetsGo(t *testing.T) {
	w := staged(t, "--tokens-per-second 0 --fault reset=1/2", "--kv-arena-slots 1", setup{})
	for i := range 2 {
		a, client := say(i, i == 0, "a few words"), w.dial()
		client.send(a)
		checkReply(t, i, a, client.readReply(a), false)
	}
	if n := w.router.metrics().sum("pd_router_kv_transfer_failures_total", `reason="forgotten"`); n != 1 {
		t.Errorf("the node has refused %v transfers of KV that it had let go of", n)
	}
	w.settle()
}

// prefillNodeComesAgain kills the prefill node while KV comes. Its rooms are given out again when nothing can come to them any more.
func prefillNodeComesAgain(t *testing.T) {
	w := staged(t, slowly, "--kv-arena-slots 2", setup{prefill: words("--transfer-gbps 0.0001")}) // 5 KB a token, so 50 ms a token
	c := w.crowd(2)
	until(t, "KV is under way", func() bool { return w.rooms("receiving") > 0 })
	w.prefill.proc.kill()
	w.router.up(w.prefill, false)
	w.prefill.start()
	w.router.up(w.prefill, true)
	c.goOn()
	c.served()
	w.settle()
}

// roomsOfSeveralSizes has a prompt that proves longer than its body let expect, and one that no room takes.
func roomsOfSeveralSizes(t *testing.T) {
	w := staged(t, "--tokens-per-second 0", "--kv-arena-sizes 1x250,1x400", setup{httpTap: true})
	text := func(letters int) string { return quote("say:" + strings.Repeat("qxzv", letters/4)) } // four letters are a token
	for _, prompt := range []string{text(100), "[" + strings.Repeat("7,", 299) + "7]", text(2000)} {
		client, a := w.dial(), &ask{path: completionsPath, body: fmt.Appendf(nil, `{"prompt":%s,"max_tokens":5}`, prompt)}
		client.send(a)
		if r := client.readReply(a); r.failure != "" || r.text == "" {
			t.Errorf("%.20s: %d %s: %s", prompt, r.status, r.failure, r.message)
		}
	}
	if n := len(w.http[0].order()); n != 3 {
		t.Errorf("%d decodes", n)
	}
	transfers := func(hop string) float64 {
		return w.router.metrics().sum("pd_router_kv_transfer_seconds_count", fmt.Sprintf("hop=%q", hop))
	}
	if in, out := transfers("in"), transfers("out"); in != 2 || out != 2 {
		t.Errorf("%v transfers in and %v out: the longest prompt goes straight to the node", in, out)
	}
	w.settle()
}

func clientLeavesWithKVReady(t *testing.T) {
	w := staged(t, slowly, "--kv-arena-slots 2", setup{})
	c := w.crowd(4)
	w.held(2)
	c.clients[1].hangUp(true)
	until(t, "its room goes to the next in line", func() bool { return w.router.waiting() == 2 })
	w.held(2)
	c.goOn()
	c.clients, c.asks, c.replies = slices.Delete(c.clients, 1, 2), slices.Delete(c.asks, 1, 2), c.replies[1:]
	c.served()
	w.settle()
}

func signalWithKVReady(t *testing.T) {
	w := staged(t, slowly, "--kv-arena-slots 2 --drain-timeout 60", setup{})
	c := w.crowd(4)
	w.held(2)
	w.router.proc.signal(syscall.SIGTERM)
	for i, client := range c.clients[1:] {
		if r := client.readReply(c.asks[i+1]); r.status != 503 || r.failure != "draining" {
			t.Errorf("a waiter was told %d %s", r.status, r.failure)
		}
	}
	c.goOn()
	checkReply(t, 0, c.asks[0], c.clients[0].readReply(c.asks[0]), false)
	if code := w.router.proc.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
