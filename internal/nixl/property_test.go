package nixl

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestWritesHaveOneEndWhateverHappens plays writes, deaths, new generations and closes in any order against a fake library that complains
// about each rule that is broken (invariants 2 to 4). Two actions may come without any pause between them.
func TestWritesHaveOneEndWhateverHappens(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rapid.SyncTest(rt, func(rt *rapid.T) {
			d := makeFakeDriver()
			a, err := (&Library{drv: d}).NewAgentNamed(context.Background(), "self")
			noError(rt, err)
			mem, err := NewMemory(1<<20, false)
			noError(rt, err)
			region, err := a.Register(context.Background(), mem, 0, 1<<20)
			noError(rt, err)
			peers := map[string]*Peer{}
			generation := map[string]byte{}
			name := rapid.SampledFrom([]string{"a", "b"})
			begun := 0
			ends := make(chan error, 1000)

			add := func(rt *rapid.T) {
				n := name.Draw(rt, "peer")
				generation[n] += rapid.Byte().Filter(func(b byte) bool { return b < 2 }).Draw(rt, "newer")
				blob := fakeBlob(n, generation[n])
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				p, err := a.AddPeer(ctx, blob)
				noError(rt, err)
				peers[n] = p
			}
			rt.Repeat(map[string]func(*rapid.T){
				"add peer": add,
				"write": func(rt *rapid.T) {
					p := peers[name.Draw(rt, "peer")]
					if p == nil {
						rt.Skip()
					}
					limit := time.Duration(rapid.IntRange(1, 5_000).Draw(rt, "ms")) * time.Millisecond
					spans := rapid.SampledFrom([][]Span{little, big}).Draw(rt, "size")
					begun++
					go func() {
						ctx, cancel := context.WithTimeout(context.Background(), limit)
						defer cancel()
						err := p.Write(ctx, region, spans)
						if uncertain := new(UncertainError); errors.As(err, &uncertain) {
							<-uncertain.Settled
						}
						ends <- err
					}()
				},
				"finish":    func(rt *rapid.T) { d.finish(name.Draw(rt, "peer"), Success) },
				"fail":      func(rt *rapid.T) { d.finish(name.Draw(rt, "peer"), Backend) },
				"pass time": func(rt *rapid.T) { time.Sleep(time.Duration(rapid.IntRange(0, 500).Draw(rt, "ms")) * time.Millisecond) },
				"settle":    func(*rapid.T) { synctest.Wait() },
				"close peer": func(rt *rapid.T) {
					if p := peers[name.Draw(rt, "peer")]; p != nil {
						noError(rt, p.Close())
					}
				},
				"": func(rt *rapid.T) {
					a.mu.Lock()
					defer a.mu.Unlock()
					if region.users < 0 || a.calls < 0 {
						rt.Fatalf("%d writes, %d calls", region.users, a.calls)
					}
				},
			})
			noError(rt, a.Close())
			for range begun {
				<-ends // each write comes to an end, once
			}
			synctest.Wait()
			for _, p := range peers {
				if p.users != 0 || p.posting != 0 {
					rt.Fatalf("peer %s still has %d writes", p.name, p.users)
				}
			}
			if region.users != 0 || len(d.reqs) != 0 {
				rt.Fatalf("%d writes and %d requests are left", region.users, len(d.reqs))
			}
			noError(rt, mem.Close())
			if c := d.complained(); len(c) > 0 {
				rt.Fatal(c)
			}
		})
	})
}

func noError(rt *rapid.T, err error) {
	if err != nil {
		rt.Fatal(fmt.Sprintf("unexpected: %v", err))
	}
}
