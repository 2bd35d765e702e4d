package router

import "pd-router/internal/queue"

// A staged router has two lines: before its arena, and before the decode slots with the KV ready. To whoever looks they are one.

// Stats are the decode slots and all that wait, at one moment.
func (r *Router) Stats() queue.Stats {
	st := r.queue.Stats()
	if r.arena != nil {
		line := r.line.Stats()
		st.Waiting += line.Waiting
		st.Bytes += line.Bytes
		st.Oldest = max(st.Oldest, line.Oldest)
		st.Paused = line.Paused
	}
	return st
}

// waiters are the first n that wait: those whose KV is ready before all others.
func (r *Router) waiters(n int) []queue.WaiterRow {
	rows := r.queue.Waiters(n)
	if r.arena != nil {
		rows = append(rows, r.line.Waiters(n-len(rows))...)
	}
	return rows
}

// before is how many wait before the ticket, up to tellLimit.
func (r *Router) before(ticket queue.Ticket) int {
	n := r.queue.Place(ticket, tellLimit)
	if r.arena != nil && n < tellLimit {
		n += r.line.Place(ticket, tellLimit-n)
	}
	return n
}
