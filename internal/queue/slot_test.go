package queue

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNewSlotGoesToOldestWaiter(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, q *Queue) {
		first, second := join(q, Want{Bound: long}), join(q, Want{Bound: long})
		a := q.Add("a", 0)
		first.wantSlot(t, a)
		wantWaiting(t, second)
	})
}

func TestSlotThatIsDownIsNotGivenOut(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, q *Queue) {
		a := q.Add("a", 0)
		lease := take(t, q)
		w := join(q, Want{Bound: long})
		a.Down()
		require.Equal(t, SlotRow{Name: "a", State: Busy, Down: true}, q.Stats().Rows[0], "a running lease goes on")
		lease.Release()
		wantWaiting(t, w)
		require.Equal(t, SlotRow{Name: "a", State: Down, Down: true}, q.Stats().Rows[0])
		a.Up()
		w.wantSlot(t, a)

		a.Up() // it was up, and is leased: nothing to offer
		require.Equal(t, Busy, q.Stats().Rows[0].State)
		w.lease.Release()
		a.Up() // it was up and is free already
		require.Equal(t, [NumStates]int{Free: 1}, q.Stats().Slots)
		sound(t, q)
		a.Down()
		a.Down()
		join(q, Want{}).wantErr(t, ErrBusy)
		a.Up()
		join(q, Want{}).wantSlot(t, a)
	})
}

func TestSlotThatGoesDownAndUpUnderALeaseHasOneOwner(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, q *Queue) {
		a := q.Add("a", 0)
		lease := take(t, q)
		w := join(q, Want{Bound: long})
		a.Down()
		a.Up()
		wantWaiting(t, w)
		lease.Release()
		w.wantSlot(t, a)
	})
}

func TestRemovedSlotNeverComesBack(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, q *Queue) {
		a, b := q.Add("a", 0), q.Add("b", 0)
		lease := take(t, q)
		b.Remove() // free
		a.Remove() // leased
		a.Remove()
		require.Empty(t, q.Stats().Rows)
		w := join(q, Want{Bound: long})
		lease.Release()
		a.Down()
		a.Up()
		b.Down()
		b.Up()
		wantWaiting(t, w)
		c := q.Add("c", 0)
		w.wantSlot(t, c)
	})
}

func TestPauseHoldsEverySlotBack(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, q *Queue) {
		a, b := q.Add("a", 0), q.Add("b", 0)
		la := take(t, q)
		q.Pause()
		w1, w2, w3 := join(q, Want{Bound: long}), join(q, Want{Bound: long}), join(q, Want{Bound: long})
		la.Release()
		a.Down()
		a.Up()
		b.SetTraits(1)
		wantWaiting(t, w1, w2, w3)
		w2.gone()
		w2.wantErr(t, errGone)
		require.True(t, q.Stats().Paused)
		q.Resume()
		w1.wantSlot(t, b) // idle longer
		w3.wantSlot(t, a)
	})
}

func TestDrainEndsAllWaits(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, q *Queue) {
		q.Add("a", 0)
		lease := take(t, q)
		calls := []*call{
			join(q, Want{Bound: long, Bytes: 3}), join(q, Want{Bound: long, Needs: 1}),
			join(q, Want{Bound: long, Ticket: lease.Ticket()}), join(q, Want{Bound: long}),
		}
		q.Drain()
		for _, c := range calls {
			c.wantErr(t, ErrDraining)
		}
		require.Equal(t, Busy, q.Stats().Rows[0].State, "leases go on")
		lease.Release()
		require.Equal(t, Free, q.Stats().Rows[0].State)
		join(q, Want{}).wantErr(t, ErrDraining)
		join(q, Want{Bound: long, Ticket: lease.Ticket()}).wantErr(t, ErrDraining)
		q.Add("b", 0)
		join(q, Want{Bound: long}).wantErr(t, ErrDraining)
		q.Drain()
		require.True(t, q.Stats().Draining)
	})
}

// Invariant 1: what was granted before Drain stays granted, though its goroutine has not run yet.
func TestGrantBeforeDrainStands(t *testing.T) {
	for range 100 {
		bubble(t, Options{}, func(t *testing.T, q *Queue) {
			a := q.Add("a", 0)
			lease := take(t, q)
			w := join(q, Want{Bound: long})
			lease.Release()
			q.Drain()
			w.wantSlot(t, a)
		})
	}
}

func TestReleaseCountsOnce(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, q *Queue) {
		a := q.Add("a", 0)
		old := take(t, q)
		w, next := join(q, Want{Bound: long}), join(q, Want{Bound: long})
		old.Release()
		w.wantSlot(t, a)
		old.Release() // its slot has another owner now
		old.Settle()
		wantWaiting(t, next)
		require.Equal(t, Busy, q.Stats().Rows[0].State)
		w.lease.Settle()
		w.lease.Settle()
		require.Equal(t, Settling, q.Stats().Rows[0].State)
		wantWaiting(t, next)
		w.lease.Release()
		next.wantSlot(t, a)
		require.Equal(t, Busy, q.Stats().Rows[0].State, "a new lease does not settle")
		next.lease.Release()
		next.lease.Release()
		require.Equal(t, [NumStates]int{Free: 1}, q.Stats().Slots)
	})
}

func TestOldLeaseOfTheSameTicketDoesNotReleaseTheNew(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, q *Queue) {
		q.Add("a", 0)
		old := take(t, q)
		old.Release()
		again, err := q.Acquire(context.Background(), Want{Ticket: old.Ticket()})
		require.NoError(t, err)
		old.Release()
		require.Equal(t, Busy, q.Stats().Rows[0].State)
		again.Release()
	})
}

func TestMistakesOfTheCallerPanicAndLeaveTheQueueUsable(t *testing.T) {
	q := New(Options{})
	a := q.Add("a", 0)
	require.Panics(t, func() { _, _ = q.Acquire(context.Background(), Want{Ticket: Ticket{turn: 1}}) })
	require.Panics(t, func() { _, _ = q.Acquire(context.Background(), Want{Bytes: -1}) })
	require.Equal(t, a, take(t, q).Slot())
}
