package router

import (
	"context"
	"errors"
	"time"

	"pd-router/internal/openai"
	"pd-router/internal/queue"
	"pd-router/internal/staging"
)

// stage is a request's room in the arena, from its grant to the first line of the node's stream: until then another node
// may need the KV again.
type stage struct {
	lease *queue.Lease
	slot  *staging.Slot
	kv    *staging.KV // of the present prefill, nil before
	ready bool        // the KV is complete
	sent  bool        // and on the node of the present lease
	saved time.Duration
}

// attemptStaged is an attempt by way of the arena: a decode slot is taken when the KV is ready, and an attempt that fails on its node
// keeps the KV for the next one.
func (l *life) attemptStaged() *failure {
	if l.stage == nil {
		if f := l.waitRoom(); f != nil {
			return f
		}
	}
	l.attempts++
	if !l.stage.ready {
		if f := l.fill(); f != nil {
			l.leaveArena()
			return f
		}
	}
	if l.lease == nil {
		if f := l.wait(); f != nil {
			return f
		}
	}
	return l.decodeLeg()
}

// waitRoom holds the request until there is room for its KV. Nothing is sent upstream meanwhile.
func (l *life) waitRoom() *failure {
	step := l.span.Step("queue")
	want := queue.Want{Bound: l.left(), Waited: l.waited, Bytes: int64(len(l.call.Body)), Arrived: l.call.Arrived, Ticket: l.ticket}
	if open := l.r.arena.opened.Load(); open != nil {
		want.Needs = open.needs(max(l.promptTokens, len(l.call.Body)/bytesPerToken))
	}
	start := time.Now()
	lease, err := l.acquire(l.r.arena.line, want)
	l.waited += time.Since(start)
	l.times.queue = l.waited
	if err != nil {
		step.End(err.Error())
		return l.noSlot(err)
	}
	l.ticket = lease.Ticket()
	l.stage = &stage{lease: lease, slot: l.r.arena.opened.Load().slots[lease.Slot()]}
	l.times.granted = time.Now()
	step.Set("room", l.stage.slot.Name())
	step.End("")
	return nil
}

// fill brings the KV of the prompt into the arena.
func (l *life) fill() *failure {
	start := time.Now()
	if f := l.prefill(); f != nil {
		return f
	}
	if l.promptTokens = l.prefilled.PromptTokens; l.promptTokens > l.stage.slot.MaxSeqLen() {
		return l.tooLong()
	}
	if f := l.receive(); f != nil {
		return f
	}
	l.stage.ready, l.stage.saved = true, time.Since(start)
	return nil
}

// tooLong sends a request whose prompt does not fit its room to a larger one, or straight to a decode node when no room is
// large enough. Its sender has written nothing.
func (l *life) tooLong() *failure {
	if _, window := l.r.helloOfAll(); l.promptTokens > window {
		return windowPassed(window, l.promptTokens)
	}
	l.direct = !l.r.arena.opened.Load().takes(l.promptTokens)
	l.attempts-- // nobody has failed
	return errMoved
}

var errKVLate = errors.New("not complete within --kv-timeout")

// receive waits until the KV is complete in the arena.
func (l *life) receive() (f *failure) {
	step := l.span.Step("kv in")
	start := time.Now()
	defer func() {
		l.times.kvWait += time.Since(start)
		step.End(f.problem())
	}()
	ctx, cancel := context.WithTimeoutCause(l.ctx, l.r.opts.KVTimeout, errKVLate)
	defer cancel()
	ctx, stop := l.from.outlives(ctx, 0)
	defer stop()
	err := l.stage.kv.Receive(ctx, l.prefilled.RID)
	if err == nil {
		return nil
	}
	return l.notReceived(err)
}

// notReceived sorts what came of KV that is not there.
func (l *life) notReceived(err error) *failure {
	if f := ended(l.ctx); f != nil {
		return f
	}
	l.r.failedUpstream(legPrefill, classKV)
	switch {
	case errors.Is(err, staging.Closed):
		return outcomeOf(ErrDraining).because(err)
	case errors.Is(err, staging.Timeout):
		f := prefillFailed("the KV did not come from the prefill node in time (--kv-timeout)").because(err)
		f.err = openai.Errorf(openai.TypeKVTransferTimeout, "%s", f.err.Message)
		return f
	}
	return prefillFailed("the KV transfer from the prefill node broke off").again(anywhere).because(err)
}

// send brings the KV from the arena to the node of the lease. busy is true when the node's buffer is another's.
func (l *life) send() (busy bool, f *failure) {
	if l.stage == nil || l.stage.sent {
		return false, nil
	}
	step := l.span.Step("kv out")
	defer func() { step.End(f.problem()) }()
	l.epoch = l.node.epoch.Load()
	l.begun = l.prefilled.RID
	err := l.stage.kv.Send(l.ctx, staging.Target{Host: l.node.Address.Host, Port: l.node.Address.CtrlPort})
	if err == nil {
		l.stage.sent, l.begun = true, "" // a complete transfer keeps nobody out
		if l.node.epoch.Load() != l.epoch {
			return false, decodeFailed(openai.TypeDecodeFailed, "the decode node went away").again(anywhere).because(l.node.Err())
		}
		return false, nil
	}
	return l.notSent(err)
}

// notSent sorts what came of a failed send. The KV is still good, unless its bytes have changed.
func (l *life) notSent(err error) (busy bool, f *failure) {
	var hop *staging.Error
	if errors.As(err, &hop) && !hop.Admitted {
		l.begun = "" // the node's buffer was never ours
	}
	if f := ended(l.ctx); f != nil {
		return false, f
	}
	if errors.Is(err, staging.Busy) {
		return true, nil
	}
	l.r.failedUpstream(legDecode, classKV)
	f = decodeFailed(openai.TypeDecodeFailed, "the KV could not be brought to the decode node").again(anywhere).because(err)
	switch {
	case errors.Is(err, staging.Closed):
		return false, outcomeOf(ErrDraining).because(err)
	case errors.Is(err, staging.Unreachable), errors.Is(err, staging.Lost): // it may be on its way down, or only its control port
		l.strike = true
		l.node.Failed(err)
	case errors.Is(err, staging.Corrupt), errors.Is(err, staging.Forgotten): // another prefill, another rid
		l.leaveArena()
	case errors.Is(err, staging.Mismatch), errors.Is(err, staging.Refused):
		l.strike, f.retry = true, elsewhere
	default:
		l.strike = true
	}
	return false, f
}

// leaveArena gives up the request's room and what is in it; without one it does nothing.
func (l *life) leaveArena() {
	if l.stage == nil {
		return
	}
	if l.stage.kv != nil {
		l.stage.kv.Release()
	}
	l.stage.lease.Release()
	l.stage = nil
}

// expect names the receiver of the KV of rid: the room in the arena, or else the node of the lease.
func (l *life) expect(rid string) (host string, ctrlPort int, err error) {
	l.from = l.r.sender.Load()
	if l.stage == nil {
		l.asked = append(l.asked, rid)
		return l.node.Address.Host, l.node.Address.CtrlPort, nil
	}
	slot := l.stage.slot
	if l.stage.kv != nil {
		l.stage.kv.Release() // of the try before
		l.stage.kv = nil
	}
	l.stage.kv, err = slot.Expect(rid)
	return slot.Host(), slot.CtrlPort(), err
}

// overlapped reports what a slot was not held for, because the KV was ready when it was granted.
func (l *life) overlapped() {
	if l.stage != nil {
		l.r.metrics.Arena.Overlapped(l.stage.saved)
		l.stage.saved = 0
	}
}
