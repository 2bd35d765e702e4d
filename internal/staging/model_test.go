package staging

import (
	"context"
	"fmt"
	"net"
	"testing"

	"go.uber.org/zap"
	"pgregory.net/rapid"

	"pd-router/internal/tilert"
)

// bareSlot is a slot without memory, agent and ports.
func bareSlot(senders int, hooks Hooks) *Slot {
	a := &Arena{o: Options{Layout: tiny, Senders: senders, Observe: hooks}, log: zap.NewNop()}
	a.ctx, a.stop = context.WithCancelCause(context.Background())
	s := newSlot(a, 0, 100)
	s.end = &endpoint{}
	return s
}

// modelVisit is a connection as the model sees it.
type modelVisit struct {
	v    *visit
	w    *tilert.Writer
	rid  string
	rank int
}

// TestSlotIsSafeInAnyOrder: requests, ranks of three rids and their ends in any order hold invariants 1 to 3.
func TestSlotIsSafeInAnyOrder(t *testing.T) {
	conn, other := net.Pipe()
	defer conn.Close()
	defer other.Close()
	rapid.Check(t, func(t *rapid.T) {
		const senders = 2
		s := bareSlot(senders, Hooks{})
		var kv *KV
		asked := "" // of Receive
		complete := false
		lost := false // somebody left without a done since the endpoint was made
		var live []*modelVisit
		rids := rapid.SampledFrom([]string{"a", "b", "c"})
		// ask is one connection's request, and what must hold when it is let in.
		ask := func(t *rapid.T, id string, rank, tokens int) *modelVisit {
			v := &visit{s: s, conn: conn, end: s.end}
			q := &tilert.Request{RID: id, Rank: rank, SeqLen: tokens}
			whole := complete || kv != nil && kv.in != nil && kv.in.transfer != nil
			reply, w := v.Admit(q)
			if reply.Accepted != (w != nil) {
				t.Fatal("accepted without a writer, or the other way round")
			}
			if w == nil {
				return nil
			}
			for _, m := range live {
				if !m.v.done && (m.rid != id || m.rank == rank) {
					t.Fatalf("rank %d of %s was let in beside rank %d of %s", rank, id, m.rank, m.rid)
				}
			}
			switch {
			case kv == nil:
				t.Fatal("was let in without a request")
			case whole:
				t.Fatal("complete KV is replaced")
			case asked != "" && id != asked:
				t.Fatalf("%s was let in for %s", id, asked)
			case rank < 0 || rank >= senders || tokens > 100 || tokens != kv.in.seqLen:
				t.Fatal("a bad rank was let in")
			}
			return &modelVisit{v, w, id, rank}
		}
		t.Repeat(map[string]func(*rapid.T){
			"expect": func(t *rapid.T) {
				got, err := s.Expect(rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "expected"))
				if (err == nil) != (kv == nil && len(live) == 0 && !lost) {
					t.Fatalf("Expect: %v with %d live writers, lost %v", err, len(live), lost)
				}
				if err == nil {
					kv, asked, complete = got, "", false
				}
			},
			"ask": func(t *rapid.T) {
				n := rapid.SampledFrom([]int{100, 100, 100, 99, 101}).Draw(t, "tokens")
				if m := ask(t, rids.Draw(t, "rid"), rapid.SampledFrom([]int{0, 1, 0, 1, -1, 2}).Draw(t, "rank"), n); m != nil {
					live = append(live, m)
				}
			},
			"send": func(t *rapid.T) { // all ranks, one after the other
				id := rids.Draw(t, "rid")
				for rank := range senders {
					if m := ask(t, id, rank, 100); m != nil {
						m.v.Done(m.w)
						m.v.Leave(m.w)
					}
				}
			},
			"done": func(t *rapid.T) {
				if len(live) == 0 {
					t.Skip()
				}
				m := rapid.SampledFrom(live).Draw(t, "who")
				m.v.Done(m.w)
			},
			"leave": func(t *rapid.T) {
				if len(live) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(live)-1).Draw(t, "who")
				m := live[i]
				live = append(live[:i], live[i+1:]...)
				m.v.Leave(m.w)
				if !m.v.done {
					lost = true
				}
			},
			"receive": func(t *rapid.T) {
				if kv == nil || asked != "" {
					t.Skip()
				}
				asked = rids.Draw(t, "rid")
				s.askFor(kv, asked)
			},
			"look": func(t *rapid.T) {
				if kv == nil || asked == "" {
					t.Skip()
				}
				ok, err := kv.look()
				if ok && (lost || kv.in.rid != asked || !allDone(kv.in)) {
					t.Fatal("KV that is not whole was handed out")
				}
				if ok && err != nil || lost && !complete && err == nil {
					t.Fatalf("look: %v, %v", ok, err)
				}
				complete = ok
			},
			"release": func(t *rapid.T) {
				if kv == nil {
					t.Skip()
				}
				kv.Release()
				kv, complete = nil, false
			},
			"renew": func(t *rapid.T) { // as keep does it, without a network
				if s.State() != Quarantined {
					t.Skip()
				}
				s.end, s.suspect, lost = &endpoint{}, nil, false
				for _, m := range live {
					m.v.Leave(m.w)
				}
				live = nil
				if !s.back() {
					t.Fatal("everybody has left, and the slot is not free")
				}
			},
			"": func(t *rapid.T) {
				st := s.State()
				if st == Free && (kv != nil || len(live) > 0 || lost) || kv != nil && (st == Free || st == Quarantined) {
					t.Fatal(fmt.Sprint("state ", st))
				}
				if st == Quarantined && len(live) == 0 && !lost { // keep frees it
					s.back()
				}
			},
		})
	})
}

func allDone(in *arrival) bool {
	for _, r := range in.ranks {
		if !r.done {
			return false
		}
	}
	return true
}
