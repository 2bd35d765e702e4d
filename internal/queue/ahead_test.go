package queue

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// owns says whether the lease has its slot.
func owns(l *Lease) bool {
	select {
	case <-l.Owned():
		return true
	default:
		return false
	}
}

var aheadWant = Want{Bound: long, Ahead: true}

func TestThePlaceBehindALeaseGoesToTheOldestWaiter(t *testing.T) { // invariant 8
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{})
		s := q.Add("a", 0)
		first := join(q, aheadWant)
		first.wantSlot(t, s)
		require.True(t, owns(first.lease), "a free slot is owned at once")
		second, third := join(q, aheadWant), join(q, aheadWant)
		first.lease.OpenAhead()
		first.lease.OpenAhead() // again is once
		second.wantSlot(t, s)
		require.False(t, owns(second.lease))
		require.False(t, third.ended.Load(), "there is one place")
		require.Equal(t, Busy, q.Stats().Rows[0].State)
		first.lease.Release()
		require.True(t, owns(second.lease), "before any waiter")
		require.False(t, third.ended.Load())
		second.lease.OpenAhead()
		third.wantSlot(t, s)
		second.lease.Release()
		third.lease.Release()
		require.Equal(t, Free, q.Stats().Rows[0].State)
	})
}

func TestThePlaceIsNotGivenPastAnOlderWaiter(t *testing.T) { // invariant 8
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{})
		s := q.Add("a", 0)
		first := join(q, aheadWant)
		older, younger := join(q, Want{Bound: long}), join(q, aheadWant)
		first.lease.OpenAhead()
		synctest.Wait()
		require.False(t, older.ended.Load())
		require.False(t, younger.ended.Load())
		first.lease.Release()
		older.wantSlot(t, s)
		require.True(t, owns(older.lease))
		older.lease.OpenAhead()
		younger.wantSlot(t, s)
		older.lease.Release()
		younger.lease.Release()
	})
}

func TestANewcomerTakesAnOpenPlaceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{})
		s := q.Add("a", 0)
		first := join(q, aheadWant)
		first.lease.OpenAhead()
		other := begin(q, Want{Bound: 0})
		synctest.Wait()
		require.ErrorIs(t, other.err, ErrBusy, "who would not begin ahead does not get it")
		second := join(q, Want{Ahead: true})
		second.wantSlot(t, s)
		require.False(t, owns(second.lease))
		first.lease.Release()
		second.lease.Release()
	})
}

func TestAnAheadLeaseThatIsReleasedEarlyMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{})
		s := q.Add("a", 0)
		first := join(q, aheadWant)
		second, third := join(q, aheadWant), join(q, aheadWant)
		first.lease.OpenAhead()
		second.wantSlot(t, s)
		second.lease.Release()
		second.lease.Release()
		third.wantSlot(t, s)
		require.False(t, owns(third.lease))
		first.lease.Release()
		require.True(t, owns(third.lease))
		first.lease.OpenAhead() // too late
		third.lease.Release()
		require.Equal(t, 1, q.Stats().Slots[Free])
	})
}

func TestNoPlaceIsGivenWhilePausedOrDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{})
		s := q.Add("a", 0)
		first := join(q, aheadWant)
		second := join(q, aheadWant)
		q.Pause()
		s.Down()
		first.lease.OpenAhead()
		q.Resume()
		synctest.Wait()
		require.False(t, second.ended.Load())
		s.Up()
		second.wantSlot(t, s)
		first.lease.Release()
		second.lease.Release()
	})
}

func TestARetryWithItsTicketIsServedBeforeThePlaceBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{})
		s := q.Add("a", 0)
		first := join(q, aheadWant)
		second := join(q, aheadWant)
		again := join(q, Want{Bound: long, Ahead: true, Ticket: first.lease.Ticket()})
		first.lease.OpenAhead()
		again.wantSlot(t, s)
		require.False(t, second.ended.Load())
		first.lease.Release()
		again.lease.Release()
		second.wantSlot(t, s)
		second.lease.Release()
	})
}

// One owner at a time, one lease behind it, none lost: with clients that leave at any moment.
func TestAheadLeasesAreConserved(t *testing.T) {
	q := New(Options{})
	for range 3 {
		q.Add("n", 0)
	}
	var owners [3]atomic.Int32
	index := map[*Slot]int{}
	for i, s := range q.slots {
		index[s] = i
	}
	var served atomic.Int32
	var wg sync.WaitGroup
	for range 600 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(200))*time.Millisecond)
			defer cancel()
			l, err := q.Acquire(ctx, aheadWant)
			if err != nil {
				return
			}
			defer l.Release()
			select {
			case <-l.Owned():
			case <-ctx.Done():
				return
			}
			n := &owners[index[l.Slot()]]
			assert.EqualValues(t, 1, n.Add(1))
			l.OpenAhead()
			time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
			n.Add(-1)
			served.Add(1)
		})
	}
	wg.Wait()
	assert.Positive(t, served.Load())
	assert.Equal(t, 3, q.Stats().Slots[Free])
	assert.Zero(t, q.Stats().Waiting)
}
