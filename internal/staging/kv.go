package staging

import (
	"context"
	"fmt"
	"strings"
	"time"

	"pd-router/internal/tilert"
)

// transport is the only one that the arena has.
const transport = "nixl"

// KV is the KV of one request in a slot, from Expect to Release. It belongs to one goroutine at a time.
type KV struct {
	s        *Slot
	expected string
	changed  chan struct{} // of one place, for Receive: something below has changed. Never closed

	// Guarded by s.mu.
	rid      string   // that Receive was asked for
	in       *arrival // the newest; nil before the first rank
	err      *Error   // it cannot come to a good end any more
	released bool

	// Of the goroutine that has it.
	verify bool
	sum    uint32 // of the bytes when they had come, if verify
}

// arrival is one tenancy of the slot: what the sending ranks of one rid have said and done. Guarded by the slot's mutex.
type arrival struct {
	rid        string
	generation uint64
	seqLen     int
	began      time.Time
	took       time.Duration
	ranks      []rank
	transfer   *tilert.Transfer // set when all ranks are done
}

// rank is what one sender of an arrival has done.
type rank struct {
	request       *tilert.Request // nil before it came
	writing, done bool
}

func (in *arrival) ridOf() string {
	if in == nil {
		return ""
	}
	return in.rid
}

// wantsLocked tells whether a rid may be this request's.
func (kv *KV) wantsLocked(rid string) bool {
	switch {
	case kv.err != nil:
		return false
	case kv.rid != "":
		return rid == kv.rid
	}
	return kv.expected == "" || rid == kv.expected || !kv.s.a.honours.Load()
}

// tell has Receive look again.
func (kv *KV) tell() {
	select {
	case kv.changed <- struct{}{}:
	default: // it will look anyway
	}
}

func (kv *KV) failLocked(why Reason, err error) {
	if kv.err == nil {
		kv.err = kv.failed(In, why, err)
		kv.tell()
	}
}

func (kv *KV) failed(hop Hop, why Reason, err error) *Error {
	rid := kv.rid
	if rid == "" {
		rid = kv.expected
	}
	return &Error{Hop: hop, Reason: why, Slot: kv.s.name, RID: rid, Err: err}
}

// Receive waits until the KV of rid is complete: all ranks have written and said so. rid is what prefill's answer is derived to; KV that came
// under another one is dropped. An error is final for this KV, of type *Error: Timeout says which ranks are missing, Lost that one left in the
// middle, which is told at once.
func (kv *KV) Receive(ctx context.Context, rid string) error {
	s := kv.s
	if !s.a.enter() {
		return kv.failed(In, Closed, ErrClosed)
	}
	defer s.a.work.Done()
	s.askFor(kv, rid)
	err := kv.await(ctx)
	if err == nil {
		if kv.verify = s.a.sampled(); kv.verify {
			kv.sum = kv.checksum()
		}
	}
	s.a.report(kv.account(In, err))
	if err != nil {
		return err
	}
	return nil
}

// askFor notes which rid is the right one, and whether prefill keeps the ids that it is told.
func (s *Slot) askFor(kv *KV, rid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if kv.released {
		panic("BUG: Receive after Release")
	}
	kv.rid = rid
	if kv.expected != "" {
		s.a.honours.Store(rid == kv.expected)
	}
	s.books.Expect(rid)
}

func (kv *KV) await(ctx context.Context) *Error {
	for {
		if complete, err := kv.look(); complete || err != nil {
			return err
		}
		select {
		case <-kv.changed:
		case <-ctx.Done():
			return kv.late(ended(ctx), context.Cause(ctx))
		case <-kv.s.a.ctx.Done():
			return kv.late(Closed, ErrClosed)
		}
	}
}

// look tells whether the KV is there, or why it will not be. KV of another rid is let go of.
func (kv *KV) look() (complete bool, _ *Error) {
	s := kv.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.suspect != nil {
		kv.failLocked(Lost, s.suspect)
	}
	switch in := kv.in; {
	case kv.err != nil:
		return false, kv.err
	case in == nil:
		return false, nil
	case in.rid == kv.rid:
		return in.transfer != nil, nil
	default:
		s.books.Release(time.Now(), in.rid)
		kv.in = nil
		s.setLocked(Reserved)
		return false, nil
	}
}

// late is the failure of a wait that ended without the KV.
func (kv *KV) late(why Reason, cause error) *Error {
	s := kv.s
	s.mu.Lock()
	defer s.mu.Unlock()
	kv.failLocked(why, fmt.Errorf("%w, and %s", cause, kv.missingLocked()))
	return kv.err
}

// missingLocked says how far the senders have come.
func (kv *KV) missingLocked() string {
	if kv.in == nil {
		return "no rank has asked to send: is the prompt longer than the slot, or the slot's control port out of prefill's reach?"
	}
	var absent, writing []string
	for i, r := range kv.in.ranks {
		switch {
		case r.done:
		case r.writing:
			writing = append(writing, fmt.Sprint(i))
		default:
			absent = append(absent, fmt.Sprint(i))
		}
	}
	return fmt.Sprintf("of %d ranks [%s] have not come and [%s] are not done", len(kv.in.ranks), strings.Join(absent, " "), strings.Join(writing, " "))
}

// SeqLen is the prompt's length in tokens as the senders said, once received.
func (kv *KV) SeqLen() int { return kv.arrived().seqLen }

// Bytes is what Receive has brought and Send moves.
func (kv *KV) Bytes() int64 { return kv.s.a.o.Layout.Bytes(kv.SeqLen()) }

// arrived is the complete arrival, which nobody changes any more.
func (kv *KV) arrived() *arrival {
	kv.s.mu.Lock()
	defer kv.s.mu.Unlock()
	if kv.in == nil || kv.in.transfer == nil || kv.released {
		panic("BUG: KV that is not there")
	}
	return kv.in
}

// Release ends the request's hold on the slot, which is free at once or, when a transfer has not come to a known end, quarantined until it
// has. Senders that come later are refused. Further calls do nothing.
func (kv *KV) Release() {
	s := kv.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if kv.released {
		return
	}
	kv.released = true
	s.freeLocked(kv)
}

// request is what a rank tells the node: what its sender told us. A node may want more ranks than prefill has, of which each then says what
// rank 0 said.
func (in *arrival) request(rank int) tilert.Request {
	from := in.ranks[0].request
	if rank < len(in.ranks) {
		from = in.ranks[rank].request
	}
	q := *from
	q.Rank = rank
	if rank == 0 { // what only some ranks carry is of use on rank 0 alone, or wherever the node looks first
		q.PromptTokenIDs, q.KVScales = in.transfer.PromptTokenIDs, in.transfer.KVScales
	}
	return q
}
