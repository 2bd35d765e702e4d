package queue

import (
	"fmt"
	"slices"
)

// Traits are what a node can do, as a set of bits; what a bit means is the caller's. A waiter is only given a slot
// that has all that it needs.
type Traits uint32

// Slot is room for one request on a decode node.
type Slot struct {
	q    *Queue
	name string

	// All below is guarded by q.mu.
	traits  Traits
	lease   *Lease // the present owner, nil when nobody has it
	next    *Lease // given ahead: the owner after lease; only beside one
	down    bool
	removed bool
}

// Name is what Add was given.
func (s *Slot) Name() string { return s.name }

// SetTraits replaces what the slot can do. A running lease goes on; the next one is granted by t.
func (s *Slot) SetTraits(t Traits) {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	s.traits = t
	s.q.offerFreeLocked()
	s.offerAheadLocked()
}

// Down keeps the slot from being given out until Up. A running lease goes on.
func (s *Slot) Down() {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	s.down = true
	s.withdrawLocked()
}

// Up ends Down and offers the slot at once when nobody has it.
func (s *Slot) Up() {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	if s.down {
		s.down = false
		s.returnLocked()
		s.offerAheadLocked()
	}
}

// Remove takes the slot out of the queue for good. A running lease goes on.
func (s *Slot) Remove() {
	s.q.mu.Lock()
	defer s.q.mu.Unlock()
	s.removed = true
	s.withdrawLocked()
	s.q.slots = without(s.q.slots, s)
}

func (s *Slot) withdrawLocked() { s.q.free = without(s.q.free, s) }

// returnLocked offers the slot if it may be given out.
func (s *Slot) returnLocked() {
	if s.lease == nil && !s.down && !s.removed {
		s.q.offerLocked(s)
	}
}

// without drops s from list, which may lack it.
func without(list []*Slot, s *Slot) []*Slot {
	if i := slices.Index(list, s); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// State is what a slot is doing.
type State uint8

const (
	Free      State = iota // may be given out
	Busy                   // leased
	Settling               // leased, but its request has ended: free as soon as the node is idle
	Down                   // not given out, and not leased
	NumStates              // sizes tables
)

var stateNames = [NumStates]string{"free", "busy", "settling", "down"}

// String gives the metric label.
func (st State) String() string {
	if st < NumStates {
		return stateNames[st]
	}
	return fmt.Sprintf("state(%d)", uint8(st))
}

func (s *Slot) stateLocked() State {
	switch {
	case s.lease != nil && s.lease.settling:
		return Settling
	case s.lease != nil:
		return Busy
	case s.down:
		return Down
	}
	return Free
}
