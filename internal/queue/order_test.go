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
		q.Resume() // offers all again, and nobody takes them
		got, l = names(3)
		require.Equal(t, "bca", got)
		for _, lease := range l {
			lease.Release()
		}
		l[0].Slot().SetTraits(7) // so does this
		got, l = names(2)
		require.Equal(t, "bc", got)
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
		var tickets [3]Ticket
		for i := range tickets {
			l := take(t, q)
			tickets[i] = l.Ticket()
			l.Release()
		}
		lease := take(t, q)
		line := []*call{join(q, Want{Bound: long, Bytes: 5}), join(q, Want{Bound: long, Bytes: 5})}

		// The line is full by count and by bytes. The three come again all the same, in another order than at first.
		var again [3]*call
		for _, i := range []int{1, 0, 2} {
			again[i] = join(q, Want{Bound: long, Ticket: tickets[i], Bytes: 7})
		}
		require.EqualValues(t, 31, q.Stats().Bytes)
		join(q, Want{Bound: long}).wantErr(t, ErrFullCount) // they count for the others

		for i, c := range append(again[:], line...) {
			lease.Release()
			c.wantSlot(t, a)
			lease = c.lease
			require.Equal(t, 4-i, q.Stats().Waiting)
			if i < len(tickets) {
				require.Equal(t, tickets[i], lease.Ticket())
			}
		}
		join(q, Want{Ticket: tickets[0]}).wantErr(t, ErrBusy) // a place in the line is no reason to wait
	})
}

// Invariant 3: the moment of arrival decides, in one lane and across lanes, and the order of the calls where it is the same.
func TestPlaceIsThatOfTheArrival(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, q *Queue) {
		a := q.Add("a", 1)
		lease := take(t, q)
		time.Sleep(time.Hour)
		ago := func(d time.Duration, needs Traits) *call {
			return join(q, Want{Bound: long, Needs: needs, Arrived: time.Now().Add(-d)})
		}
		now := join(q, Want{Bound: long})
		future := ago(-time.Minute, 0)
		tied := []*call{ago(300*time.Millisecond, 0), ago(300*time.Millisecond, 0)}
		between := ago(200*time.Millisecond, 1)
		first := ago(500*time.Millisecond, 1)
		again := join(q, Want{Bound: long, Ticket: lease.Ticket()}) // of an hour ago
		require.Equal(t, 6, q.Place(Ticket{time.Hour, 3}, 10))
		for i, c := range []*call{again, first, tied[0], tied[1], between, now, future} {
			lease.Release()
			synctest.Wait()
			require.True(t, c.ended.Load(), "number %d still waits", i)
			c.wantSlot(t, a)
			lease = c.lease
		}
	})
}

// Whatever the clocks say, nobody gets before those who came more than reach ago.
func TestArrivalReachesBackNoFurtherThanItMay(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, q *Queue) {
		a := q.Add("a", 0)
		lease := take(t, q)
		early := join(q, Want{Bound: long, Arrived: time.Now().Add(-time.Second)}) // before there was a queue
		time.Sleep(time.Minute)
		old := join(q, Want{Bound: long})
		time.Sleep(reach + time.Millisecond)
		young := join(q, Want{Bound: long})
		jumper := join(q, Want{Bound: long, Arrived: time.Now().Add(-2 * time.Hour)})
		for _, c := range []*call{early, old, jumper, young} {
			lease.Release()
			c.wantSlot(t, a)
			lease = c.lease
		}
	})
}

func TestEarlyArrivalIsNoWayPastTheLimits(t *testing.T) {
	bubble(t, Options{MaxWaiters: 2, MaxBytes: 10}, func(t *testing.T, q *Queue) {
		q.Add("a", 0)
		take(t, q)
		time.Sleep(time.Hour)
		early := Want{Bound: long, Bytes: 6, Arrived: time.Now().Add(-time.Second)}
		join(q, Want{Bound: long, Bytes: 6})
		join(q, early).wantErr(t, ErrFullBytes)
		join(q, Want{Bound: long})
		join(q, early).wantErr(t, ErrFullCount)
	})
}

func TestOneTicketTwiceInTheLineIsServedAsItCame(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, q *Queue) {
		a := q.Add("a", 0)
		lease := take(t, q)
		later := join(q, Want{Bound: long})
		first := join(q, Want{Bound: long, Ticket: lease.Ticket()})
		second := join(q, Want{Bound: long, Ticket: lease.Ticket()})
		for _, c := range []*call{first, second, later} {
			lease.Release()
			c.wantSlot(t, a)
			lease = c.lease
		}
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
