package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Buckets in seconds. They reach from what a router adds to what a queue of half an hour makes of it.
var (
	waitBuckets  = []float64{0.001, 0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600}
	phaseBuckets = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}
	tokenBuckets = []float64{0.0005, 0.001, 0.0015, 0.002, 0.0025, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.5, 1}
	addedBuckets = []float64{0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 5, 30}
	bodyBuckets  = []float64{256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20}
)

// histogramOpts ask for classic buckets and, for a Prometheus that takes them, a native histogram, which has about 10 %
// of error at any scale.
func histogramOpts(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  160,
		NativeHistogramMinResetDuration: 0, // a reset would also empty the classic buckets
	}
}

func newHistogram(reg prometheus.Registerer, name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(histogramOpts(name, help, buckets))
	reg.MustRegister(h)
	return h
}

// exemplar observes a time together with the trace that shows it, "" for none.
func exemplar(o prometheus.Observer, d time.Duration, traceID string) {
	if e, ok := o.(prometheus.ExemplarObserver); ok && traceID != "" {
		e.ObserveWithExemplar(max(d, 0).Seconds(), prometheus.Labels{"trace_id": traceID})
		return
	}
	seconds(o, d)
}

// seconds observes a time; one that is negative, by a clock that was set, counts as 0.
func seconds(o prometheus.Observer, d time.Duration) { o.Observe(max(d, 0).Seconds()) }
