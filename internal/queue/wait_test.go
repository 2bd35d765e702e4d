package queue

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Invariant 5, in fake time, so to the nanosecond.
func TestWaitEndsAtItsBound(t *testing.T) {
	for _, tc := range []struct {
		name  string
		nodes func(q *Queue)
	}{
		{"beside a busy slot", func(q *Queue) {
			q.Add("a", 0)
			_, _ = q.Acquire(context.Background(), Want{})
		}},
		{"with no slot at all", func(*Queue) {}},
		{"with every slot down", func(q *Queue) { q.Add("a", 0).Down() }},
		{"with a slot that was removed", func(q *Queue) { q.Add("a", 0).Remove() }},
		{"with no slot that fits", func(q *Queue) { q.Add("a", 1) }},
		{"while paused", func(q *Queue) { q.Pause(); q.Add("a", 2) }},
		{"with a settling slot", func(q *Queue) {
			q.Add("a", 2)
			l, _ := q.Acquire(context.Background(), Want{})
			l.Settle()
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, Options{MaxWaiters: 3, SettleGrace: time.Second}, func(t *testing.T, q *Queue) {
				tc.nodes(q)
				var calls []*call
				for _, bound := range []time.Duration{30 * time.Minute, 300 * time.Millisecond, 1} {
					calls = append(calls, begin(q, Want{Bound: bound, Needs: 2, Bytes: 5}))
				}
				time.Sleep(31 * time.Minute)
				for i, bound := range []time.Duration{30 * time.Minute, 300 * time.Millisecond, 1} {
					calls[i].wantErr(t, ErrExpired)
					require.NotErrorIs(t, calls[i].err, ErrBusy)
					require.Equal(t, bound, calls[i].took)
				}
				require.Zero(t, q.Stats().Waiting)
				require.Zero(t, q.Stats().Bytes)
			})
		})
	}
}

func TestExpiredWaiterIsNeverServed(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, q *Queue) {
		a := q.Add("a", 0)
		lease := take(t, q)
		short, patient := join(q, Want{Bound: time.Second}), join(q, Want{Bound: long})
		time.Sleep(time.Second)
		short.wantErr(t, ErrExpired)
		lease.Release()
		patient.wantSlot(t, a)
		require.Equal(t, time.Second, patient.lease.Waited())
	})
}

func TestSlotJustBeforeTheBoundIsUsed(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, q *Queue) {
		a := q.Add("a", 0)
		lease := take(t, q)
		w := join(q, Want{Bound: time.Second})
		time.Sleep(time.Second - 1)
		lease.Release()
		w.wantSlot(t, a)
		time.Sleep(long) // the bound is over and means nothing any more
		require.Equal(t, Busy, q.Stats().Rows[0].State)
	})
}

// Release and the end of the bound in the same instant: one of both wins, the slot is not lost.
func TestBoundMeetsGrant(t *testing.T) {
	granted := 0
	for range 500 {
		bubble(t, Options{}, func(t *testing.T, q *Queue) {
			a := q.Add("a", 0)
			lease := take(t, q)
			w := join(q, Want{Bound: time.Second})
			next := join(q, Want{Bound: long})
			time.Sleep(time.Second)
			lease.Release()
			synctest.Wait()
			if w.err == nil {
				granted++
				w.wantSlot(t, a)
				w.lease.Release()
			} else {
				w.wantErr(t, ErrExpired)
			}
			next.wantSlot(t, a)
		})
	}
	t.Logf("the grant came first in %d of 500", granted)
}

func TestNoBoundMakesTheClockFail(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, q *Queue) {
		for _, bound := range []time.Duration{0, -1, -long, math.MinInt64} {
			join(q, Want{Bound: bound}).wantErr(t, ErrBusy)
		}
		forever := join(q, Want{Bound: math.MaxInt64})
		time.Sleep(10_000 * long)
		wantWaiting(t, forever)
		forever.wantSlot(t, q.Add("a", 0))
		require.Equal(t, 10_000*long, forever.lease.Waited())
	})
}

// Who would not wait for a busy slot waits a moment for one that settles.
func TestBoundZero(t *testing.T) {
	const grace = time.Second
	type world struct {
		q     *Queue
		slot  *Slot
		lease *Lease
	}
	settle := func(w world) { w.lease.Settle() }
	for _, tc := range []struct {
		name  string
		setup func(world)
		after time.Duration // when the lease is released; 0: never
		took  time.Duration
		err   error
	}{
		{name: "is refused at once by a busy slot", err: ErrBusy, setup: func(world) {}},
		{name: "is refused at once by a slot that is down", err: ErrBusy, setup: func(w world) { w.lease.Release(); w.slot.Down() }},
		{name: "is refused at once while paused", err: ErrBusy, setup: func(w world) { w.lease.Release(); w.q.Pause() }},
		{name: "gets a free slot", setup: func(w world) { w.lease.Release() }},
		{name: "waits for a settling slot until it is free", setup: settle, after: grace / 4, took: grace / 4},
		{name: "waits for a settling slot no longer than the grace", setup: settle, took: grace, err: ErrBusy},
		{name: "does not wait for a slot that will stay down", err: ErrBusy, setup: func(w world) { settle(w); w.slot.Down() }},
		{name: "does not wait for a slot that will be gone", err: ErrBusy, setup: func(w world) { settle(w); w.slot.Remove() }},
		{name: "does not wait for a slot that does not fit", err: ErrBusy, setup: func(w world) { settle(w); w.slot.SetTraits(0) }},
		{name: "is refused at once when the settling slot has its next owner", err: ErrBusy, setup: func(w world) {
			settle(w)
			w.lease.Release()
			_, _ = w.q.Acquire(context.Background(), Want{})
			settle(w) // too late to mean anything
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, Options{SettleGrace: grace}, func(t *testing.T, q *Queue) {
				w := world{q: q, slot: q.Add("a", 1)}
				w.lease = take(t, q)
				tc.setup(w)
				c := begin(q, Want{Needs: 1})
				if tc.after > 0 {
					time.Sleep(tc.after)
					w.lease.Release()
				}
				time.Sleep(2 * grace)
				if tc.err != nil {
					c.wantErr(t, tc.err)
					require.ErrorIs(t, c.err, ErrExpired)
				} else {
					c.wantSlot(t, w.slot)
				}
				require.Equal(t, tc.took, c.took)
			})
		})
	}
	t.Run("does not wait without a grace", func(t *testing.T) {
		bubble(t, Options{}, func(t *testing.T, q *Queue) {
			q.Add("a", 0)
			take(t, q).Settle()
			join(q, Want{}).wantErr(t, ErrBusy)
		})
	})
	t.Run("waits its turn among those who wait", func(t *testing.T) {
		bubble(t, Options{SettleGrace: grace}, func(t *testing.T, q *Queue) {
			a := q.Add("a", 0)
			lease := take(t, q)
			before := join(q, Want{Bound: long})
			lease.Settle()
			c := join(q, Want{})
			lease.Release()
			before.wantSlot(t, a)
			wantWaiting(t, c)
			before.lease.Release()
			c.wantSlot(t, a)
		})
	})
}

// Invariant 6.
func TestLineIsBoundedExactly(t *testing.T) {
	for _, tc := range []struct {
		name  string
		o     Options
		bytes []int64 // of the newcomers, one after another
		errs  []error
	}{
		{"by count", Options{MaxWaiters: 2}, []int64{1 << 60, 1, 1}, []error{nil, nil, ErrFullCount}},
		{"by bytes, to the last one", Options{MaxBytes: 10}, []int64{4, 7, 6, 0, 1},
			[]error{nil, ErrFullBytes, nil, nil, ErrFullBytes}},
		{"by bytes, even alone", Options{MaxBytes: 10}, []int64{11, 10}, []error{ErrFullBytes, nil}},
		{"by bytes that a sum would not hold", Options{MaxBytes: math.MaxInt64}, []int64{math.MaxInt64, 1},
			[]error{nil, ErrFullBytes}},
		{"not at all by zero", Options{}, []int64{1 << 40, 1 << 40, 0}, []error{nil, nil, nil}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, tc.o, func(t *testing.T, q *Queue) {
				var line []*call
				for i, bytes := range tc.bytes {
					c := join(q, Want{Bound: long, Bytes: bytes})
					if tc.errs[i] == nil {
						wantWaiting(t, c)
						line = append(line, c)
						continue
					}
					c.wantErr(t, tc.errs[i])
					require.ErrorIs(t, c.err, ErrFull)
					require.Zero(t, c.took)
				}
				// Who leaves makes room at once.
				last := len(tc.bytes) - 1
				if tc.errs[last] != nil {
					line[0].gone()
					synctest.Wait()
					wantWaiting(t, join(q, Want{Bound: long, Bytes: tc.bytes[last]}))
				}
			})
		})
	}
	t.Run("but nobody is refused who need not wait", func(t *testing.T) {
		bubble(t, Options{MaxWaiters: 1, MaxBytes: 1}, func(t *testing.T, q *Queue) {
			wantWaiting(t, join(q, Want{Bound: long, Needs: 1, Bytes: 1}))
			a := q.Add("a", 0)
			join(q, Want{Bytes: 5}).wantSlot(t, a)
			join(q, Want{Bytes: 5}).wantErr(t, ErrBusy) // not Full: it would not have waited
		})
	})
}

func TestClientThatLeavesIsOutAtOnce(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, q *Queue) {
		a := q.Add("a", 0)
		lease := take(t, q)
		front, middle, back := join(q, Want{Bound: long}), join(q, Want{Bound: long}), join(q, Want{Bound: long})
		time.Sleep(time.Minute)
		middle.gone()
		middle.wantErr(t, errGone)
		require.Equal(t, time.Minute, middle.took)
		front.gone()
		front.wantErr(t, errGone)
		require.Equal(t, 1, q.Stats().Waiting)
		lease.Release()
		back.wantSlot(t, a)
	})
}

func TestEndedContextGetsNothing(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, q *Queue) {
		q.Add("a", 0)
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(errGone)
		l, err := q.Acquire(ctx, Want{Bound: long})
		require.Nil(t, l)
		require.ErrorIs(t, err, errGone)
		require.Equal(t, Free, q.Stats().Rows[0].State)
	})
}

// Invariant 1. The client leaves and the slot comes free before the waiter's goroutine has seen either.
func TestGrantThatMeetsCancellationGoesOn(t *testing.T) {
	for range 500 {
		bubble(t, Options{}, func(t *testing.T, q *Queue) {
			a := q.Add("a", 0)
			lease := take(t, q)
			leaver, next := join(q, Want{Bound: long}), join(q, Want{Bound: long})
			leaver.gone()
			lease.Release()
			leaver.wantErr(t, errGone)
			next.wantSlot(t, a)
			next.gone() // too late: it has its lease, and only Release gives that back
			synctest.Wait()
			require.Equal(t, Busy, q.Stats().Rows[0].State)
			next.lease.Release()
			require.Equal(t, Free, q.Stats().Rows[0].State)
		})
	}
}

// A thousand leave at once while slots come free: those who stay are served in order.
func TestCancelStorm(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, q *Queue) {
		const n = 1000
		q.Add("a", 0)
		q.Add("b", 0)
		la, lb := take(t, q), take(t, q)
		var stay []*call
		var leave []*call
		for i := range n {
			c := join(q, Want{Bound: long, Bytes: 1})
			if i%10 == 7 {
				stay = append(stay, c)
			} else {
				leave = append(leave, c)
			}
		}
		for i, c := range leave {
			c.gone()
			switch i {
			case len(leave) / 3:
				la.Release()
			case len(leave) / 2:
				lb.Release()
			}
		}
		synctest.Wait()
		sound(t, q)
		for _, c := range leave {
			c.wantErr(t, errGone)
		}
		require.Equal(t, len(stay)-2, q.Stats().Waiting)
		require.EqualValues(t, len(stay)-2, q.Stats().Bytes)
		for i, c := range stay {
			synctest.Wait()
			require.True(t, c.ended.Load(), "call %d of those who stay", i)
			require.NoError(t, c.err)
			c.lease.Release()
		}
		require.Equal(t, [NumStates]int{Free: 2}, q.Stats().Slots)
	})
}
