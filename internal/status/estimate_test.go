package status

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"pd-router/internal/metrics"
	"pd-router/internal/queue"
	"pd-router/internal/router"
)

func TestEstimate(t *testing.T) {
	const s = time.Second
	now := noon
	held := func(d time.Duration) router.SlotLook {
		return router.SlotLook{Up: true, Phase: metrics.SlotDecode, Taken: now.Add(-d)}
	}
	free := router.SlotLook{Up: true}
	down := router.SlotLook{Phase: metrics.SlotDown}
	for _, tc := range []struct {
		name    string
		holds   []time.Duration
		slots   []router.SlotLook
		waiters int
		line    queue.Stats
		want    []time.Duration
	}{
		{"one slot is given on again and again", []time.Duration{4 * s, 4 * s}, []router.SlotLook{held(s)}, 3, queue.Stats{}, []time.Duration{3 * s, 7 * s, 11 * s}},
		{"two slots share the line", []time.Duration{4 * s}, []router.SlotLook{held(s), held(3 * s)}, 4, queue.Stats{}, []time.Duration{s, 3 * s, 5 * s, 7 * s}},
		{"only longer holds tell of a long one", []time.Duration{s, s, 10 * s}, []router.SlotLook{held(4 * s)}, 1, queue.Stats{}, []time.Duration{6 * s}},
		{"one that outlasts all has told nothing", []time.Duration{2 * s, 4 * s}, []router.SlotLook{held(time.Hour)}, 1, queue.Stats{}, []time.Duration{3 * s}},
		{"a slot that is free is given at once", []time.Duration{2 * s}, []router.SlotLook{free}, 1, queue.Stats{}, []time.Duration{0}},
		{"a slot that is down is none", []time.Duration{2 * s}, []router.SlotLook{down, held(s)}, 1, queue.Stats{}, []time.Duration{s}},
		{"a lease that ends on a node that is down frees none", []time.Duration{2 * s}, []router.SlotLook{{Phase: metrics.SlotSettle, Taken: now}}, 1, queue.Stats{}, nil},
		{"all are down", []time.Duration{2 * s}, []router.SlotLook{down}, 1, queue.Stats{}, nil},
		{"no slot was ever given back", nil, []router.SlotLook{held(s)}, 1, queue.Stats{}, nil},
		{"prefill is down", []time.Duration{2 * s}, []router.SlotLook{held(s)}, 1, queue.Stats{Paused: true}, nil},
		{"nobody waits", []time.Duration{2 * s}, []router.SlotLook{held(s)}, 0, queue.Stats{}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := &router.Look{At: now, Holds: tc.holds, Slots: tc.slots, Waiters: make([]queue.WaiterRow, tc.waiters), Line: tc.line}
			assert.Equal(t, tc.want, estimate(v))
		})
	}
}
