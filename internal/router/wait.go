package router

import (
	"errors"
	"time"

	"pd-router/internal/openai"
	"pd-router/internal/queue"
)

// wait holds the request until it has a slot. Nothing is sent upstream meanwhile.
func (l *life) wait() *failure {
	step := l.span.Step("queue")
	start := time.Now()
	lease, err := l.acquire(l.r.queue, queue.Want{
		Waited: l.waited,
		Bound:  l.left(),
		Bytes:  int64(len(l.call.Body)),
		Needs:  queue.Traits(l.req.Needs),
		Ticket: l.ticket, Arrived: l.call.Arrived,
		Avoid: l.avoid,
		Ahead: l.r.opts.PrefillAhead,
	})
	l.waited += time.Since(start)
	l.times.queue = l.waited
	if err != nil {
		step.End(err.Error())
		return l.noSlot(err)
	}
	l.take(lease)
	l.overlapped()
	step.Set("node", l.nodeName)
	step.End("")
	return nil
}

// take makes lease that of the present attempt.
func (l *life) take(lease *queue.Lease) {
	l.lease, l.ticket, l.node = lease, lease.Ticket(), l.r.backendOf(lease.Slot())
	l.nodeName, l.held = l.node.slot.Name(), nil
	l.dispatched, l.nodeEnded, l.strike, l.tokens, l.asked, l.begun = false, false, false, 0, nil, ""
	if l.stage == nil {
		l.prefilled = nil
	} else {
		l.stage.sent = false
	}
	l.epoch = l.node.epoch.Load()
	l.times.granted = time.Now()
}

// owns says whether the slot is the request's: a lease that was given ahead has it only when the request before has ended.
func (l *life) owns() bool { return l.lease != nil && isOwned(l.lease) }

// own makes sure that the slot is the request's and that its KV is on the node: it waits for the slot of a lease that was
// given ahead, within the bound on waiting. If the node went away since the grant the KV is gone, and prefill runs again.
func (l *life) own() *failure {
	if !l.owns() {
		if f := l.becomeOwner(); f != nil {
			return f
		}
	}
	for {
		epoch := l.node.epoch.Load()
		switch {
		case epoch == l.epoch:
			return nil
		case !l.node.Up():
			return decodeFailed(openai.TypeDecodeFailed, "the decode node went away").again(anywhere).because(l.node.Err())
		}
		l.epoch = epoch
		if f := l.prefill(); f != nil {
			return f
		}
	}
}

// becomeOwner waits until the request before has ended.
func (l *life) becomeOwner() *failure {
	step := l.span.Step("ahead")
	start := time.Now()
	timer := time.NewTimer(l.left())
	defer timer.Stop()
	defer func() {
		l.waited += time.Since(start)
		l.times.queue = l.waited
		step.End("")
	}()
	select {
	case <-l.lease.Owned():
		return nil
	case <-timer.C:
		return l.expired()
	case <-l.r.drained:
		return outcomeOf(ErrDraining)
	case <-l.ctx.Done():
		return ended(l.ctx)
	}
}

// noSlot is the refusal of a request that got none.
func (l *life) noSlot(err error) *failure {
	switch {
	case errors.Is(err, queue.ErrFullBytes):
		return refuseFull("the queue holds as many bytes as --queue-max-bytes allows (%d)", l.r.opts.QueueMaxBytes)
	case errors.Is(err, queue.ErrFull):
		return refuseFull("the queue is full (--queue-max %d)", int64(l.r.opts.QueueMax))
	case errors.Is(err, queue.ErrExpired):
		return l.expired()
	}
	return outcomeOf(err)
}

func refuseFull(format string, limit int64) *failure {
	e := openai.Errorf(openai.TypeQueueFull, format+": send the request again later", limit)
	e.RetryAfter = 1
	return &failure{outcome: QueueFull, err: e}
}

// expired tells a client why it got no slot, and what the wait was.
func (l *life) expired() *failure {
	missing := l.r.cannotServe()
	var e *openai.Error
	switch {
	case len(missing) > 0:
		e = openai.Errorf(openai.TypeQueueTimeout, "no decode slot after waiting %.1fs: %s", l.waited.Seconds(), missing[0])
		e.Status = 503
	case l.r.opts.QueueTimeout <= 0:
		e = openai.Errorf(openai.TypeQueueTimeout, "all decode nodes busy, and --queue-timeout is 0: send the request again later")
	default:
		e = openai.Errorf(openai.TypeQueueTimeout, "no decode node free after waiting %.1fs (--queue-timeout)", l.waited.Seconds())
	}
	e.RetryAfter = 1
	return &failure{outcome: QueueTimeout, err: e}
}
