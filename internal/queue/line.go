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

	ticket uint64
	again  bool // came with the ticket of an earlier lease
	bytes  int64
	since  time.Time // the call of Acquire
	bound  time.Duration

	// done is closed by whoever takes the waiter out with an answer: lease, or nil for ErrDraining.
	done  chan struct{}
	lease *Lease
}

// line is all waiters, in one lane per class, each sorted by ticket. The oldest waiter that fits a slot is then
// the lowest among the first ones of the lanes that fit, however long they are. There are no more lanes than
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
	root waiter // stands between the last and the first, and is neither; its ticket is 0
}

// join puts w into the lane of c, behind those with the same ticket or a lower one. A new ticket is the highest
// of all and goes straight to the end; an old one comes from the front, past those still older.
func (l *line) join(w *waiter, c class) {
	ln := l.lane(c)
	next := &ln.root
	if w.ticket < ln.root.prev.ticket {
		for next = ln.root.next; next.ticket <= w.ticket; {
			next = next.next
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

// oldest is the waiter with the lowest ticket of those that fit s, or nil.
func (l *line) oldest(s *Slot) *waiter {
	var oldest *waiter
	for _, ln := range l.lanes {
		if ln.fits(s) && (oldest == nil || ln.first().ticket < oldest.ticket) {
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
