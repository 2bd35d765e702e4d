package router

import (
	"context"
	"errors"
	"time"

	"pd-router/internal/openai"
	"pd-router/internal/queue"
)

// busyPause is the longest pause between two tries at a busy node, and the one of a request with no queue time.
const busyPause = 500 * time.Millisecond

// errMoved says that the request goes on with another slot or another room than it had, and nobody has failed.
var errMoved = &failure{}

// otherWait is a request's place in the line for another slot while it tries a busy node again and again.
type otherWait struct {
	got    <-chan granted
	cancel context.CancelFunc
}

// granted is what came of an Acquire.
type granted struct {
	lease *queue.Lease
	err   error
}

// acquiring is Acquire on a goroutine of its own, which ends with the wait; the answer must be read.
func acquiring(ctx context.Context, q *queue.Queue, want queue.Want) <-chan granted {
	got := make(chan granted, 1)
	go func() {
		lease, err := q.Acquire(ctx, want)
		got <- granted{lease, err}
	}()
	return got
}

// busy waits before the next try at a node that is busy for somebody else or still letting go, within the queue time. All the
// while, also during the tries, the request stands in the line for another slot, ahead of all that came later: when there is one, it
// moves.
func (l *life) busy(try int) *failure {
	l.nodeEnded, l.dispatched = true, false // it never began
	l.r.metrics.Upstream.Retried(retryBusy)
	if l.r.opts.QueueTimeout <= 0 {
		return l.busyOnce(try)
	}
	pause := min(l.left(), busyPause, 20*time.Millisecond<<min(try-1, 8))
	if pause <= 0 {
		return l.stillBusy()
	}
	if l.other == nil {
		ctx, cancel := context.WithCancel(l.ctx)
		l.other = &otherWait{acquiring(ctx, l.r.queue, l.another(l.left())), cancel}
	}
	start := time.Now()
	defer func() { l.waited += time.Since(start) }()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case a := <-l.other.got:
		l.other.cancel()
		l.other = nil
		return l.move(a)
	case <-timer.C:
		l.nodeEnded = false
		return nil
	}
}

// busyOnce is busy for a request that may not wait: it takes another slot if one is free, or tries once more after a pause.
func (l *life) busyOnce(try int) *failure {
	if try > 1 {
		return l.stillBusy()
	}
	lease, err := l.r.queue.Acquire(l.ctx, l.another(0))
	if err == nil || !errors.Is(err, queue.ErrExpired) {
		return l.move(granted{lease, err})
	}
	if !sleep(l.ctx, busyPause) {
		return ended(l.ctx)
	}
	l.nodeEnded = false
	return nil
}

// another is the wish for a slot that the request does not hold yet.
func (l *life) another(bound time.Duration) queue.Want {
	return queue.Want{Bound: bound, Needs: queue.Traits(l.req.Needs), Ticket: l.ticket, Avoid: l.lease.Slot(), Quiet: true}
}

// move goes on with the slot that was had, if one was.
func (l *life) move(a granted) *failure {
	switch {
	case errors.Is(a.err, queue.ErrExpired):
		return l.stillBusy()
	case a.err != nil:
		return l.noSlot(a.err)
	}
	l.strike = true // the node is left alone for a while, not given to the next in line at once
	l.endLease(0)
	l.take(a.lease)
	l.attempts-- // a busy node is nobody's failure
	return errMoved
}

// leaveLine ends the wait for another slot. One that came in the last moment goes to the next in line.
func (l *life) leaveLine() {
	if l.other == nil {
		return
	}
	l.other.cancel()
	if a := <-l.other.got; a.lease != nil {
		a.lease.Release()
	}
	l.other = nil
}

func (l *life) stillBusy() *failure {
	e := openai.Errorf(openai.TypeDecodeBusy, "decode node busy: it is working for somebody else than this router")
	e.RetryAfter = 1
	return &failure{outcome: DecodeBusy, err: e}
}
