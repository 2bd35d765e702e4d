package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The tests of this file run on real threads in real time, and assert only what holds for any schedule.

// Everything at once: clients that come, wait, leave, settle and try again, while slots come and go.
func TestSlotsAreConservedUnderLoad(t *testing.T) {
	const clients, rounds = 2000, 20
	var observed [NumOutcomes]atomic.Int64
	q := New(Options{
		MaxWaiters: clients / 2, MaxBytes: clients, SettleGrace: time.Millisecond,
		Observe: func(o Outcome, _ time.Duration) { observed[o].Add(1) },
	})
	var owners sync.Map // *Slot -> *atomic.Int32
	own := func(s *Slot) *atomic.Int32 {
		n, _ := owners.LoadOrStore(s, new(atomic.Int32))
		return n.(*atomic.Int32)
	}
	var slots []*Slot
	for i := range 4 {
		slots = append(slots, q.Add(fmt.Sprint(i), Traits(i)))
	}

	var ended [NumOutcomes]atomic.Int64
	client := func() {
		var again Want
		for range rounds {
			want := again
			want.Bound, want.Bytes, want.Needs = rand.N(40*time.Millisecond), rand.Int64N(3), Traits(rand.IntN(4))
			if rand.IntN(4) == 0 {
				want.Bound = 0
			}
			ctx, cancel := context.WithTimeout(context.Background(), rand.N(80*time.Millisecond))
			l, err := q.Acquire(ctx, want)
			ended[OutcomeOf(err)].Add(1)
			again = Want{}
			if err == nil {
				if own(l.Slot()).Add(1) != 1 || l.Slot() == want.Avoid {
					t.Error("a slot was given twice, or to one who avoids it") // invariant 1
				}
				runtime.Gosched()
				if rand.IntN(4) == 0 {
					l.Settle()
				}
				own(l.Slot()).Add(-1)
				l.Release()
				if rand.IntN(4) == 0 {
					again = Want{Ticket: l.Ticket(), Avoid: l.Slot()}
				}
				l.Release()
			}
			cancel()
		}
	}
	var wg sync.WaitGroup
	for range clients {
		wg.Go(client)
	}
	stop := make(chan struct{}) // closed below, when the clients are done
	var nodes sync.WaitGroup
	nodes.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			s := slots[rand.IntN(len(slots))]
			s.Down()
			extra := q.Add("extra", 3)
			q.Pause()
			s.SetTraits(Traits(rand.IntN(4)))
			s.Up()
			q.Resume()
			extra.Remove()
			q.Stats()
			q.Waiters(10)
			runtime.Gosched()
		}
	})
	wg.Wait()
	close(stop)
	nodes.Wait()

	sound(t, q)
	st := q.Stats()
	require.Zero(t, st.Waiting)
	require.Equal(t, [NumStates]int{Free: len(slots)}, st.Slots, "slots are lost")
	sum := int64(0)
	for o := range NumOutcomes {
		require.Equal(t, ended[o].Load(), observed[o].Load(), o.String()) // invariant 7
		sum += ended[o].Load()
		t.Logf("%s: %d", o, ended[o].Load())
	}
	require.EqualValues(t, clients*rounds, sum)
}

// inOrder lets n requests wait for one slot, every tenth of which leaves early, and asserts that the others are
// all served, one at a time, in the order of their tickets.
func inOrder(t *testing.T, n int) {
	q := New(Options{MaxWaiters: n})
	q.Add("a", 0)
	first, err := q.Acquire(context.Background(), Want{})
	require.NoError(t, err)
	gone, leave := context.WithCancel(context.Background())
	var owners atomic.Int32
	var wg sync.WaitGroup
	served, last := 0, first.Ticket() // the slot is the guard
	for i := range n {
		wg.Go(func() {
			ctx := context.Background()
			if i%10 == 0 {
				ctx = gone
			}
			l, err := q.Acquire(ctx, Want{Bound: time.Minute}) // far beyond what this takes
			if err != nil {
				if i%10 != 0 {
					t.Errorf("request %d: %v", i, err)
				}
				return
			}
			if owners.Add(1) != 1 {
				t.Error("two have the slot")
			}
			if !last.before(l.Ticket()) {
				t.Errorf("ticket %v came after %v", l.Ticket(), last)
			}
			served, last = served+1, l.Ticket()
			owners.Add(-1)
			l.Release()
		})
	}
	for q.Stats().Waiting < n {
		runtime.Gosched()
	}
	first.Release()
	leave() // while the line moves
	wg.Wait()
	require.GreaterOrEqual(t, served, n-n/10)
	require.Equal(t, [NumStates]int{Free: 1}, q.Stats().Slots)
	sound(t, q)
}

func TestFourThousandWaitInOrder(t *testing.T) { inOrder(t, 4000) }
