package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Arena is what a staged router reports about the KV that it holds itself. A direct one has none: its calls do nothing.
type Arena struct {
	hops        map[string]*hop
	quarantines prometheus.Counter
	overlap     prometheus.Counter
}

// hop is one of the two ways of a request's KV.
type hop struct {
	seconds            prometheus.Observer
	bytes, descriptors prometheus.Counter
	failures           counters
}

func newArena(reg prometheus.Registerer, o Options) Arena {
	if len(o.Hops) == 0 {
		return Arena{}
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		reg.MustRegister(vec)
		return vec
	}
	took := prometheus.NewHistogramVec(histogramOpts("pd_router_kv_transfer_seconds", "Time that the KV of a request took on a hop, in from the prefill node's first rank to its last, out from the first connection to the decode node's yes. "+
		"When in rises, prefill computes longer or its network is full; when out does, decode slots are held for it.", phaseBuckets), []string{"hop"})
	reg.MustRegister(took)
	bytes := counter("pd_router_kv_transfer_bytes_total", "Bytes of KV that came to their end on a hop. By the rate of pd_router_kv_transfer_seconds_sum they are the speed of a transfer: when it falls, look at the network.", "hop")
	descriptors := counter("pd_router_kv_transfer_descriptors_total", "Pieces of memory that those bytes were. Many small ones make a transfer slow: the model's layers and planes set their number.", "hop")
	failures := counter("pd_router_kv_transfer_failures_total", "KV transfers that failed, by hop and reason. unreachable and lost: a node or the network; busy: a decode node's buffer is another router's; forgotten: a decode failed after its KV had come, and prefill makes it again; "+
		"timeout: see the node's log; corrupt: memory of this host changed, which must never be.", "hop", "reason")
	a := Arena{hops: map[string]*hop{}}
	a.quarantines = counter("pd_router_arena_quarantines_total", "Times that a slot of the arena was set aside because the end of a transfer was not known. Each costs seconds of that slot; when it rises, nodes die in the middle of transfers.").WithLabelValues()
	a.overlap = counter("pd_router_overlap_seconds_total", "Time of prefill and transfer that no decode slot was held for. Its rate is what staging wins: decode slots that would have stood idle.").WithLabelValues()
	for _, name := range o.Hops {
		a.hops[name] = &hop{
			seconds: took.WithLabelValues(name), bytes: bytes.WithLabelValues(name), descriptors: descriptors.WithLabelValues(name),
			failures: curry(o.HopReasons, func(reason string) prometheus.Counter { return failures.WithLabelValues(name, reason) }),
		}
	}
	return a
}

// Transferred reports one hop of one request at its end; reason is "" when it succeeded. name must be one of Options.Hops.
func (a *Arena) Transferred(name, reason string, bytes int64, descriptors int, took time.Duration) {
	h := a.hops[name]
	if h == nil {
		return
	}
	if reason != "" {
		h.failures.get(reason).Inc()
		return
	}
	seconds(h.seconds, took)
	h.bytes.Add(float64(bytes))
	h.descriptors.Add(float64(descriptors))
}

// Quarantined counts a slot that is set aside.
func (a *Arena) Quarantined() {
	if a.quarantines != nil {
		a.quarantines.Inc()
	}
}

// Overlapped counts work that was done before its decode slot was granted.
func (a *Arena) Overlapped(d time.Duration) {
	if a.overlap != nil {
		a.overlap.Add(max(d, 0).Seconds())
	}
}
