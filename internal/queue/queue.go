package queue

import (
	"sync"
	"time"
)

// Options are fixed for the life of a Queue.
type Options struct {
	// MaxWaiters is how many may wait at once; a newcomer beyond is refused with ErrFullCount. 0: no limit.
	MaxWaiters int
	// MaxBytes bounds the sum of Want.Bytes over all waiters; a newcomer that would exceed it is refused with
	// ErrFullBytes, even when it is alone. 0: no limit.
	MaxBytes int64
	// SettleGrace is how long a Want with Bound 0 waits when a slot that it could use is settling, and so about
	// to be free. 0: it does not wait.
	SettleGrace time.Duration
	// Tickets, when set, are shared with other queues: a ticket of one is then good in all of them, and a request that goes from
	// one line to another keeps its age. Nil: tickets of its own.
	Tickets *Tickets
	// Observe, when set, is called once at the end of each Acquire that is not Quiet, with the time since its
	// call. It runs on the goroutine of Acquire without the lock, for many at once, and must not panic: the lease
	// would have no owner.
	Observe func(Outcome, time.Duration)
}

// Queue hands out slots, oldest waiter first. Its methods may be called from any goroutine.
type Queue struct {
	o Options

	mu       sync.Mutex
	line     line
	slots    []*Slot // all that were not removed, in order of Add
	free     []*Slot // those of slots that are up and unleased, longest idle first
	paused   bool
	draining bool
}

// New returns a queue without slots.
func New(o Options) *Queue {
	if o.Tickets == nil {
		o.Tickets = NewTickets()
	}
	return &Queue{o: o}
}

// Add makes a slot that can do t and offers it at once. The name is for people and need not be unique.
func (q *Queue) Add(name string, t Traits) *Slot {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := &Slot{q: q, name: name, traits: t}
	q.slots = append(q.slots, s)
	q.offerLocked(s)
	return s
}

// Pause stops all grants until Resume. Waits go on, with their bounds; leases are not touched.
func (q *Queue) Pause() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.paused = true
}

// Resume ends a Pause and hands out what became free meanwhile.
func (q *Queue) Resume() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.paused = false
	q.offerFreeLocked()
	for _, s := range q.slots {
		s.offerAheadLocked()
	}
}

// Drain ends every wait and every later Acquire with ErrDraining, for good. Leases go on.
func (q *Queue) Drain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.draining = true
	for len(q.line.lanes) > 0 {
		w := q.line.lanes[0].first()
		q.line.remove(w)
		close(w.done)
	}
}

// offerLocked hands s to the oldest waiter that it fits, or lays it with the free ones (invariants 2, 3).
// s is unleased and up.
func (q *Queue) offerLocked(s *Slot) {
	if !q.paused {
		if w := q.line.oldest(s); w != nil {
			q.line.remove(w)
			w.lease = s.leaseLocked(w.ticket)
			close(w.done)
			return
		}
	}
	q.free = append(q.free, s)
}

// offerFreeLocked offers all free slots again, after a change that may let them fit. Those still free keep their
// order.
func (q *Queue) offerFreeLocked() {
	free := q.free
	q.free = free[:0] // never longer than what the loop has read
	for _, s := range free {
		q.offerLocked(s)
	}
	clear(free[len(q.free):])
}
