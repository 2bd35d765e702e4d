//go:build !race

// The race detector stops at 8,128 goroutines and allocates for itself.

package queue

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTenThousandWaitInOrder(t *testing.T) { inOrder(t, 10_000) }

func TestAcquireOfAFreeSlotAllocatesOnlyTheLease(t *testing.T) {
	q := New(Options{Observe: func(Outcome, time.Duration) {}})
	q.Add("a", 0)
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		l, _ := q.Acquire(context.Background(), Want{})
		l.Release()
	}), 1.0)
}

func TestRefusalsAllocateNothing(t *testing.T) {
	q := New(Options{MaxWaiters: 1, MaxBytes: 1})
	for name, want := range map[string]Want{"busy": {}, "full by bytes": {Bound: long, Bytes: 2}} {
		require.Zero(t, testing.AllocsPerRun(1000, func() { _, _ = q.Acquire(context.Background(), want) }), name)
	}
}

// Invariant 9: neither leaving the line nor a grant walks it. To walk 100,000 waiters takes several times what a step
// may take here, and what it does take is far below that.
func TestLongLineCostsNoMoreThanAShortOne(t *testing.T) {
	perStep := func(n int) time.Duration {
		q := New(Options{})
		line := make([]*waiter, n)
		for i := range line {
			_, line[i], _ = q.enter(Want{Bound: long, Needs: Traits(i & 1)}, time.Now())
		}
		start := time.Now()
		for i := range n / 2 {
			q.leave(line[(i*7919)%n]) // all over the line; 7919 is prime
			q.Add("", 3).Remove()     // grants one
		}
		return time.Since(start) / time.Duration(n)
	}
	perStep(1000)
	short, full := perStep(1000), perStep(100_000)
	require.Less(t, full, 20*short+20*time.Microsecond, "a step in a short line took %v", short)
}
