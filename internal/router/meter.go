package router

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"pd-router/internal/metrics"
	"pd-router/internal/openai"
	"pd-router/internal/queue"
	"pd-router/internal/staging"
)

// MetricsOptions are the closed sets of labels that a router of these nodes reports, and where its gauges are read.
func MetricsOptions(o Options, decode []string, state func(*metrics.State)) metrics.Options {
	m := metrics.Options{
		Dialect: "tilert", Nodes: decode, QueueMax: o.QueueMax, QueueMaxBytes: o.QueueMaxBytes, QueueTimeout: o.QueueTimeout, State: state,
		Legs: []string{legPrefill, legDecode}, ErrorClasses: errorClasses, Retries: retries,
	}
	for ep := range openai.NumEndpoints {
		m.Endpoints = append(m.Endpoints, ep.String())
	}
	for out := range NumOutcomes {
		m.Outcomes = append(m.Outcomes, metrics.Outcome{Name: out.String(), Codes: outcomeCodes[out]})
	}
	for w := queue.Granted; w < queue.NumOutcomes; w++ {
		m.WaitOutcomes = append(m.WaitOutcomes, w.String())
	}
	if o.Arena != nil {
		m.Hops, m.HopReasons, m.RoomStates = namesOf(staging.NumHops), namesOf(staging.NumReasons)[1:], namesOf(staging.NumStates)
	}
	return m
}

// namesOf are the labels of all values below n.
func namesOf[E interface {
	~uint8
	fmt.Stringer
}](n E) (names []string) {
	for e := range n {
		names = append(names, e.String())
	}
	return names
}

// outcomeCodes are the usual HTTP statuses of each outcome: these series exist from the start.
var outcomeCodes = [NumOutcomes][]int{
	OK: {200}, Invalid: {400, 413}, Unavailable: {501}, QueueFull: {429}, QueueTimeout: {429, 503}, Draining: {503},
	ClientGone: {499}, PrefillRefused: {400}, PrefillFailed: {502, 504}, DecodeBusy: {429}, DecodeRefused: {400, 501},
	DecodeFailed: {502, 504}, StreamFailed: {200}, Internal: {500},
}

// Labels of what goes wrong upstream.
const (
	legPrefill = "prefill"
	legDecode  = "decode"

	classConnect   = "connect"    // no connection
	classLost      = "connection" // it broke, or the reply was no HTTP
	classTimeout   = "timeout"
	classStatus    = "status"     // an answer that is a failure
	classTruncated = "truncated"  // a stream without its end
	classLine      = "line"       // a line that cannot be read
	classErrorLine = "error_line" // a failure that the node tells in its stream
	classKV        = "kv"         // a transfer into the arena or out of it

	retryPrefill = "prefill_connection" // one more try of the first leg
	retryBusy    = "decode_busy"        // one more try of the second leg
	retryPair    = "pair"               // a fresh pair of legs
)

var (
	errorClasses = []string{classConnect, classLost, classTimeout, classStatus, classTruncated, classLine, classErrorLine, classKV}
	retries      = []string{retryPrefill, retryBusy, retryPair}
)

// slot says what the request's slot is held for from now on. A request that does not own it yet says nothing.
func (l *life) slot(s metrics.SlotState) {
	if l.owns() {
		l.node.enter(s, l.prefilled)
	}
}

// failedUpstream counts a call that went wrong.
func (r *Router) failedUpstream(leg, class string) { r.metrics.Upstream.Failed(leg, class) }

// count reports the whole life, once.
func (l *life) count(f *failure) {
	m := &l.r.metrics.Requests
	m.Ended(l.call.Endpoint.String(), f.outcome.String(), l.status(f))
	m.Body(len(l.call.Body))
	m.Phase(metrics.ReadBody, l.call.ReadBody)
	m.Total(l.times.end.Sub(l.times.start), l.span.TraceID())
	if !l.times.granted.IsZero() {
		m.Phase(metrics.Waiting, l.times.queue)
		m.Phase(metrics.Prefill, l.times.prefill)
	}
	if !l.times.first.IsZero() {
		m.Phase(metrics.KVWait, l.times.kvWait)
		m.Phase(metrics.Decode, l.times.decodeTime())
		m.FirstByte(l.times.first.Sub(l.times.start), l.span.TraceID())
	}
	if f.outcome == OK {
		m.Added(l.times.added(l.call.ReadBody))
	}
	if l.reply != nil {
		n := l.reply.CompletionTokens()
		m.Completion(n)
		m.InterToken(l.times.decodeTime(), n-1)
	}
	if f.outcome == ClientGone {
		m.ClientGone(l.phase())
	}
}

// countNode reports what the node tells about its work, in milliseconds (spec 1.2). What cannot be read is left out.
func (l *life) countNode() {
	v, e := openai.Parse(l.line.Timing)
	if e != nil {
		return
	}
	m := &l.r.metrics.Engine
	for step := metrics.WireWait; step <= metrics.Generate; step++ {
		if ms, ok := v.Top(step.String()).Number(); ok {
			m.Step(step, time.Duration(ms*float64(time.Millisecond)))
		}
	}
	if mean, ok := v.Top("mtp_accept_mean").Number(); ok {
		m.Accepted(mean)
	}
}

// phase is where the life is.
func (l *life) phase() metrics.Phase {
	switch {
	case l.req == nil:
		return metrics.ReadBody
	case l.times.granted.IsZero():
		return metrics.Waiting
	case !l.times.first.IsZero():
		return metrics.Decode
	case l.dispatched:
		return metrics.KVWait
	case l.stage != nil && l.stage.ready && l.lease == nil:
		return metrics.Waiting
	}
	return metrics.Prefill
}

// countPrompt reports what prefill worked on.
func (l *life) countPrompt() {
	var details struct {
		Cached int `json:"cached_tokens"`
	}
	if d := l.prefilled.PromptDetails; bytes.Contains(d, []byte(`"cached_tokens"`)) {
		_ = json.Unmarshal(d, &details) // what cannot be read counts as nothing cached
	}
	l.r.metrics.Requests.Prompt(l.prefilled.PromptTokens, details.Cached)
}

// waited is the queue's observer.
func (r *Router) waited(o queue.Outcome, d time.Duration) { r.metrics.Queue.Waited(o.String(), d) }

// FillState reads the gauges.
func (r *Router) FillState(s *metrics.State) {
	st := r.Stats()
	s.QueueDepth, s.QueueBytes, s.QueueOldest = st.Waiting, st.Bytes, st.Oldest
	s.PrefillUp = r.prefill.Up()
	if r.arena != nil {
		r.arena.fillState(s)
	}
	for i, be := range r.backends {
		s.Nodes[i] = metrics.NodeState{
			Up: be.Up(), Sequence: int(be.sequence.Load()), Busy: st.Rows[i].State == queue.Busy || st.Rows[i].State == queue.Settling, KVUsage: be.kvUsage(r.window(be)),
		}
	}
}

// kvUsage is the length of the running sequence as a share of the window.
func (be *backend) kvUsage(window int) float64 {
	if window <= 0 {
		return 0
	}
	return min(1, float64(be.sequence.Load())/float64(window))
}
