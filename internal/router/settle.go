package router

import (
	"context"
	"time"

	"go.uber.org/zap"

	"pd-router/internal/metrics"
	"pd-router/internal/nodes"
	"pd-router/internal/queue"
)

// endLease ends the present attempt's hold on its node; without a lease it does nothing. A node that has itself
// reported an end is free. One that has not is cancelled, and its slot settles: it is given on when the node
// says that it is idle. The wait for that, up to wait, is for a client that may come again at once. A request that comes
// again itself (l.back) has its place in the line before the slot is given on.
func (l *life) endLease(wait time.Duration) {
	lease := l.lease
	if lease == nil {
		return
	}
	l.lease = nil
	doubt := l.doubtful()
	if !isOwned(lease) { // given ahead: nothing was sent to the node
		if len(doubt.rids) == 0 && l.back == nil {
			lease.Release()
		} else {
			l.r.settleAhead(lease, l.node, doubt, l.back)
		}
		return
	}
	if l.decode != nil {
		// The node frees its slot after the end of the body, not with its last line.
		if l.nodeEnded && !l.decode.Drain(idleWait) {
			l.nodeEnded = false
		}
		l.decode.Close()
		l.decode = nil
	}
	var rest time.Duration
	if l.strike {
		l.strike = false
		rest = l.node.Struck()
	}
	l.node.endSequence()
	mustCancel := l.dispatched && !l.nodeEnded
	if !mustCancel && rest == 0 && len(doubt.rids) == 0 && l.back == nil {
		l.node.enter(metrics.SlotFree, nil)
		lease.Release()
		return
	}
	rid := ""
	if mustCancel {
		rid = l.prefilled.RID
		l.r.metrics.Requests.Cancelled(max(l.phase(), metrics.KVWait))
	}
	settled := l.r.settle(lease, l.node, rid, doubt, rest, l.back)
	if wait <= 0 {
		return
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-settled:
	case <-timer.C:
	}
}

// untilBack returns when back is closed, which its request does on every path; nil is of one that does not come again.
func untilBack(back <-chan struct{}) {
	if back != nil {
		<-back
	}
}

// doubt is KV of which it is not known whether part of it keeps a node's buffer.
type doubt struct {
	rids []string
	open bool // some of it may yet begin to come
}

// doubtful is the KV of the present attempt whose end is not known. There is none on a node that never said hello: nobody could see its
// buffer, and it would get a decode call for every prefill that failed or whose client left.
func (l *life) doubtful() (d doubt) {
	if !l.dispatched && l.node.Hello() != nil { // once dispatched, the node itself lets go of it
		d.rids, d.open = l.asked, len(l.asked) > 0
		if l.begun != "" {
			d.rids = append(d.rids, l.begun)
		}
	}
	l.asked, l.begun = nil, ""
	return d
}

func isOwned(lease *queue.Lease) bool {
	select {
	case <-lease.Owned():
		return true
	default:
		return false
	}
}

// Pauses between two looks at a node that is letting go.
const (
	settlePauseMin = time.Millisecond
	settlePauseMax = 100 * time.Millisecond
)

// settle gives lease back when its node is idle, after cancelling rid on it ("": there is nothing to cancel), when no part of
// the KV of d keeps its buffer or can come to do so, after a rest, and when back is closed. A node that works on rid has no bound: only
// it knows when it is done.
func (r *Router) settle(lease *queue.Lease, be *backend, rid string, d doubt, rest time.Duration, back <-chan struct{}) <-chan struct{} {
	be.enter(metrics.SlotSettle, nil)
	lease.Settle()
	done := make(chan struct{}) // closed by the goroutine
	r.settling.Go(func() {      // ended by idleness, a dead node or r.stop; awaited by Run
		defer close(done)
		defer func() {
			be.enter(metrics.SlotFree, nil)
			lease.Release()
		}()
		if rid != "" {
			r.untilIdle(be, rid)
		}
		if len(d.rids) > 0 {
			r.untilEmpty(be, d)
		}
		if rest > 0 {
			sleep(r.background, rest)
		}
		untilBack(back)
	})
	return done
}

// untilIdle cancels rid and returns when the node no longer works on it, or cannot be asked any more: then it
// is down, and its slot is not given out until it answers again.
func (r *Router) untilIdle(be *backend, rid string) {
	if err := be.Cancel(r.background, rid); err != nil && r.background.Err() == nil {
		r.log.Info("cancel failed", zap.String("node", be.slot.Name()), zap.String("rid", rid), zap.Error(err))
	}
	for pause := settlePauseMin; ; pause = min(2*pause, settlePauseMax) {
		current, busy, err := r.status(be)
		if err != nil {
			if r.background.Err() == nil {
				be.Failed(err)
			}
			return
		}
		if !busy || (current != "" && current != rid) {
			return
		}
		if !sleep(r.background, pause) {
			return
		}
	}
}

// settleAhead gives back a lease that was given ahead, when no part of the KV of d keeps the node's buffer or can come to, and when back is
// closed. As long as the node decodes for the request before, it cannot be told to let go of it.
func (r *Router) settleAhead(lease *queue.Lease, be *backend, d doubt, back <-chan struct{}) {
	r.settling.Go(func() { // ended by the end of the request before, or r.stop; awaited by Run
		defer lease.Release()
		defer untilBack(back)
		if len(d.rids) == 0 {
			return
		}
		select {
		case <-lease.Owned():
		case <-r.background.Done():
			return
		}
		be.enter(metrics.SlotSettle, nil)
		defer be.enter(metrics.SlotFree, nil)
		lease.Settle()
		r.untilEmpty(be, d)
	})
}

// transferGrace is how long a transfer that nobody wants may go on: most come to their end by themselves. A sender that is told to give
// up asks again for some seconds, and the KV of others waits behind it.
const transferGrace = time.Second

// emptyLimit is how long untilEmpty waits at most. What still has the buffer then is under live writers, or is the KV of somebody whom this
// router does not know: the node itself guards it, and takes it from him when he is old enough and somebody else asks.
const emptyLimit = 4 * time.Second

// untilEmpty returns when no transfer that is not complete has the node's receive buffer, and none of d can begin one. One that has
// stopped half way would keep it for two minutes, and the KV of others would be refused meanwhile (spec 2.3): the node is told to forget it.
// So it is if nothing has come yet, as from a prefill node that hangs: its KV may come when it goes on.
func (r *Router) untilEmpty(be *backend, d doubt) {
	start, seen := time.Now(), false
	for pause := settlePauseMin; ; pause = min(2*pause, settlePauseMax) {
		busy, err := be.ReceiverBusy(r.background)
		seen = seen || busy
		if err == nil && !busy && (!d.open || seen && len(d.rids) == 1) { // it has come to its end
			return
		}
		if err == nil && (!busy || time.Since(start) >= transferGrace) {
			d.rids, err = r.forget(be, d.rids)
		}
		if err != nil {
			if r.background.Err() == nil {
				r.log.Info("KV that nobody wants may keep the buffer", zap.String("node", be.slot.Name()), zap.Strings("rids", d.rids), zap.Error(err))
			}
			return
		}
		if !busy && len(d.rids) == 0 || time.Since(start) >= emptyLimit || !sleep(r.background, pause) {
			return
		}
	}
}

// forget has the node let go of rids, and returns those that it has not heard of because it is at work.
func (r *Router) forget(be *backend, rids []string) (left []string, err error) {
	for i, rid := range rids {
		if done, err := be.Forget(r.background, rid); !done || err != nil {
			return rids[i:], err
		}
	}
	return nil, nil
}

func (r *Router) status(be *backend) (rid string, busy bool, err error) {
	ctx, cancel := context.WithTimeoutCause(r.background, 5*time.Second, nodes.ErrTimeout)
	defer cancel()
	return be.Status(ctx)
}

// sleep waits for d; false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
