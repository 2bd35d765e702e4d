package status

import (
	"slices"
	"time"

	"pd-router/internal/metrics"
	"pd-router/internal/router"
)

// estimate is in how long each shown waiter gets a slot, if slots are held as long as they were lately and every node can
// serve every request. It is nil when nothing can be said: no slot was given back yet, none is up, or none is given out.
func estimate(v *router.Look) []time.Duration {
	if len(v.Holds) == 0 || len(v.Waiters) == 0 || v.Line.Paused || v.Line.Draining {
		return nil
	}
	mean := meanOf(v.Holds)
	var free []time.Duration // in how long each slot is free
	for i := range v.Slots {
		switch s := &v.Slots[i]; {
		case s.Phase == metrics.SlotDown || !s.Up:
		case s.Taken.IsZero():
			free = append(free, 0)
		default:
			free = append(free, rest(v.Holds, mean, v.At.Sub(s.Taken)))
		}
	}
	if len(free) == 0 {
		return nil
	}
	out := make([]time.Duration, len(v.Waiters))
	for i := range out {
		next := slices.Index(free, slices.Min(free))
		out[i] = free[next]
		free[next] += mean
	}
	return out
}

// rest is how much longer a slot is held that has been for so long: the mean of what was left of longer holds. One that
// outlasts them all has told nothing; it counts as begun anew.
func rest(holds []time.Duration, mean, held time.Duration) time.Duration {
	var longer []time.Duration
	for _, h := range holds {
		if h > held {
			longer = append(longer, h-held)
		}
	}
	if len(longer) == 0 {
		return mean
	}
	return meanOf(longer)
}

func meanOf(all []time.Duration) time.Duration {
	var sum time.Duration
	for _, d := range all {
		sum += d
	}
	return sum / time.Duration(len(all))
}
