package queue

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// model is the queue as one would explain it on a blackboard: plain lists that are searched from end to end, no
// concurrency, indices in place of pointers. TestQueueIsItsModel compares the two.
type model struct {
	o               Options
	now             time.Duration // since the start of the test
	slots           []modelSlot
	calls           []modelCall
	turns           uint64
	frees           int // counts how often a slot became free, to order the free ones
	paused          bool
	drained         bool
	grantsCanBounce bool // a cancelled call gives back what it was granted in the same step
}

type modelSlot struct {
	traits        Traits
	down, removed bool
	owner         int // a call, or none
	settling      bool
	freed         int
}

type modelCall struct {
	want     Want          // Avoid is not used
	late     time.Duration // how long before the call the request had arrived; less than 0 is in the future
	avoid    int           // a slot, or none
	since    time.Duration
	deadline time.Duration
	ticket   Ticket
	waiting  bool
	err      error
	slot     int // what it was granted; meaningful when neither waiting nor failed
	fresh    bool
	released bool
	spent    bool // its ticket is in use by a later call
}

const none = -1

func (m *model) clone() *model {
	c := *m
	c.slots, c.calls = slices.Clone(m.slots), slices.Clone(m.calls)
	return &c
}

func (m *model) fits(c, s int) bool {
	return m.slots[s].traits&m.calls[c].want.Needs == m.calls[c].want.Needs && m.calls[c].avoid != s
}

func (m *model) isFree(s int) bool {
	return m.slots[s].owner == none && !m.slots[s].down && !m.slots[s].removed
}

// freeOnes lists the free slots, longest idle first.
func (m *model) freeOnes() []int {
	var list []int
	for s := range m.slots {
		if m.isFree(s) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b int) int { return m.slots[a].freed - m.slots[b].freed })
	return list
}

// line lists the waiting calls, oldest ticket first.
func (m *model) line() []int {
	var list []int
	for c := range m.calls {
		if m.calls[c].waiting {
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(a, b int) int {
		x, y := m.calls[a].ticket, m.calls[b].ticket
		return cmp.Or(cmp.Compare(x.arrived, y.arrived), cmp.Compare(x.turn, y.turn))
	})
	return list
}

func (m *model) bytes() (sum int64) {
	for _, c := range m.line() {
		sum += m.calls[c].want.Bytes
	}
	return sum
}

// oldest is the longest wait so far.
func (m *model) oldest() (age time.Duration) {
	for _, c := range m.line() {
		age = max(age, m.now-m.calls[c].since)
	}
	return age
}

func (m *model) end(c int, err error) { m.calls[c].waiting, m.calls[c].err = false, err }

func (m *model) grant(c, s int) {
	m.calls[c].waiting, m.calls[c].slot, m.calls[c].fresh = false, s, true
	m.slots[s].owner, m.slots[s].settling = c, false
}

// deal gives every waiter in turn the free slot that it fits and that was idle longest.
func (m *model) deal() {
	for _, c := range m.line() {
		if s := m.bestFor(c); s != none {
			m.grant(c, s)
		}
	}
}

func (m *model) bestFor(c int) int {
	if !m.paused {
		for _, s := range m.freeOnes() {
			if m.fits(c, s) {
				return s
			}
		}
	}
	return none
}

// freed notes that s may have become free just now.
func (m *model) freed(s int) {
	m.frees++
	m.slots[s].freed = m.frees
	m.deal()
}

func (m *model) acquire(c int) {
	call := &m.calls[c]
	bound := call.want.Bound
	settling := false
	for s, slot := range m.slots {
		settling = settling || slot.owner != none && slot.settling && !slot.down && !slot.removed && m.fits(c, s)
	}
	if bound == 0 && settling {
		bound = m.o.SettleGrace
	}
	place := func() {
		if call.ticket = call.want.Ticket; call.ticket == (Ticket{}) {
			m.turns++
			call.ticket = Ticket{m.now - min(max(call.late, 0), reach, m.now), m.turns}
		}
	}
	switch s := m.bestFor(c); {
	case m.drained:
		call.err = ErrDraining
	case s != none:
		place()
		m.grant(c, s)
	case bound == 0:
		call.err = ErrBusy
	case call.want.Ticket == (Ticket{}) && len(m.line()) >= m.o.MaxWaiters:
		call.err = ErrFullCount
	case call.want.Ticket == (Ticket{}) && m.bytes()+call.want.Bytes > m.o.MaxBytes:
		call.err = ErrFullBytes
	default:
		place()
		call.waiting, call.since, call.deadline = true, m.now, m.now+bound
	}
}

func (m *model) cancel(c int) {
	switch call := &m.calls[c]; {
	case call.waiting:
		m.end(c, errGone)
	case call.err == nil && call.fresh && m.grantsCanBounce:
		call.err = errGone
		m.release(c)
	}
}

func (m *model) expire(c int) {
	if m.calls[c].waiting {
		m.end(c, ErrExpired)
		if m.calls[c].want.Bound == 0 {
			m.calls[c].err = ErrBusy
		}
	}
}

func (m *model) release(c int) {
	m.calls[c].released = true
	if s := m.calls[c].slot; m.slots[s].owner == c {
		m.slots[s].owner = none
		if m.isFree(s) {
			m.freed(s)
		}
	}
}

func (m *model) settle(c int) {
	if s := m.calls[c].slot; m.slots[s].owner == c {
		m.slots[s].settling = true
	}
}

func (m *model) add(t Traits) {
	m.slots = append(m.slots, modelSlot{traits: t, owner: none})
	m.freed(len(m.slots) - 1)
}

func (m *model) up(s int) {
	if m.slots[s].down {
		m.slots[s].down = false
		if m.isFree(s) {
			m.freed(s)
		}
	}
}

func (m *model) drain() {
	m.drained = true
	for _, c := range m.line() {
		m.end(c, ErrDraining)
	}
}

// pass moves the clock on; what expires on the way ends in the order of the deadlines.
func (m *model) pass(d time.Duration) {
	m.now += d
	for _, c := range m.line() {
		if m.calls[c].deadline <= m.now {
			m.expire(c)
		}
	}
}

// next is the waiter whose bound ends next, unless two end at the same time.
func (m *model) next() (call int, in time.Duration, ok bool) {
	call = none
	for _, c := range m.line() {
		switch d := m.calls[c].deadline; {
		case call == none || d < m.calls[call].deadline:
			call, ok = c, true
		case d == m.calls[call].deadline:
			ok = false
		}
	}
	if call == none {
		return none, 0, false
	}
	return call, m.calls[call].deadline - m.now, ok
}

// view is all that can be seen of a queue and its calls, as text.
type view struct{ strings.Builder }

func (v *view) waits(c int)             { fmt.Fprintf(v, "call %d waits\n", c) }
func (v *view) failed(c int, err error) { fmt.Fprintf(v, "call %d: %v\n", c, err) }
func (v *view) granted(c int, slot string, ticket Ticket) {
	fmt.Fprintf(v, "call %d: slot %s, ticket %v\n", c, slot, ticket)
}

func (m *model) view() string {
	var v view
	for c, call := range m.calls {
		switch {
		case call.waiting:
			v.waits(c)
		case call.err != nil:
			v.failed(c, call.err)
		default:
			v.granted(c, fmt.Sprint(call.slot), call.ticket)
		}
	}
	for s, slot := range m.slots {
		if slot.removed {
			continue
		}
		state := Free
		switch {
		case slot.owner != none && slot.settling:
			state = Settling
		case slot.owner != none:
			state = Busy
		case slot.down:
			state = Down
		}
		fmt.Fprintf(&v, "slot %d %v %v\n", s, state, slot.down)
	}
	fmt.Fprintf(&v, "free %v bytes %d oldest %v line", m.freeOnes(), m.bytes(), m.oldest())
	for _, c := range m.line() {
		fmt.Fprintf(&v, " %v(%d)", m.calls[c].ticket, m.calls[c].want.Bytes)
	}
	return v.String()
}
