package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Queue is what the line reports; its length is State.
type Queue struct {
	waits map[string]prometheus.Observer
	other prometheus.Observer
}

func newQueue(reg prometheus.Registerer, o Options) Queue {
	vec := prometheus.NewHistogramVec(histogramOpts("pd_router_queue_wait_seconds", "How long requests waited for a decode slot, by how the wait ended. "+
		"When granted rises: add decode nodes or lower client concurrency. When others than granted appear: requests are lost, raise --queue-timeout or the limits.", waitBuckets), []string{"outcome"})
	reg.MustRegister(vec)
	q := Queue{waits: map[string]prometheus.Observer{}, other: vec.WithLabelValues(Other)}
	for _, name := range o.WaitOutcomes {
		q.waits[name] = vec.WithLabelValues(name)
	}
	return q
}

// Waited observes one wait and how it ended.
func (q *Queue) Waited(outcome string, d time.Duration) {
	o := q.waits[outcome]
	if o == nil {
		o = q.other
	}
	seconds(o, d)
}
