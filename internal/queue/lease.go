package queue

import "time"

// Lease is the right to use a slot, from Acquire to Release. It must not be copied.
type Lease struct {
	_ noCopy

	slot     *Slot
	ticket   Ticket
	waited   time.Duration
	owned    chan struct{} // closed when the slot is this lease's
	settling bool          // guarded by slot.q.mu, as is ahead
	ahead    bool          // the place behind it is open
}

// Slot is the slot that the lease is for.
func (l *Lease) Slot() *Slot { return l.slot }

// Ticket is the place in the line that the request had. With it as Want.Ticket the same request comes again ahead of
// all that arrived later.
func (l *Lease) Ticket() Ticket { return l.ticket }

// Waited is how long Acquire took.
func (l *Lease) Waited() time.Duration { return l.waited }

// Settle says that the request is done with the slot while the node still works on it. The slot is not free yet,
// but those who would not wait for a busy one now wait up to SettleGrace. Release must follow when the node is
// idle. After Release it does nothing.
func (l *Lease) Settle() {
	q := l.slot.q
	q.mu.Lock()
	defer q.mu.Unlock()
	l.settling = true
}

// Release hands the slot to the oldest waiter under one lock: no newcomer slips in. A second call does nothing, so
// an early release before the last chunk and a deferred one live together.
func (l *Lease) Release() {
	q := l.slot.q
	q.mu.Lock()
	defer q.mu.Unlock()
	s := l.slot
	switch {
	case s.lease == l && s.next != nil:
		s.promoteLocked()
	case s.lease == l:
		s.lease = nil
		s.returnLocked()
	case s.next == l:
		s.next = nil
		s.offerAheadLocked()
	} // else the slot has its next owner by now
}

// leaseLocked makes the caller the owner of s, which nobody has.
func (s *Slot) leaseLocked(ticket Ticket) *Lease {
	s.lease = &Lease{slot: s, ticket: ticket, owned: closed}
	return s.lease
}

// noCopy lets go vet refuse copies: only the original is the owner that Release knows.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}
