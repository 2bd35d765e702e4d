package queue

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const long = time.Hour

// errGone is why the clients of these tests leave.
var errGone = errors.New("the client has gone")

// call is one Acquire on a goroutine of its own. Its results may be read when it has ended.
type call struct {
	cancel context.CancelCauseFunc
	ended  atomic.Bool
	lease  *Lease
	err    error
	took   time.Duration
}

// begin starts an Acquire and does not wait for anything.
func begin(q *Queue, want Want) *call {
	ctx, cancel := context.WithCancelCause(context.Background())
	c := &call{cancel: cancel}
	start := time.Now()
	go func() {
		c.lease, c.err = q.Acquire(ctx, want)
		c.took = time.Since(start)
		c.ended.Store(true)
	}()
	return c
}

// join is begin, and returns when the Acquire has ended or stands in the line.
func join(q *Queue, want Want) *call {
	c := begin(q, want)
	synctest.Wait()
	return c
}

func (c *call) gone() { c.cancel(errGone) }

// wantSlot settles the bubble and asserts that the call was given s.
func (c *call) wantSlot(t *testing.T, s *Slot) {
	t.Helper()
	synctest.Wait()
	require.True(t, c.ended.Load(), "still waiting")
	require.NoError(t, c.err)
	require.Equal(t, s.Name(), c.lease.Slot().Name())
}

// wantErr settles the bubble and asserts that the call failed with err.
func (c *call) wantErr(t *testing.T, err error) {
	t.Helper()
	synctest.Wait()
	require.True(t, c.ended.Load(), "still waiting")
	require.ErrorIs(t, c.err, err)
	require.Nil(t, c.lease, "an error and a lease")
}

// wantWaiting settles the bubble and asserts that the calls still wait.
func wantWaiting(t *testing.T, calls ...*call) {
	t.Helper()
	synctest.Wait()
	for i, c := range calls {
		require.False(t, c.ended.Load(), "call %d ended", i)
	}
}

// take gets a slot that is free.
func take(t *testing.T, q *Queue) *Lease {
	t.Helper()
	l, err := q.Acquire(context.Background(), Want{})
	require.NoError(t, err)
	return l
}

// bubble runs a test in fake time. When it ends, the queue must be sound.
func bubble(t *testing.T, o Options, test func(t *testing.T, q *Queue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := New(o)
		defer synctest.Wait()
		defer q.Drain() // ends what the test left waiting, also when it fails
		test(t, q)
		sound(t, q)
	})
}

// sound asserts what holds whenever the mutex is free.
func sound(t assert.TestingT, q *Queue) {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting, bytes := 0, int64(0)
	for i, ln := range q.line.lanes {
		assert.Equal(t, i, ln.at, "index of a lane")
		assert.NotNil(t, ln.first(), "an empty lane")
		last := Ticket{}
		for w := ln.first(); w != nil; w = ln.after(w) {
			assert.False(t, w.ticket.before(last), "order in a lane")
			assert.Same(t, ln, w.lane)
			assert.Same(t, w, w.next.prev)
			last = w.ticket
			waiting++
			bytes += w.bytes
			for _, s := range q.free {
				beside := !q.paused && ln.fits(s) // invariant 2
				assert.False(t, beside, "waiter %v waits beside the free slot %s", w.ticket, s.name)
			}
		}
	}
	assert.Equal(t, waiting, q.line.waiting)
	assert.Equal(t, bytes, q.line.bytes)
	free := 0
	for _, s := range q.slots {
		assert.False(t, s.removed)
		if s.stateLocked() == Free {
			free++
			assert.Contains(t, q.free, s, "a free slot is lost") // invariant 1
		}
	}
	assert.Len(t, q.free, free)
	assert.False(t, q.draining && waiting > 0, "a waiter after Drain")
}
