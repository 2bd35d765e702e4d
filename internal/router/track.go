package router

import (
	"sync"
	"time"

	"pd-router/internal/engine"
	"pd-router/internal/metrics"
)

// Window is how many seconds of a slot's past are remembered.
const Window = 300

// NumPhases sizes tables by what a slot is held for, metrics.SlotFree to metrics.SlotDown.
const NumPhases = metrics.SlotDown + 1

// keptHolds is how many of a slot's last holds are remembered: enough for a mean, few enough to follow a change of load.
const keptHolds = 16

// Second is what a slot did in one second.
type Second struct {
	Spent  [NumPhases]uint16 // milliseconds in each phase
	Tokens uint32            // that the node sent
}

// track is the recent past of one slot. A change of phase writes it, a look brings it up to date: nothing runs in
// between, and a token costs nothing.
type track struct {
	mu     sync.Mutex
	phase  metrics.SlotState
	up     bool
	since  time.Time // when what is shown now began
	taken  time.Time // when the present holder got the slot; zero when nobody holds it
	rid    string    // of the holder, once prefill has told it
	prompt int       // tokens that the holder's sequence began with
	told   int       // tokens of it that are accounted for

	first   int64 // unix millisecond from which on anything is known
	upTo    int64 // and the one up to which all is accounted for
	seconds [Window + 1]struct {
		at int64 // unix second; another one than asked for: the space was not used since
		Second
	}
	holds [keptHolds]time.Duration
	held  int // holds that ended
}

// begin starts the record of a slot whose node has not answered yet.
func (be *backend) begin() {
	t := &be.track
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since = time.Now()
	t.first = t.since.UnixMilli()
	t.upTo = t.first
}

// enter is the one place where a slot changes its phase, for the metrics and for the status page. p is what prefill
// has told of the holder, nil before it has and where nothing new is known.
func (be *backend) enter(s metrics.SlotState, p *engine.Prefilled) {
	be.meter.Enter(s)
	now := time.Now()
	t := &be.track
	t.mu.Lock()
	defer t.mu.Unlock()
	be.accountLocked(now)
	t.phase, t.since = s, now
	switch {
	case s == metrics.SlotFree:
		if !t.taken.IsZero() {
			t.holds[t.held%keptHolds] = now.Sub(t.taken)
			t.held++
		}
		t.taken, t.rid, t.prompt, t.told = time.Time{}, "", 0, 0
		return
	case t.taken.IsZero(): // by its first phase, which is not prefill for a request that was prefilled ahead
		t.taken = now
	}
	if p != nil {
		t.rid, t.prompt = p.RID, p.PromptTokens
	}
}

// heard notes whether the node answers.
func (be *backend) heard(up bool) {
	now := time.Now()
	t := &be.track
	t.mu.Lock()
	defer t.mu.Unlock()
	be.accountLocked(now)
	if t.up != up && t.phase == metrics.SlotFree {
		t.since = now
	}
	t.up = up
}

// endSequence notes the last tokens of a sequence whose node works on it no longer.
func (be *backend) endSequence() {
	be.track.mu.Lock()
	defer be.track.mu.Unlock()
	be.accountLocked(time.Now())
	be.sequence.Store(0)
}

// shown is the phase as people see it.
func (t *track) shown() metrics.SlotState {
	if t.phase == metrics.SlotFree && !t.up {
		return metrics.SlotDown
	}
	return t.phase
}

// newTokensLocked is how many tokens came since it was last asked.
func (be *backend) newTokensLocked() int {
	t := &be.track
	n := max(int(be.sequence.Load())-t.prompt-t.told, 0) // the sequence is 0 before its first token
	t.told += n
	return n
}

// accountLocked books the time since the last call to the present phase, and spreads the tokens that came over it. It takes
// Window+1 steps at most, however long ago that was.
func (be *backend) accountLocked(now time.Time) {
	t := &be.track
	from, to := t.upTo, now.UnixMilli()
	t.upTo = to
	tokens := int64(be.newTokensLocked())
	if from >= to { // the same millisecond, or a clock that was set back
		t.second(to / 1000).Tokens += uint32(tokens)
		return
	}
	phase, length := t.shown(), to-from
	at := max(from, (to/1000-Window)*1000)
	booked := tokens * (at - from) / length // what came before the window is forgotten
	for at < to {
		next := min(to, (at/1000+1)*1000)
		s := t.second(at / 1000)
		s.Spent[phase] = uint16(min(1000, int64(s.Spent[phase])+next-at))
		due := tokens * (next - from) / length
		s.Tokens += uint32(due - booked)
		at, booked = next, due
	}
}

// second is the space of one second, emptied when it held an older one.
func (t *track) second(at int64) *Second {
	s := &t.seconds[at%int64(len(t.seconds))]
	if s.at != at {
		s.at, s.Second = at, Second{}
	}
	return &s.Second
}

// wholeSeconds are the seconds that are over, oldest first, and the unix second of the first.
func (t *track) wholeSeconds(now time.Time) (from int64, all []Second) {
	to := now.UnixMilli() / 1000
	from = min(to, max(to-Window, t.first/1000))
	all = make([]Second, 0, to-from)
	for at := from; at < to; at++ {
		s := t.seconds[at%int64(len(t.seconds))]
		if s.at != at {
			s.Second = Second{} // the clock jumped over it
		}
		all = append(all, s.Second)
	}
	return from, all
}
