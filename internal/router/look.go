package router

import (
	"time"

	"pd-router/internal/metrics"
	"pd-router/internal/queue"
	"pd-router/internal/staging"
)

// Look is what a status page shows of the router at one moment. It belongs to the caller.
type Look struct {
	At       time.Time
	Ready    bool     // all that must answer once has done so
	Missing  []string // what is missing now, for people
	Line     queue.Stats
	Waiters  []queue.WaiterRow // the first of the line
	MaxCount int               // bounds of the line
	MaxBytes int64
	Prefill  PrefillLook
	Arena    *ArenaLook // nil with direct handoff
	Slots    []SlotLook
	Finished []Finished      // oldest first
	Ended    int             // requests that ended in the last whole minute
	Refused  int             // and those of them that got 429
	Holds    []time.Duration // how long slots were held lately
}

// PrefillLook is the prefill node.
type PrefillLook struct {
	Addr string
	Up   bool
	Sick string // what its own health page complains about, "" for nothing
}

// ArenaLook is the arena of a staged router.
type ArenaLook struct {
	Slots [staging.NumStates]int // how many are in each state
	Bytes int64                  // memory of all slots
	Ready int                    // of those who wait: with their KV complete, or on their way past the arena as no slot has room for their prompt
}

// SlotLook is one decode node with its slot.
type SlotLook struct {
	Node    string
	Up      bool
	Phase   metrics.SlotState
	Since   time.Time // when Phase began
	Taken   time.Time // when the present holder got the slot; zero when nobody holds it
	RID     string    // of the holder, "" before prefill has told it
	Tokens  int       // that the node has sent of the present reply
	KVUsage float64   // of the longest sequence that the node takes, 0 to 1
	From    int64     // unix second of Seconds[0]
	Seconds []Second  // at most Window of them, all over
}

// Look gives the present moment with the first waiters of the line. It costs the same however long the line is.
func (r *Router) Look(waiters int) Look {
	v := Look{
		At: time.Now(), Ready: r.WasReady(), Missing: r.Missing(),
		Line: r.Stats(), Waiters: r.waiters(waiters),
		MaxCount: r.opts.QueueMax, MaxBytes: r.opts.QueueMaxBytes,
		Prefill: PrefillLook{Addr: r.prefill.Addr(), Up: r.prefill.Up(), Sick: r.prefill.Sick()},
		Slots:   make([]SlotLook, len(r.backends)),
	}
	if r.arena != nil {
		v.Arena = &ArenaLook{Ready: min(r.queue.Stats().Waiting, v.Line.Waiting)} // of a later moment than Line
		v.Arena.Slots, v.Arena.Bytes = r.arena.states()
	}
	for i, be := range r.backends {
		v.Holds = be.look(&v.Slots[i], v.Holds)
		v.Slots[i].KVUsage = be.kvUsage(r.window(be))
	}
	var minute tally
	v.Finished, minute = r.journal.read(v.At)
	v.Ended, v.Refused = minute.ended, minute.refused
	return v
}

// look fills s, and adds the slot's holds to holds.
func (be *backend) look(s *SlotLook, holds []time.Duration) []time.Duration {
	up := be.Up()
	now := time.Now()
	t := &be.track
	t.mu.Lock()
	defer t.mu.Unlock()
	be.accountLocked(now)
	*s = SlotLook{
		Node: be.slot.Name(), Up: up, Phase: t.shown(), Since: t.since, Taken: t.taken, RID: t.rid, Tokens: t.told,
	}
	s.From, s.Seconds = t.wholeSeconds(now)
	return append(holds, t.holds[:min(t.held, keptHolds)]...)
}
