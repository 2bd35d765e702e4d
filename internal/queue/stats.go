package queue

import "time"

// Stats is the queue at one moment, all parts of the same.
type Stats struct {
	Waiting  int           // requests in the line
	Bytes    int64         // that they hold, by Want.Bytes
	Oldest   time.Duration // the longest that any of them has waited, Want.Waited included
	Paused   bool
	Draining bool
	Slots    [NumStates]int // how many slots are in each state; removed ones are not counted
	Rows     []SlotRow      // each slot, in order of Add
}

// SlotRow is one slot in Stats.
type SlotRow struct {
	Name  string
	State State
	Down  bool // also set while a lease still runs on a slot that is down
}

// Stats takes time in proportion to the number of slots, not of waiters.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	st := Stats{
		Waiting: q.line.waiting, Bytes: q.line.bytes, Oldest: q.ageLocked(time.Now()),
		Paused: q.paused, Draining: q.draining, Rows: make([]SlotRow, len(q.slots)),
	}
	for i, s := range q.slots {
		state := s.stateLocked()
		st.Slots[state]++
		st.Rows[i] = SlotRow{Name: s.name, State: state, Down: s.down}
	}
	return st
}

// WaiterRow is one waiter, as a status page shows it.
type WaiterRow struct {
	Ticket Ticket
	Since  time.Time // the call of Acquire, less Want.Waited
	Bytes  int64
	Needs  Traits
}

// Waiters gives the first of the line, oldest ticket first, at most limit of them. It takes time in proportion to
// limit, not to the line.
func (q *Queue) Waiters(limit int) []WaiterRow {
	q.mu.Lock()
	defer q.mu.Unlock()
	rows := make([]WaiterRow, 0, max(0, min(limit, q.line.waiting)))
	heads := make([]*waiter, len(q.line.lanes)) // the next of each lane
	for i, ln := range q.line.lanes {
		heads[i] = ln.first()
	}
	for len(rows) < cap(rows) {
		next := -1
		for i, w := range heads {
			if w != nil && (next < 0 || w.ticket.before(heads[next].ticket)) {
				next = i
			}
		}
		w := heads[next]
		rows = append(rows, WaiterRow{Ticket: w.ticket, Since: w.since, Bytes: w.bytes, Needs: w.lane.needs})
		heads[next] = w.lane.after(w)
	}
	return rows
}

// ageLocked is how long the one who waited longest has waited. Those in front for their ticket may have called later, when they
// came again or arrived long before their call; nobody behind has called before he arrived.
func (q *Queue) ageLocked(now time.Time) time.Duration {
	oldest := now
	for _, ln := range q.line.lanes {
		for w := ln.first(); w != nil && w.ticket.arrived < oldest.Sub(q.o.Tickets.epoch); w = ln.after(w) {
			if w.since.Before(oldest) {
				oldest = w.since
			}
		}
	}
	return now.Sub(oldest)
}
