package queue

// Place is how many waiters stand before the ticket, counted up to limit, in time in proportion to limit and not to the
// line. Waiters that the ticket's own slot does not fit are counted too.
func (q *Queue) Place(ticket Ticket, limit int) (before int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, ln := range q.line.lanes {
		for w := ln.first(); w != nil && w.ticket.before(ticket); w = ln.after(w) {
			if before++; before >= limit {
				return before
			}
		}
	}
	return before
}
