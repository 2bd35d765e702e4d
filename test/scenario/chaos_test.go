package scenario

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The long form of TestChaos, and one that has failed: `make test-chaos`.
var (
	chaosRequests = flag.Int("chaos", 0, "requests of TestChaos for each way to hand over KV; 0 leaves it out")
	chaosSeed     = flag.Uint64("chaos-seed", 0, "seed of TestChaos: which faults are drawn, and what clients ask; 0 draws one")
)

// What nodes do wrong by themselves, by shares of the requests: counts would begin again with each start.
var (
	chaosPrefill = words("--fault refuse=0.006 --fault reset=0.006 --fault hang=0.0004 --fault truncate=0.006 --fault garbage=0.005 --fault slow=0.02 " +
		"--fault kv-flip=0.004 --fault kv-rid=0.004 --fault kv-offset=0.004 --fault kv-size=0.004 --fault kv-short=0.004 --fault kv-lost=0.001 --fault kv-none=0.0004")
	chaosDecode = words("--fault refuse=0.006 --fault reset=0.006 --fault hang=0.0004 --fault truncate=0.006 --fault garbage=0.005 --fault slow=0.02 " +
		"--fault busy=0.03 --fault error=0.006 --fault stall=0.0015")
)

// damage is what is wrong with KV that the sender says is whole. A node must find that, and never anything else.
var damage = words("kv-flip kv-rid kv-offset kv-size kv-short")

// TestChaos moves KV by the real NIXL library while nodes are killed and stopped at every step of a request, come again under the name that
// they had, are busy, lie, and clients leave. No KV is ever decoded that is not the request's, and afterwards nothing is left.
func TestChaos(t *testing.T) {
	if *chaosRequests == 0 {
		t.Skip("takes minutes: make test-chaos")
	}
	useNIXL(t)
	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	for _, way := range []struct {
		name, router string
		steps        []step
	}{
		{"direct", "", directSteps},
		{"prefilled ahead", "--prefill-ahead", directSteps},
		{"staged", "--kv-handoff staged --kv-arena-slots 3 --kv-verify 1", stagedSteps},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Logf("-chaos %d -chaos-seed %d", *chaosRequests, seed)
			c := newChaos(t, seed, words(way.router), way.steps)
			c.run()
			c.report()
			c.serveAgain()
			c.settle()
		})
	}
}

// nodeDescriptors is above what a node has open at rest, 25 to 30, and far below what it would keep of all who came and went.
const nodeDescriptors = 45

// chaos is a faultRun with somebody who harms its nodes.
type chaos struct {
	*faultRun
	*harmer
	wanted atomic.Int32 // a step in which the next request is to stay for long
}

func newChaos(t *testing.T, seed uint64, flags []string, steps []step) *chaos {
	nodes := words("--transport nixl --jitter 0.5")
	decode := slices.Concat(nodes, words("--tokens-per-second 3000 --per-token --convert 5ms"), chaosDecode)
	w := newWorld(t, setup{
		prefill: slices.Concat(nodes, words("--tokens-per-second 40000 --latency 2ms --transfer-gbps 0.2 --max-model-len 8192"), chaosPrefill),
		decode:  [][]string{slices.Concat(decode, words("--agent-name a")), slices.Concat(decode, words("--agent-name b"))},
		// KV that comes too late is refused for 3 s, and what is behind it waits: a limit below that for each node would feed on itself.
		router: slices.Concat(words("--kv-timeout 9 --prefill-timeout 4 --stream-idle-timeout 2"), flags),
	})
	w.busy, w.wrongKV = true, true
	if slices.Contains(steps, kvHeld) {
		w.kept = 3 * w.rooms("free")
	}
	t.Cleanup(func() {
		for _, n := range w.nodes() {
			if t.Failed() {
				t.Logf("end of the log of %s:\n%s", n.name, n.stderr.String())
			}
		}
	})
	c := &chaos{faultRun: &faultRun{world: w, seeds: rand.New(rand.NewPCG(seed, 1)), good: map[string]int{}, bad: map[string]int{}}}
	c.harmer = &harmer{in: w, gap: min(20, float64(*chaosRequests)/10), of: steps, r: rand.New(rand.NewPCG(seed, 2)), done: tally{}}
	c.harmer.want = func(s step) { c.wanted.Store(int32(s)) }
	return c
}

// run has clients come until all requests were sent, and faults as long as one of them waits.
func (c *chaos) run() {
	var work sync.WaitGroup
	for range 12 {
		seed := c.seeds.Uint64()
		work.Go(func() { c.client(rand.New(rand.NewPCG(seed, 0))) })
	}
	over := make(chan struct{}) // closed when all clients have ended
	go func() {
		work.Wait()
		close(over)
	}()
	c.harm(over)
}

func (c *chaos) client(r *rand.Rand) {
	for {
		i := int(c.last.Add(1))
		if i > *chaosRequests {
			return
		}
		kind, a := c.draw(i, r)
		cl := c.dial()
		cl.send(a)
		if r.IntN(12) == 0 {
			c.leave(cl, a, r)
			continue
		}
		start := time.Now()
		c.judgeReply(kind, a, cl.readReply(a), time.Since(start))
	}
}

// leave is a client that goes before its reply has ended, in whatever phase that is. Without a reset before the first byte: that could overtake
// the request, which then was never sent.
func (c *chaos) leave(cl *client, a *ask, r *rand.Rand) {
	if begun := r.IntN(3) == 0; begun && a.stream {
		cl.begun()
		cl.hangUp(coin(r))
	} else {
		time.Sleep(time.Duration(r.IntN(400)) * time.Millisecond)
		cl.hangUp(false)
	}
	c.note(func() { c.left++ })
}

// draw makes request i, which stays for long in the step that is wanted, if one is.
func (c *chaos) draw(i int, r *rand.Rand) (name string, a *ask) {
	long := step(c.wanted.Swap(0))
	if long == 0 && r.IntN(12) == 0 {
		long = step(r.IntN(int(numSteps)))
	}
	if long == inDecode {
		a = say(i, coin(r), strings.Repeat(sentence(r, i, true)+" ", 8)+"so it ends.")
		return "long", a
	}
	kind := kinds[r.IntN(len(kinds))]
	a = kind.make(i, r)
	if long != 0 {
		filler := strings.Repeat("and so on ", 1200+r.IntN(1200))
		a.body = bytes.Replace(a.body, []byte(mark(i)), []byte(mark(i)+filler), 1)
	}
	return kind.name, a
}

// serveAgain has each node serve once all harm is over, as many requests at once as there are nodes. Nodes go on doing wrong by themselves.
func (c *chaos) serveAgain() {
	c.t.Helper()
	before := make([]float64, len(c.decode))
	for i, n := range c.decode {
		before[i] = n.counters()["Tokens"]
	}
	waits := func(i int) bool { return c.decode[i].counters()["Tokens"] == before[i] }
	for round := 0; waits(0) || waits(1); round++ {
		if round == 50 {
			c.t.Fatalf("some node serves no more: %v tokens before", before)
		}
		var asks []*ask
		var clients []*client
		for i := range c.decode {
			asks, clients = append(asks, say(10*round+i, coin(c.r), "and one more, which takes a moment")), append(clients, c.dial())
			clients[i].send(asks[i])
		}
		for i, cl := range clients {
			c.judgeReply("afterwards", asks[i], cl.readReply(asks[i]), 0)
		}
	}
	for _, n := range c.decode {
		until(c.t, "the buffer of "+n.name+" is free", func() bool {
			busy, err := n.receiving()
			return err == nil && !busy
		})
	}
	for _, n := range c.nodes() {
		if held := descriptors(c.t, n.proc.pid()); held > nodeDescriptors {
			c.t.Errorf("%s has %d descriptors open", n.name, held)
		}
	}
}
