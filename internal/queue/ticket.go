package queue

import (
	"sync/atomic"
	"time"
)

// reach is how far before its call a request may have arrived. It is longer than a process goes without the processor,
// and keeps a clock that was set from putting anybody before more than those who came in that time.
const reach = 10 * time.Second

// Tickets gives them out, for one queue or for several that share it.
type Tickets struct {
	epoch time.Time
	turns atomic.Uint64 // given so far
}

// NewTickets returns one that has given none.
func NewTickets() *Tickets { return &Tickets{epoch: time.Now()} }

// Ticket is a place in the line. The older of two arrived first, or called first when both arrived at once. The zero
// Ticket is none. Those of one Tickets may be compared.
type Ticket struct {
	arrived time.Duration // since the epoch
	turn    uint64        // counts tickets as they are given, from 1
}

func (t Ticket) given() bool { return t.turn > 0 }

func (t Ticket) before(u Ticket) bool {
	return t.arrived < u.arrived || t.arrived == u.arrived && t.turn < u.turn
}

// ticketLocked is the ticket that want brings, or a new one for a call at start.
func (q *Queue) ticketLocked(want Want, start time.Time) Ticket {
	if want.Ticket.given() {
		return want.Ticket
	}
	t := q.o.Tickets
	now := start.Sub(t.epoch)
	arrived := now
	if !want.Arrived.IsZero() {
		arrived = min(max(want.Arrived.Sub(t.epoch), now-reach, 0), now)
	}
	return Ticket{arrived, t.turns.Add(1)}
}
