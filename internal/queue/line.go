package queue

import "time"

// class is what a waiter can use: all waiters of a class fit the same slots.
type class struct {
	needs Traits
	avoid *Slot
	ahead bool // would begin behind a running lease
}

func (c class) fits(s *Slot) bool { return s.traits&c.needs == c.needs && s != c.avoid }

// waiter is one Acquire that stands in the line or has just been taken out of it. All but bound and done, which
// do not change, is guarded by Queue.mu until done is closed.
type waiter struct {
	lane       *lane // nil when out of the line
	prev, next *waiter

	ticket Ticket
	again  bool // came with the ticket of an earlier lease
	bytes  int64
	since  time.Time // the call of Acquire, less Want.Waited
	bound  time.Duration

	// done is closed by whoever takes the waiter out with an answer: lease, or nil for ErrDraining.
	done  chan struct{}
	lease *Lease
}

// line is all waiters, in one lane per class, each sorted by ticket. The oldest waiter that fits a slot is then
// the oldest among the first ones of the lanes that fit, however long they are. There are no more lanes than
// classes that wait: an empty one is dropped, also so that it does not hold on to the slot that it avoids.
type line struct {
	lanes   []*lane
	waiting int
	bytes   int64
}

// lane is a ring of the waiters of one class. It has at least one.
type lane struct {
	class
	at   int    // its index in line.lanes
	root waiter // stands between the last and the first, and is neither; no ticket is older than its own
}

// join puts w into the lane of c, behind those with the same ticket or an older one. A new ticket nearly always goes
// straight to the end, else back from there, past those that arrived later, within reach; one that comes again comes
// from the front, past those still older.
func (l *line) join(w *waiter, c class) {
	ln := l.lane(c)
	next := &ln.root
	switch {
	case !w.ticket.before(next.prev.ticket):
	case w.again:
		for next = next.next; !w.ticket.before(next.ticket); {
			next = next.next
		}
	default:
		for w.ticket.before(next.prev.ticket) {
			next = next.prev
		}
	}
	w.lane, w.prev, w.next = ln, next.prev, next
	w.prev.next, w.next.prev = w, w
	l.waiting++
	l.bytes += w.bytes
}

// remove takes w, which stands in the line, out of it.
func (l *line) remove(w *waiter) {
	ln := w.lane
	w.prev.next, w.next.prev = w.next, w.prev
	w.lane, w.prev, w.next = nil, nil, nil
	l.waiting--
	l.bytes -= w.bytes
	if ln.first() == nil {
		last := len(l.lanes) - 1
		l.lanes[ln.at] = l.lanes[last]
		l.lanes[ln.at].at = ln.at
		l.lanes[last] = nil
		l.lanes = l.lanes[:last]
	}
}

// oldest is the waiter with the oldest ticket of those that fit s, or nil.
func (l *line) oldest(s *Slot) *waiter {
	var oldest *waiter
	for _, ln := range l.lanes {
		if ln.fits(s) && (oldest == nil || ln.first().ticket.before(oldest.ticket)) {
			oldest = ln.first()
		}
	}
	return oldest
}

// lane finds the lane of c or opens it, empty, for the caller to fill.
func (l *line) lane(c class) *lane {
	for _, ln := range l.lanes {
		if ln.class == c {
			return ln
		}
	}
	ln := &lane{class: c, at: len(l.lanes)}
	ln.root.prev, ln.root.next = &ln.root, &ln.root
	l.lanes = append(l.lanes, ln)
	return ln
}

func (ln *lane) first() *waiter { return ln.after(&ln.root) }

// after is the waiter behind w, or nil.
func (ln *lane) after(w *waiter) *waiter {
	if w.next == &ln.root {
		return nil
	}
	return w.next
}
