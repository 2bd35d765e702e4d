package tilert

import (
	"time"
)

// TenancyAge is how long an unfinished transfer without a writer keeps the buffer, and how long a released rid is
// refused (spec 2.3). The peer has no setting for it.
const TenancyAge = 120 * time.Second

// State is what a receive buffer is doing.
type State uint8

const (
	Free         State = iota // no tenancy
	Reserved                  // a rid is let in and none of its ranks has joined yet; gone before Admit returns
	Transferring              // ranks write, or have left without being done
	Complete                  // every rank is done: the bytes may be read, and the buffer be given to another rid
	Cancelling                // released under a live writer, whose bytes may still arrive
	NumStates
)

// String is the state's name on the wire.
func (s State) String() string {
	return [...]string{"free", "reserved", "transferring", "complete", "cancelling"}[s]
}

// ReceiverOptions are fixed for a receiver's life.
type ReceiverOptions struct {
	Protocol  Protocol      // 0 means Protocol2
	Senders   int           // ranks 0..Senders-1 complete a transfer; 0 means DefaultSenders
	MaxSeqLen int           // longest prompt that the buffer holds
	Age       time.Duration // 0 means TenancyAge
}

// Receiver decides who may write into one receive buffer (spec 2.3). It has no clock, no lock and no connection: its
// owner passes the time, holds one mutex over all calls, and reports what happens on the connections.
//
//	Expect ─► Admit ─► (bytes arrive) ─► Done of every rank ─► Release
//	                └► Leave of each connection, whenever it ends
type Receiver struct {
	o    ReceiverOptions
	cur  *tenancy
	next uint64               // generation of the tenancy after this one
	tomb map[string]time.Time // released rids and until when they are refused
}

// tenancy is the buffer in the hands of one rid.
type tenancy struct {
	Transfer
	state   State
	done    map[int]bool
	writers int // connections that were admitted and have not left
}

// Transfer is what the sending ranks said about one request.
type Transfer struct {
	RID             string
	Generation      uint64
	SeqLen          int // of the first rank; the ranks are not compared
	LastPromptToken int
	PromptTokenIDs  []int // from whichever rank first carried them
	KVScales        []byte
	Began           time.Time // first connection
}

// Writer is one connection that was admitted. The owner calls Leave for it exactly once.
type Writer struct {
	RID        string
	Rank       int
	Generation uint64
	left       bool
}

// NewReceiver returns a receiver whose buffer is free.
func NewReceiver(o ReceiverOptions) *Receiver {
	if o.Protocol == 0 {
		o.Protocol = Protocol2
	}
	if o.Senders == 0 {
		o.Senders = DefaultSenders
	}
	if o.Age == 0 {
		o.Age = TenancyAge
	}
	return &Receiver{o: o, next: 1, tomb: map[string]time.Time{}}
}

// Admit decides about one request. An accept comes with the Writer that the connection now is; a refusal has none and
// claims nothing. With Protocol1 an accepting Reply is not sent.
func (r *Receiver) Admit(now time.Time, req *Request) (Reply, *Writer) {
	reply := Reply{RID: req.RID, Rank: req.Rank, Protocol: r.o.Protocol}
	if req.SeqLen > r.o.MaxSeqLen {
		reply.Reason, reply.MaxSeqLen = ReasonTooLong, r.o.MaxSeqLen
		return reply, nil
	}
	if r.buried(now, req) {
		reply.Reason, reply.Detail = ReasonCancelling, NoConsumer
		return reply, nil
	}
	switch t := r.cur; {
	case t == nil || t.RID != req.RID:
		if !r.reusable(now) {
			reply.Reason, reply.BusyRID, reply.BusyState = ReasonBusy, t.RID, t.state.String()
			return reply, nil
		}
		r.cur = &tenancy{
			Transfer: Transfer{
				RID: req.RID, Generation: r.next, SeqLen: req.SeqLen, LastPromptToken: req.LastPromptToken, Began: now,
			},
			state: Reserved,
			done:  map[int]bool{},
		}
		r.next++
	case r.o.Protocol == Protocol1:
	case t.state == Cancelling:
		reply.Reason = ReasonCancelling
		return reply, nil
	case t.done[req.Rank]:
		reply.Reason = ReasonDuplicateRank
		return reply, nil
	}
	return r.join(reply, req)
}

// join makes the connection a writer of the current tenancy. A rank that left without done may come again.
func (r *Receiver) join(reply Reply, req *Request) (Reply, *Writer) {
	t := r.cur
	if t.state == Reserved {
		t.state = Transferring
	}
	t.writers++
	if len(t.PromptTokenIDs) == 0 {
		t.PromptTokenIDs = req.PromptTokenIDs
	}
	if len(t.KVScales) == 0 {
		t.KVScales = req.KVScales
	}
	reply.Accepted, reply.Generation = true, t.Generation
	return reply, &Writer{RID: req.RID, Rank: req.Rank, Generation: t.Generation}
}

// buried reports a rid that was released and that nobody has asked for since. The sender will go on asking for its
// window, so the tombstone stays at least that long.
func (r *Receiver) buried(now time.Time, req *Request) bool {
	until, ok := r.tomb[req.RID]
	if !ok || !now.Before(until) {
		delete(r.tomb, req.RID)
		return false
	}
	if asks := now.Add(time.Duration(req.AdmissionWindow)); asks.After(until) {
		r.tomb[req.RID] = asks
	}
	return true
}

// reusable reports whether another rid may take the buffer.
func (r *Receiver) reusable(now time.Time) bool {
	t := r.cur
	switch {
	case t == nil || t.state == Complete:
		return true // complete: even with connections that are still closing
	case r.o.Protocol == Protocol1:
		return now.Sub(t.Began) >= r.o.Age // even under a live writer
	case t.writers > 0:
		return false // however old
	case t.state == Cancelling:
		return true
	}
	return now.Sub(t.Began) >= r.o.Age
}

// Done notes that the connection's rank has written everything. When it was the last rank that was missing, the
// transfer is complete and returned; the owner then queues it for whoever waits. A done that does not belong to the
// tenancy which admitted the connection counts for nothing.
func (r *Receiver) Done(w *Writer) (*Transfer, bool) {
	t := r.cur
	if t == nil || t.RID != w.RID || t.state == Cancelling || t.state == Complete {
		return nil, false
	}
	if r.o.Protocol != Protocol1 && t.Generation != w.Generation {
		return nil, false
	}
	t.done[w.Rank] = true
	for rank := range r.o.Senders {
		if !t.done[rank] {
			return nil, false
		}
	}
	t.state = Complete
	transfer := t.Transfer
	return &transfer, true
}

// Leave notes that the connection has ended, in whatever way. The last writer of a cancelled tenancy frees the buffer.
func (r *Receiver) Leave(w *Writer) {
	if w.left {
		return
	}
	w.left = true
	t := r.cur
	if t == nil || t.Generation != w.Generation {
		return
	}
	if t.writers--; t.writers == 0 && t.state == Cancelling {
		r.cur = nil
	}
}

// Buried says whether the rid was released and nobody has asked for it since.
func (r *Receiver) Buried(now time.Time, rid string) bool { return now.Before(r.tomb[rid]) }

// Expect announces that somebody waits for the rid. It is the only thing that lets a released rid in again early.
func (r *Receiver) Expect(rid string) { delete(r.tomb, rid) }

// Release says that nobody wants the rid's bytes any more, or that they have been read. It never touches another rid's
// tenancy with Protocol2; with Protocol1 it frees whatever is there.
func (r *Receiver) Release(now time.Time, rid string) {
	if r.o.Protocol == Protocol1 {
		r.cur = nil
		return
	}
	r.bury(now, rid)
	t := r.cur
	if t == nil || t.RID != rid {
		return
	}
	if t.writers > 0 && t.state != Complete {
		t.state = Cancelling
		return
	}
	r.cur = nil
}

// bury refuses the rid for a while, never for less than before. Tombstones that have aged out are cleared away as soon
// as there are many, so their number follows the rate of requests.
func (r *Receiver) bury(now time.Time, rid string) {
	if len(r.tomb) >= 1024 && len(r.tomb)&(len(r.tomb)-1) == 0 {
		for old, until := range r.tomb {
			if !now.Before(until) {
				delete(r.tomb, old)
			}
		}
	}
	if until := now.Add(r.o.Age); until.After(r.tomb[rid]) {
		r.tomb[rid] = until
	}
}

// State returns what the buffer is doing and for whom.
func (r *Receiver) State() (state State, rid string) {
	if r.cur == nil {
		return Free, ""
	}
	return r.cur.state, r.cur.RID
}

// Current returns a copy of the tenancy's transfer, if there is one.
func (r *Receiver) Current() (Transfer, bool) {
	if r.cur == nil {
		return Transfer{}, false
	}
	return r.cur.Transfer, true
}

// Writers returns how many connections may be writing into the buffer.
func (r *Receiver) Writers() int {
	if r.cur == nil {
		return 0
	}
	return r.cur.writers
}

// Busy is the advisory flag of the hello: another rid would be refused, or its bytes would meet those of this one.
func (r *Receiver) Busy() bool { return r.cur != nil && r.cur.state != Complete }
