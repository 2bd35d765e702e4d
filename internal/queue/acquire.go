package queue

import (
	"context"
	"slices"
	"time"
)

// Want is what a request asks of Acquire.
type Want struct {
	// Bound is the longest wait, counted from the call of Acquire. 0 or less: refuse with ErrBusy when no slot can
	// be had at once (but see Options.SettleGrace).
	Bound time.Duration
	// Waited is how long the request has waited before, which counts for its age in Stats, and not against Bound.
	Waited time.Duration
	// Bytes is the memory that the request holds while it waits, counted against Options.MaxBytes.
	Bytes int64
	// Needs is what the slot must be able to do. Whether any slot ever can is not asked: it may come.
	Needs Traits
	// Arrived is when the request had come in full, which may be a while before its goroutine calls: its place is behind
	// those that arrived before. What lies too far back or in the future is moved (see reach); zero: at the call.
	Arrived time.Time
	// Ticket, when set, is that of an earlier lease of the same request, which takes that place again, and is let in
	// whatever MaxWaiters and MaxBytes say, as the request was let in before.
	Ticket Ticket
	// Ahead takes a place behind a running lease too, when its holder has opened one (Lease.OpenAhead): the lease then
	// comes before the slot does, see Lease.Owned.
	Ahead bool
	// Avoid, when set, is a slot not to be given: the one that the request holds already.
	Avoid *Slot
	// Joined, when set, is told the ticket of a request that has to wait, on the goroutine of Acquire.
	Joined func(Ticket)
	// Quiet keeps the outcome from Options.Observe.
	Quiet bool
}

// Acquire waits for a slot, oldest waiter first. It returns a Lease, which the caller owns and must Release, or an
// error wrapping ErrFull, ErrExpired, ErrDraining or context.Cause(ctx); never both.
// An error never costs a slot: a grant that meets a cancellation goes to the next waiter.
func (q *Queue) Acquire(ctx context.Context, want Want) (*Lease, error) {
	start := time.Now()
	lease, err := q.acquire(ctx, want, start)
	waited := time.Since(start)
	if lease != nil {
		lease.waited = waited
	}
	if q.o.Observe != nil && !want.Quiet {
		q.o.Observe(OutcomeOf(err), waited)
	}
	return lease, err
}

func (q *Queue) acquire(ctx context.Context, want Want, start time.Time) (*Lease, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	lease, w, err := q.enter(want, start)
	if w == nil {
		return lease, err
	}
	if want.Joined != nil {
		want.Joined(w.ticket)
	}
	timer := time.NewTimer(w.bound - time.Since(start))
	defer timer.Stop()
	select {
	case <-w.done:
	case <-timer.C:
		if q.leave(w) {
			return nil, expired(want)
		}
	case <-ctx.Done():
		if q.leave(w) {
			return nil, context.Cause(ctx)
		}
	}
	// Answered. An answer that came in the same moment as the end of the bound counts; one that meets the end of the
	// context has nobody to use it.
	if w.lease == nil {
		return nil, ErrDraining
	}
	if ctx.Err() != nil {
		w.lease.Release()
		return nil, context.Cause(ctx)
	}
	return w.lease, nil
}

func (w Want) class() class { return class{needs: w.Needs, avoid: w.Avoid, ahead: w.Ahead} }

// enter gives a free slot or a place in the line; else it says why not.
func (q *Queue) enter(want Want, start time.Time) (*Lease, *waiter, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if want.Ticket.turn > q.o.Tickets.turns.Load() || want.Bytes < 0 {
		panic("BUG: a ticket that was never given, or less than no bytes")
	}
	if q.draining {
		return nil, nil, ErrDraining
	}
	can := want.class()
	if s := q.takeLocked(can); s != nil {
		return s.leaseLocked(q.ticketLocked(want, start)), nil, nil
	}
	if l := q.takeAheadLocked(want, start); l != nil {
		return l, nil, nil
	}
	bound := want.Bound
	if bound <= 0 && q.settlingLocked(can) {
		bound = q.o.SettleGrace
	}
	if bound <= 0 {
		return nil, nil, expired(want)
	}
	if err := q.roomLocked(want); err != nil {
		return nil, nil, err
	}
	w := &waiter{
		ticket: q.ticketLocked(want, start), again: want.Ticket.given(), bytes: want.Bytes,
		since: start.Add(-want.Waited), bound: bound, done: make(chan struct{}),
	}
	q.line.join(w, can)
	return nil, w, nil
}

// leave takes w out of the line. It is false when an answer came first, which w then has.
func (q *Queue) leave(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.lane == nil {
		return false
	}
	q.line.remove(w)
	return true
}

// takeLocked takes the free slot that fits and was idle longest, or nil. No waiter can have an older claim to it
// (invariant 2).
func (q *Queue) takeLocked(can class) *Slot {
	if q.paused {
		return nil
	}
	i := slices.IndexFunc(q.free, can.fits)
	if i < 0 {
		return nil
	}
	s := q.free[i]
	q.free = slices.Delete(q.free, i, i+1)
	return s
}

// settlingLocked tells whether a slot that fits is about to be free.
func (q *Queue) settlingLocked(can class) bool {
	return slices.ContainsFunc(q.slots, func(s *Slot) bool {
		return s.stateLocked() == Settling && s.next == nil && !s.down && can.fits(s)
	})
}

// roomLocked refuses a newcomer that would take the line past its bounds.
func (q *Queue) roomLocked(want Want) error {
	switch {
	case want.Ticket.given():
		return nil
	case q.o.MaxWaiters > 0 && q.line.waiting >= q.o.MaxWaiters:
		return ErrFullCount
	case q.o.MaxBytes > 0 && want.Bytes > q.o.MaxBytes-q.line.bytes: // a sum could overflow
		return ErrFullBytes
	}
	return nil
}

func expired(want Want) error {
	if want.Bound <= 0 {
		return ErrBusy
	}
	return ErrExpired
}
