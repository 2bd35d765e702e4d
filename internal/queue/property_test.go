package queue

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// action is one thing that happens to the queue and to its model. An async one takes effect on another goroutine,
// so before or after what is done next.
type action struct {
	name  string
	async bool
	real  func()
	model func(*model)
}

// machine drives the queue and the model side by side.
type machine struct {
	t        *rapid.T
	q        *Queue
	m        *model
	slots    []*Slot
	calls    []*call
	observed [NumOutcomes]int
}

// TestQueueIsItsModel takes random steps of one or two actions. Two are done without letting the other goroutines
// settle in between; what can be seen afterwards must be what the model says for one order of the two.
func TestQueueIsItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			o := Options{MaxWaiters: 5, MaxBytes: 8000, SettleGrace: time.Second}
			x := &machine{t: t, m: &model{o: o}}
			outcomes := make(chan Outcome, 1024)
			o.Observe = func(o Outcome, _ time.Duration) { outcomes <- o }
			x.q = New(o)
			defer synctest.Wait()
			defer x.q.Drain() // a failed step too must end its goroutines
			for range rapid.IntRange(1, 80).Draw(t, "steps") {
				x.step()
				for len(outcomes) > 0 {
					x.observed[<-outcomes]++
				}
				x.check()
			}
		})
	})
}

func (x *machine) step() {
	a := x.draw("first")
	pair := rapid.IntRange(0, 2).Draw(x.t, "pair") > 0
	b := action{real: func() {}, model: func(*model) {}}
	if pair {
		b = x.draw("second")
	}
	a.real()
	b.real()
	synctest.Wait()

	for c := range x.m.calls {
		x.m.calls[c].fresh = false
	}
	outcome := func(bounce bool, actions ...action) *model {
		m := x.m.clone()
		m.grantsCanBounce = bounce
		for _, act := range actions {
			act.model(m)
		}
		return m
	}
	// One after the other; or so, but a call that was granted and cancelled within the step had not seen its grant yet
	// and gives it back; or, when the first was still on its way, the other way round.
	may := []*model{outcome(false, a, b)}
	if pair {
		may = append(may, outcome(true, a, b))
	}
	if pair && a.async {
		may = append(may, outcome(true, b, a))
	}
	got := x.view()
	for _, m := range may {
		if m.view() == got {
			x.m = m
			return
		}
	}
	text := got
	for _, m := range may {
		text += "\n-- but may show\n" + m.view()
	}
	x.t.Fatalf("after %s, %s the queue shows\n%s", a.name, b.name, text)
}

// draw picks an action that makes sense now. Its targets are fixed before it is done.
func (x *machine) draw(label string) action {
	var bag []func() action
	add := func(weight int, draw func() action) {
		for range weight {
			bag = append(bag, draw)
		}
	}
	x.queueActions(add)
	x.slotActions(add)
	x.callActions(add)
	if label == "first" {
		x.timeActions(add)
	}
	return bag[rapid.IntRange(0, len(bag)-1).Draw(x.t, label)]()
}

func (x *machine) one(list []int) int { return rapid.SampledFrom(list).Draw(x.t, "target") }

func (x *machine) traits() Traits { return Traits(rapid.IntRange(0, 3).Draw(x.t, "traits")) }

func (x *machine) queueActions(add func(int, func() action)) {
	add(1, func() action {
		return action{name: "pause", real: x.q.Pause, model: func(m *model) { m.paused = true }}
	})
	add(3, func() action {
		return action{name: "resume", real: x.q.Resume, model: func(m *model) { m.paused = false; m.deal() }}
	})
	if rapid.IntRange(0, 60).Draw(x.t, "drain") == 60 {
		add(2, func() action { return action{name: "drain", real: x.q.Drain, model: (*model).drain} })
	}
	add(2, func() action {
		tr := x.traits()
		return action{
			name:  fmt.Sprint("add with traits ", tr),
			real:  func() { x.slots = append(x.slots, x.q.Add(fmt.Sprint(len(x.slots)), tr)) },
			model: func(m *model) { m.add(tr) },
		}
	})
}

func (x *machine) slotActions(add func(int, func() action)) {
	if len(x.slots) == 0 {
		return
	}
	on := func(name string, real func(*Slot), naive func(*model, int)) action {
		s := rapid.IntRange(0, len(x.slots)-1).Draw(x.t, "slot") // removed ones too: nothing must come of it
		return action{
			name: fmt.Sprint(name, " ", s), real: func() { real(x.slots[s]) }, model: func(m *model) { naive(m, s) },
		}
	}
	add(2, func() action { return on("down", (*Slot).Down, func(m *model, s int) { m.slots[s].down = true }) })
	add(4, func() action { return on("up", (*Slot).Up, (*model).up) })
	add(1, func() action {
		return on("remove", (*Slot).Remove, func(m *model, s int) { m.slots[s].removed = true })
	})
	add(2, func() action {
		tr := x.traits()
		return on(fmt.Sprint("traits ", tr, " of"), func(s *Slot) { s.SetTraits(tr) },
			func(m *model, s int) { m.slots[s].traits = tr; m.deal() })
	})
}

func (x *machine) callActions(add func(int, func() action)) {
	var held, over, spare []int
	for c, call := range x.m.calls {
		switch {
		case call.slot == none || call.err != nil:
			continue
		case call.released:
			over = append(over, c)
		default:
			held = append(held, c)
		}
		if !call.spent {
			spare = append(spare, c)
		}
	}
	on := func(name string, list []int, real func(*Lease), naive func(*model, int)) action {
		c := x.one(list)
		return action{
			name: fmt.Sprint(name, " ", c), real: func() { real(x.calls[c].lease) }, model: func(m *model) { naive(m, c) },
		}
	}
	add(12, func() action { return x.acquire(spare) })
	if waiting := x.m.line(); len(waiting) > 0 {
		add(6, func() action {
			c := x.one(waiting)
			return action{
				name: fmt.Sprint("cancel ", c), async: true, real: x.calls[c].gone, model: func(m *model) { m.cancel(c) },
			}
		})
	}
	if len(held) > 0 {
		add(10, func() action { return on("release", held, (*Lease).Release, (*model).release) })
		add(4, func() action { return on("settle", held, (*Lease).Settle, (*model).settle) })
	}
	if len(over) > 0 {
		add(1, func() action { return on("release again", over, (*Lease).Release, (*model).release) })
		add(1, func() action { return on("settle too late", over, (*Lease).Settle, (*model).settle) })
	}
}

func (x *machine) timeActions(add func(int, func() action)) {
	add(1, func() action {
		d := time.Duration(rapid.IntRange(1, 4000).Draw(x.t, "ms")) * time.Millisecond
		return action{
			name:  fmt.Sprint("sleep ", d),
			real:  func() { time.Sleep(d); synctest.Wait() },
			model: func(m *model) { m.pass(d) },
		}
	})
	if c, in, ok := x.m.next(); ok {
		add(4, func() action {
			x.m.now += in // whichever of the two actions comes first
			return action{
				name: fmt.Sprint("expire ", c), async: true, real: func() { time.Sleep(in) }, model: func(m *model) { m.expire(c) },
			}
		})
	}
}

// acquire is a new call, sometimes with the ticket of an earlier lease: held, then for another slot, or over.
func (x *machine) acquire(spare []int) action {
	t, id := x.t, len(x.m.calls)
	c := modelCall{avoid: none, slot: none, want: Want{
		Bound: rapid.SampledFrom([]time.Duration{0, time.Second, 3 * time.Second, long, long}).Draw(t, "bound"),
		Bytes: 1000*rapid.Int64Range(0, 3).Draw(t, "bytes") + int64(id), // no two alike: the line shows who is who
		Needs: Traits(rapid.SampledFrom([]int{0, 0, 1, 2, 3}).Draw(t, "needs")),
	}}
	if len(spare) > 0 && rapid.IntRange(0, 3).Draw(t, "again") == 0 {
		from := &x.m.calls[rapid.SampledFrom(spare).Draw(t, "ticket of")]
		from.spent = true
		c.want.Ticket = from.ticket
		if !from.released {
			c.avoid = from.slot
		}
	}
	c.late = rapid.SampledFrom([]time.Duration{0, 0, -time.Second, time.Millisecond, time.Second, reach - 1, 2 * reach}).Draw(t, "late")
	x.m.calls = append(x.m.calls, c)
	x.calls = append(x.calls, &call{})
	return action{
		name:  fmt.Sprintf("acquire %d %+v, late by %v", id, c.want, c.late),
		async: true,
		real: func() {
			want := c.want
			if c.late != 0 {
				want.Arrived = time.Now().Add(-c.late)
			}
			if c.avoid != none {
				want.Avoid = x.slots[c.avoid]
			}
			x.calls[id] = begin(x.q, want)
		},
		model: func(m *model) { m.acquire(id) },
	}
}

func (x *machine) view() string {
	var v view
	for c, call := range x.calls {
		switch {
		case !call.ended.Load():
			v.waits(c)
		case call.err != nil:
			v.failed(c, call.err)
		default:
			v.granted(c, call.lease.Slot().Name(), call.lease.Ticket())
		}
	}
	st := x.q.Stats()
	for _, row := range st.Rows {
		fmt.Fprintf(&v, "slot %s %v %v\n", row.Name, row.State, row.Down)
	}
	free := []string{}
	for _, s := range x.q.free {
		free = append(free, s.Name())
	}
	fmt.Fprintf(&v, "free %v bytes %d oldest %v line", free, st.Bytes, st.Oldest)
	for _, w := range x.q.Waiters(1 << 20) {
		fmt.Fprintf(&v, " %v(%d)", w.Ticket, w.Bytes)
	}
	return v.String()
}

// check asserts what needs no model.
func (x *machine) check() {
	sound(x.t, x.q)
	var ended [NumOutcomes]int
	for _, c := range x.calls {
		if c.ended.Load() {
			ended[OutcomeOf(c.err)]++
		}
	}
	if ended != x.observed { // invariant 7
		x.t.Fatalf("calls ended as %v, observed were %v", ended, x.observed)
	}
}
