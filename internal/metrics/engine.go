package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Step is a step of a request on its decode node, as the node itself times it.
type Step uint8

// The steps, in the order in which they come.
const (
	WireWait Step = iota // for the KV
	Convert              // of the KV to the engine's form
	Inject               // into the engine's cache
	Generate             // of the tokens
	numSteps             // sizes tables
)

var stepNames = [numSteps]string{"wire_wait", "convert", "inject", "decode"}

// String is the step as label, and the node's own name for it.
func (s Step) String() string { return stepNames[s] }

// Engine is what decode nodes tell about their work, at the end of each reply.
type Engine struct {
	steps    [numSteps]prometheus.Observer
	accepted prometheus.Histogram
}

var acceptBuckets = []float64{1, 1.25, 1.5, 1.75, 2, 2.25, 2.5, 2.75, 3, 3.5, 4, 5, 6, 8}

func newEngine(reg prometheus.Registerer) Engine {
	e := Engine{accepted: newHistogram(reg, "pd_router_mtp_accepted_tokens", "Mean tokens that one step of speculative decoding gave, one observation for each reply of a node that tells it. "+
		"When it falls, nodes generate slower: the draft layer does not fit the text, or sampling is hotter.", acceptBuckets)}
	steps := prometheus.NewHistogramVec(histogramOpts("pd_router_node_step_seconds", "Time that decode nodes themselves report for the steps of a request, by step. "+
		"wire_wait rises: the KV comes late, look at prefill and the network. convert or inject: the node's host is busy. decode: longer replies or a slower engine.", phaseBuckets), []string{"step"})
	reg.MustRegister(steps)
	for s := range numSteps {
		e.steps[s] = steps.WithLabelValues(s.String())
	}
	return e
}

// Step reports the time of one step.
func (e *Engine) Step(s Step, d time.Duration) { seconds(e.steps[s], d) }

// Accepted reports a reply's mean of tokens for each step of speculative decoding.
func (e *Engine) Accepted(mean float64) { e.accepted.Observe(mean) }
