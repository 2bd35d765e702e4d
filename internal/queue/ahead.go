package queue

import "time"

// OpenAhead says that the holder has come so far that the next request may begin its work on the slot, though the slot
// itself is not free: the oldest waiter that fits and has Want.Ahead gets a lease at once, which owns the slot when this
// lease is released. There is one such place behind a lease.
func (l *Lease) OpenAhead() {
	q := l.slot.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.slot.lease == l && !l.ahead {
		l.ahead = true
		l.slot.offerAheadLocked()
	}
}

// Owned is closed when the lease owns its slot: at once for most, and for a lease that was given ahead when the one
// before it has ended. An ahead lease may be released before that.
func (l *Lease) Owned() <-chan struct{} { return l.owned }

// closed is the Owned of a lease that had its slot from the start.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// aheadLocked tells whether the place behind the present lease is to be had.
func (s *Slot) aheadLocked() bool {
	return s.lease != nil && s.lease.ahead && s.next == nil && !s.down && !s.removed
}

// offerAheadLocked gives the place behind the lease to the oldest waiter that fits, if that one would have it. It is
// not given past an older waiter that would not: the slot itself would then go to the younger.
func (s *Slot) offerAheadLocked() {
	if s.q.paused || !s.aheadLocked() {
		return
	}
	if w := s.q.line.oldest(s); w != nil && w.lane.ahead {
		s.q.line.remove(w)
		w.lease = s.leaseAheadLocked(w.ticket)
		close(w.done)
	}
}

func (s *Slot) leaseAheadLocked(ticket Ticket) *Lease {
	s.next = &Lease{slot: s, ticket: ticket, owned: make(chan struct{})}
	return s.next
}

// takeAheadLocked gives the place behind a running lease to a newcomer, or nil. No waiter can have an older claim
// to it (invariant 2).
func (q *Queue) takeAheadLocked(want Want, start time.Time) *Lease {
	if q.paused || !want.Ahead {
		return nil
	}
	can := want.class()
	for _, s := range q.slots {
		if s.aheadLocked() && can.fits(s) {
			return s.leaseAheadLocked(q.ticketLocked(want, start))
		}
	}
	return nil
}

// promoteLocked makes the lease that waited behind the released one the owner, also of a slot that has gone down: its
// request has work on that node and must find out what became of it.
func (s *Slot) promoteLocked() {
	s.lease, s.next = s.next, nil
	close(s.lease.owned)
}
