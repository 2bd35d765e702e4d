package queue

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOutcomeOfError(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		want Outcome
	}{
		{"no error is a grant", nil, Granted},
		{"full by count", ErrFullCount, Full},
		{"full by bytes", ErrFullBytes, Full},
		{"wrapped", fmt.Errorf("attempt 2: %w", ErrFullBytes), Full},
		{"waited in vain", ErrExpired, Expired},
		{"would not wait", ErrBusy, Expired},
		{"draining", ErrDraining, Draining},
		{"a client that left", context.Canceled, ClientGone},
		{"a cause of the caller's own", errors.New("reset by peer"), ClientGone},
	} {
		t.Run(tc.name, func(t *testing.T) { require.Equal(t, tc.want, OutcomeOf(tc.err)) })
	}
}

func TestEachValueHasItsOwnName(t *testing.T) {
	seen := map[string]bool{}
	for o := range NumOutcomes {
		seen[o.String()] = true
	}
	for s := range NumStates {
		seen[s.String()] = true
	}
	require.Len(t, seen, int(NumOutcomes)+int(NumStates))
	require.NotContains(t, seen, "")
	require.Equal(t, "outcome(6)", NumOutcomes.String())
	require.Equal(t, "state(4)", NumStates.String())
}

// Invariant 7.
func TestEachAcquireIsObservedOnce(t *testing.T) {
	var q *Queue
	var count [NumOutcomes]atomic.Int64
	var total atomic.Int64 // of the waits
	o := Options{MaxWaiters: 2, Observe: func(o Outcome, d time.Duration) {
		q.Stats() // the lock is not held
		count[o].Add(1)
		total.Add(int64(d))
	}}
	bubble(t, o, func(t *testing.T, queue *Queue) {
		q = queue
		want := func(w [NumOutcomes]int64) {
			t.Helper()
			var got [NumOutcomes]int64
			for i := range count {
				got[i] = count[i].Load()
			}
			require.Equal(t, w, got)
		}
		a := q.Add("a", 0)
		lease := take(t, q)
		want([NumOutcomes]int64{Granted: 1})
		join(q, Want{}).wantErr(t, ErrBusy)
		w, leaver := join(q, Want{Bound: long}), join(q, Want{Bound: long})
		join(q, Want{Bound: long}).wantErr(t, ErrFullCount)
		want([NumOutcomes]int64{Granted: 1, Expired: 1, Full: 1})
		require.Zero(t, total.Load())
		time.Sleep(time.Second)
		leaver.gone()
		leaver.wantErr(t, errGone)
		want([NumOutcomes]int64{Granted: 1, Expired: 1, Full: 1, ClientGone: 1})
		lease.Release()
		w.wantSlot(t, a)
		require.EqualValues(t, 2*time.Second, total.Load())
		require.Equal(t, time.Second, w.lease.Waited())
		late := join(q, Want{Bound: long})
		quiet := join(q, Want{Bound: long, Quiet: true})
		q.Drain()
		late.wantErr(t, ErrDraining)
		quiet.wantErr(t, ErrDraining)
		want([NumOutcomes]int64{Granted: 2, Expired: 1, Full: 1, ClientGone: 1, Draining: 1})
	})
}

// A shutdown that reaches the request by its context is counted as the shutdown that it is.
func TestCauseOfTheContextDecidesTheOutcome(t *testing.T) {
	var got []Outcome
	bubble(t, Options{Observe: func(o Outcome, _ time.Duration) { got = append(got, o) }}, func(t *testing.T, q *Queue) {
		c := join(q, Want{Bound: long})
		c.cancel(fmt.Errorf("stopping: %w", ErrDraining))
		c.wantErr(t, ErrDraining)
		require.Equal(t, []Outcome{Draining}, got)
	})
}
