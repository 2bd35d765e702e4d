package staging

import (
	"fmt"
	"net"
	"sync"
	"time"

	"pd-router/internal/nixl"
	"pd-router/internal/tilert"
)

// State is what a slot is doing.
type State uint8

const (
	Free        State = iota // may be given to a request
	Reserved                 // expects a request's KV; no rank has been let in
	Receiving                // ranks have been let in
	Held                     // the KV is complete
	Sending                  // the KV is complete and on its way to a decode node
	Quarantined              // its request is over, the end of a transfer is not known: nobody may have it
	NumStates                // sizes tables
)

var stateNames = [NumStates]string{"free", "reserved", "receiving", "held", "sending", "quarantined"}

// String gives the metric label.
func (st State) String() string { return stateNames[st] }

// Slot is room for the KV of one request.
type Slot struct {
	a     *Arena
	name  string
	room  int // tokens
	mem   *nixl.Memory
	ln    net.Listener
	port  int
	wake  chan struct{} // of one place, for keep: the slot may be ready to come back. Never closed
	grace time.Duration // calmGrace

	mu      sync.Mutex
	state   State
	books   *tilert.Receiver
	kv      *KV       // of the present request
	end     *endpoint // nil while it is being replaced
	old     *endpoint // that is being replaced: there until its agent is closed
	visits  map[*visit]struct{}
	writers int   // connections that were let in and have not left
	open    int   // writes to nodes whose end is not known
	suspect error // a rank left without its done since the endpoint was made: it may still be writing
}

func newSlot(a *Arena, i, room int) *Slot {
	return &Slot{
		a: a, name: fmt.Sprintf("slot-%d", i), room: room, wake: make(chan struct{}, 1), grace: calmGrace, visits: map[*visit]struct{}{},
		books: tilert.NewReceiver(tilert.ReceiverOptions{Senders: a.o.Senders, MaxSeqLen: room}),
	}
}

// Name is for logs and labels.
func (s *Slot) Name() string { return s.name }

// Host is where the prefill node finds the slot: the tilert_host of its kv_transfer_params.
func (s *Slot) Host() string { return s.a.o.Host }

// CtrlPort is the slot's control port: the tilert_ctrl_port of the kv_transfer_params.
func (s *Slot) CtrlPort() int { return s.port }

// MaxSeqLen is the longest prompt that the slot takes, in tokens. A sender with a longer one leaves without a word, so Receive would wait in vain.
func (s *Slot) MaxSeqLen() int { return s.room }

// State is what the slot is doing.
func (s *Slot) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Expect gives the slot to a request, before its prefill is asked. rid is the name under which its KV should come: the id that prefill is told.
// Another one is let in as well until prefill is known to keep such ids; with an empty rid, any. A slot that is not Free is ErrNotFree.
// The caller owns the KV and must Release it.
func (s *Slot) Expect(rid string) (*KV, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.a.ctx.Err() != nil:
		return nil, fmt.Errorf("staging %s: %w", s.name, ErrClosed)
	case s.state != Free:
		return nil, fmt.Errorf("staging %s: %w, it is %s", s.name, ErrNotFree, s.state)
	}
	s.kv = &KV{s: s, expected: rid, changed: make(chan struct{}, 1)}
	if rid != "" {
		s.books.Expect(rid)
	}
	s.setLocked(Reserved)
	return s.kv, nil
}

func (s *Slot) setLocked(st State) {
	if s.state == st {
		return
	}
	s.state = st
	if s.a.o.Observe.State != nil {
		s.a.o.Observe.State(s, st)
	}
}

// calmLocked tells whether all transfers into and out of the slot have ended.
func (s *Slot) calmLocked() bool { return s.writers == 0 && s.open == 0 }

// nudge has keep look at the slot.
func (s *Slot) nudge() {
	select {
	case s.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// freeLocked ends the request's hold on the slot.
func (s *Slot) freeLocked(kv *KV) {
	s.kv = nil
	now := time.Now()
	for _, rid := range []string{kv.expected, kv.rid, kv.in.ridOf()} {
		if rid != "" {
			s.books.Release(now, rid)
		}
	}
	if s.calmLocked() && s.suspect == nil {
		s.setLocked(Free)
		return
	}
	s.setLocked(Quarantined)
	s.nudge()
}
