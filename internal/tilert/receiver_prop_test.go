package tilert

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// world is a receiver with connections that come, finish and go in any order, and what must hold of it.
type world struct {
	r    *Receiver
	now  time.Time
	live []*Writer            // admitted and not left
	gens map[uint64]string    // rid of each generation
	gone map[string]bool      // released and not expected since
	dies map[string]time.Time // until when those are refused
}

const propAge = 10 * time.Second

var rids = []string{"a", "b", "c"}

func (w *world) admit(t *rapid.T) {
	req := &Request{
		RID: rapid.SampledFrom(rids).Draw(t, "rid"), Rank: rapid.IntRange(0, 3).Draw(t, "rank"), SeqLen: rapid.IntRange(0, 9).Draw(t, "len"),
		AdmissionWindow: Seconds(rapid.IntRange(0, 20).Draw(t, "window")) * Seconds(time.Second),
	}
	state, holder := w.r.State()
	writers := w.r.Writers()
	began, _ := w.r.Current()
	reply, conn := w.r.Admit(w.now, req)
	if reply.Accepted != (conn != nil) {
		t.Fatalf("%+v with writer %v", reply, conn)
	}
	if conn == nil {
		if s, h := w.r.State(); s != state || h != holder || w.r.Writers() != writers {
			t.Fatalf("a refusal changed the state from %s of %q to %s of %q", state, holder, s, h)
		}
		if buried := reply.Detail == NoConsumer; buried {
			if !w.gone[req.RID] {
				t.Fatalf("%s refused without a release", req.RID)
			}
			w.extend(req.RID, w.now.Add(time.Duration(req.AdmissionWindow)))
		}
		return
	}
	if w.gone[req.RID] && w.now.Before(w.dies[req.RID]) {
		t.Fatalf("%s let in %s before its tombstone ends", req.RID, w.dies[req.RID].Sub(w.now))
	}
	if req.SeqLen > 8 {
		t.Fatalf("%d tokens let into 8", req.SeqLen)
	}
	if holder != req.RID { // taken from another
		free := state == Free || state == Complete
		if stale := writers == 0 && w.now.Sub(began.Began) >= propAge; !free && !stale {
			t.Fatalf("%s took the buffer of %s in state %s with %d writers", req.RID, holder, state, writers)
		}
		if _, used := w.gens[conn.Generation]; used {
			t.Fatalf("generation %d again", conn.Generation)
		}
	}
	if rid, known := w.gens[conn.Generation]; known && rid != req.RID {
		t.Fatalf("generation %d for %s and %s", conn.Generation, rid, req.RID)
	}
	w.gens[conn.Generation] = req.RID
	w.live = append(w.live, conn)
}

func (w *world) extend(rid string, until time.Time) {
	if until.After(w.dies[rid]) {
		w.dies[rid] = until
	}
}

func (w *world) pick(t *rapid.T) int {
	if len(w.live) == 0 {
		t.Skip("no connection")
	}
	return rapid.IntRange(0, len(w.live)-1).Draw(t, "connection")
}

func (w *world) done(t *rapid.T) {
	conn := w.live[w.pick(t)]
	cur, has := w.r.Current()
	state, _ := w.r.State()
	transfer, complete := w.r.Done(conn)
	if !complete {
		return
	}
	if !has || transfer.RID != conn.RID || cur.Generation != conn.Generation || state != Transferring {
		t.Fatalf("done of %+v completed %+v in state %s", conn, cur, state)
	}
}

func (w *world) leave(t *rapid.T) {
	i := w.pick(t)
	w.r.Leave(w.live[i])
	w.live = slices.Delete(w.live, i, i+1)
}

func (w *world) release(t *rapid.T) {
	rid := rapid.SampledFrom(rids).Draw(t, "rid")
	state, holder := w.r.State()
	writers := w.r.Writers()
	w.r.Release(w.now, rid)
	w.gone[rid] = true
	w.extend(rid, w.now.Add(propAge))
	after, afterHolder := w.r.State()
	switch {
	case holder != rid:
		if after != state || afterHolder != holder {
			t.Fatalf("release of %s touched %s", rid, holder)
		}
	case writers > 0 && state != Complete:
		if after != Cancelling {
			t.Fatalf("release under %d writers gave %s", writers, after)
		}
	case after != Free:
		t.Fatalf("release without writers gave %s", after)
	}
}

func (w *world) check(t *rapid.T) {
	n := 0
	cur, has := w.r.Current()
	for _, conn := range w.live {
		if has && conn.Generation == cur.Generation {
			n++
		}
	}
	if n != w.r.Writers() {
		t.Fatalf("%d writers, %d connections", w.r.Writers(), n)
	}
	if s, _ := w.r.State(); s == Reserved || s == Cancelling && n == 0 || (s == Free) == has {
		t.Fatalf("state %s with %d writers", s, n)
	}
}

// Invariants 3, 4 and 5, for any order of events.
func TestReceiverProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{
			r:   NewReceiver(ReceiverOptions{Senders: 2, MaxSeqLen: 8, Age: propAge}),
			now: time.Unix(0, 0), gens: map[uint64]string{}, gone: map[string]bool{}, dies: map[string]time.Time{},
		}
		t.Repeat(map[string]func(*rapid.T){
			"admit": w.admit, "admit more": w.admit, "done": w.done, "leave": w.leave, "release": w.release,
			"release, then admit": func(t *rapid.T) { w.release(t); w.admit(t) },
			"expect": func(t *rapid.T) {
				rid := rapid.SampledFrom(rids).Draw(t, "rid")
				w.r.Expect(rid)
				delete(w.gone, rid)
				delete(w.dies, rid)
			},
			"wait": func(t *rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.IntRange(0, 12).Draw(t, "seconds")) * time.Second)
			},
			"": w.check,
		})
	})
}
