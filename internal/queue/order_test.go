package queue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Invariant 3.
func TestFreedSlotGoesToOldestWaiter(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, q *Queue) {
		a := q.Add("a", 0)
		lease := take(t, q)
		var line []*call
		for range 5 {
			line = append(line, join(q, Want{Bound: long}))
		}
		for i, c := range line {
			lease.Release()
			c.wantSlot(t, a)
			wantWaiting(t, line[i+1:]...)
			lease = c.lease
		}
		lease.Release()
	})
}

// Invariant 2: the slot has its new owner before Release returns.
func TestNewcomerCannotTakeAFreedSlot(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, q *Queue) {
		a := q.Add("a", 0)
		lease := take(t, q)
		waiter := join(q, Want{Bound: long})
		lease.Release()
		_, err := q.Acquire(context.Background(), Want{}) // the waiter's goroutine may not have run yet
		require.ErrorIs(t, err, ErrBusy)
		waiter.wantSlot(t, a)
	})
}

// Invariant 4.
func TestFreeSlotsAreTakenLongestIdleFirst(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, q *Queue) {
		for _, name := range []string{"a", "b", "c"} {
			q.Add(name, 0)
		}
		names := func(n int) (got string, leases []*Lease) {
			for range n {
				l := take(t, q)
				got += l.Slot().Name()
				leases = append(leases, l)
			}
			return got, leases
		}
		got, l := names(3)
		require.Equal(t, "abc", got)
		l[1].Release()
		l[2].Release()
		l[0].Release()
		got, l = names(3)
		require.Equal(t, "bca", got)
		for _, lease := range l {
			lease.Release()
		}
		q.Pause()
		q.Resume() // offers all, takes none
		l[0].Slot().SetTraits(7)
		got, l = names(2)
		require.Equal(t, "bc", got, "order after an offer that nobody took")
		l[0].Slot().Down()
		l[0].Slot().Up() // leased: not free by that
		got, _ = names(1)
		require.Equal(t, "a", got)
		_, err := q.Acquire(context.Background(), Want{})
		require.ErrorIs(t, err, ErrBusy)
	})
}

func TestWaiterGetsOnlyWhatItNeeds(t *testing.T) {
	const fast, large = Traits(1), Traits(2)
	bubble(t, Options{}, func(t *testing.T, q *Queue) {
		plain, both := q.Add("plain", 0), q.Add("both", fast|large)
		lp, lb := take(t, q), take(t, q)
		needsBoth := join(q, Want{Bound: long, Needs: fast | large})
		needsFast := join(q, Want{Bound: long, Needs: fast})
		any1 := join(q, Want{Bound: long})
		any2 := join(q, Want{Bound: long})

		lp.Release()
		any1.wantSlot(t, plain) // the oldest that fits, past two that do not
		wantWaiting(t, needsBoth, needsFast, any2)
		lb.Release()
		needsBoth.wantSlot(t, both)
		needsBoth.lease.Release()
		needsFast.wantSlot(t, both) // older than any2, in another lane
		needsFast.lease.Release()
		any2.wantSlot(t, both)

		any1.lease.Release()
		fits := join(q, Want{Bound: long, Needs: fast}) // plain is free and does not fit
		wantWaiting(t, fits)
		plain.SetTraits(fast)
		fits.wantSlot(t, plain)
		fits.lease.Release()
		taken := join(q, Want{Needs: fast})
		taken.wantSlot(t, plain)
		next := join(q, Want{Bound: long, Needs: fast})
		plain.SetTraits(0) // under a lease: holds from the next grant on
		taken.lease.Release()
		wantWaiting(t, next)
	})
}

func TestTicketKeepsThePlace(t *testing.T) {
	bubble(t, Options{MaxWaiters: 2, MaxBytes: 10}, func(t *testing.T, q *Queue) {
		a := q.Add("a", 0)
		first := take(t, q)
		second := join(q, Want{Bound: long})
		first.Release()
		second.wantSlot(t, a)
		third := join(q, Want{Bound: long, Bytes: 5})
		fourth := join(q, Want{Bound: long, Bytes: 5})
		require.Less(t, first.Ticket(), second.lease.Ticket())

		// Both come again while the line is full by count and by bytes, the younger one first.
		secondAgain := join(q, Want{Bound: long, Ticket: second.lease.Ticket(), Bytes: 7})
		firstAgain := join(q, Want{Bound: long, Ticket: first.Ticket(), Bytes: 7})
		require.EqualValues(t, 24, q.Stats().Bytes)
		join(q, Want{Bound: long}).wantErr(t, ErrFullCount)

		lease := second.lease
		for i, c := range []*call{firstAgain, secondAgain, third, fourth} {
			lease.Release()
			c.wantSlot(t, a)
			lease = c.lease
			require.Equal(t, 3-i, q.Stats().Waiting)
		}
		require.Equal(t, first.Ticket(), firstAgain.lease.Ticket())
		require.Equal(t, second.lease.Ticket(), secondAgain.lease.Ticket())
		join(q, Want{Ticket: first.Ticket()}).wantErr(t, ErrBusy) // a ticket does not wait where the bound says no
	})
}

func TestAvoidedSlotIsNeverGiven(t *testing.T) {
	bubble(t, Options{SettleGrace: time.Second}, func(t *testing.T, q *Queue) {
		a, b := q.Add("a", 0), q.Add("b", 0)
		la, lb := take(t, q), take(t, q)
		elsewhere := join(q, Want{Bound: long, Ticket: la.Ticket(), Avoid: a})
		later := join(q, Want{Bound: long})
		la.Release()
		later.wantSlot(t, a) // the older one is passed over
		wantWaiting(t, elsewhere)
		later.lease.Release() // free, and still not for it
		wantWaiting(t, elsewhere)
		join(q, Want{Avoid: a}).wantErr(t, ErrBusy)
		lb.Release()
		elsewhere.wantSlot(t, b)
	})
}

// With many lanes that open and close in between, the order is still that of the tickets.
func TestOrderHoldsAcrossLanes(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, q *Queue) {
		all := q.Add("all", 7)
		lease := take(t, q)
		var line []*call
		for i := range 40 {
			line = append(line, join(q, Want{Bound: long, Needs: Traits(i*5%8) & 7}))
		}
		for i := 3; i < 40; i += 4 {
			line[i].gone()
		}
		synctest.Wait()
		sound(t, q)
		for i, c := range line {
			if i%4 == 3 {
				c.wantErr(t, errGone)
				continue
			}
			lease.Release()
			c.wantSlot(t, all)
			lease = c.lease
		}
	})
}
