package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Phase is a part of a request's life that is timed.
type Phase uint8

// The phases, in the order in which they come.
const (
	ReadBody  Phase = iota // from the head of the request to the end of its body
	Waiting                // for a decode slot
	Prefill                // from the prefill request to its answer
	KVWait                 // from the decode request to the node's first line
	Decode                 // from there to the node's last line
	Total                  // from the head of the request to the end of the reply
	numPhases              // sizes tables
)

var phaseNames = [numPhases]string{"read_body", "queue", "prefill", "kv_wait", "decode", "total"}

// String is the phase as label.
func (p Phase) String() string { return phaseNames[p] }

// Requests is what the life of a request reports.
type Requests struct {
	ended      endings
	phases     [numPhases]prometheus.Observer
	ttft       prometheus.Histogram
	interToken prometheus.Histogram
	added      prometheus.Histogram
	body       prometheus.Histogram
	prompt     prometheus.Counter
	cached     prometheus.Counter
	completion prometheus.Counter
	gone       [numPhases]prometheus.Counter
	cancels    [numPhases]prometheus.Counter
}

func newRequests(reg prometheus.Registerer, o Options) Requests {
	r := Requests{
		ended: newEndings(reg, o),
		ttft: newHistogram(reg, "pd_router_ttft_seconds", "From the head of a request to the first byte of its reply's content, waiting for a slot included. "+
			"When it rises, pd_router_phase_seconds tells whether the line, prefill or the KV transfer takes the time.", phaseBuckets),
		interToken: newHistogram(reg, "pd_router_inter_token_seconds", "Mean time between two tokens of a reply, one observation for each reply. "+
			"When it rises, the decode nodes have become slower, or clients read slower than the nodes write.", tokenBuckets),
		added: newHistogram(reg, "pd_router_added_seconds", "What the router itself adds to a request: its whole time without the upload, the line and both nodes. "+
			"When it rises, the router's host is short of CPU, or a client reads slower than its node writes.", addedBuckets),
		body: newHistogram(reg, "pd_router_body_bytes", "Size of request bodies. "+
			"When it nears --max-body, requests will be refused with 413; raise it together with --queue-max-bytes.", bodyBuckets),
	}
	phases := prometheus.NewHistogramVec(histogramOpts("pd_router_phase_seconds", "Time that the phases of a request took, by phase. "+
		"queue rises: add decode nodes or lower client concurrency. prefill: the prefill node is overloaded or its cache misses. kv_wait: look at the network between the nodes. "+
		"decode: longer replies or slower nodes. read_body: slow uploads.", phaseBuckets), []string{"phase"})
	tokens := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pd_router_tokens_total", Help: "Tokens of requests that were prefilled, by kind: prompt, cached (the part of prompt that prefill found in its cache) and completion (all that replies count, the first token of prefill included). " +
		"When cached falls against prompt, prefill does work twice: look at its cache size and at whether prompts still begin alike."}, []string{"kind"})
	gone := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pd_router_client_gone_total", Help: "Requests whose client left before the end, by the phase it left in. " +
		"When queue rises, clients give up sooner than --queue-timeout: raise their time-out."}, []string{"phase"})
	cancels := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pd_router_cancels_total", Help: "Decode requests that the router cancelled on their node, by the phase they were in. " +
		"Stop strings and clients that leave cancel in decode; when kv_wait rises, clients give up while KV is under way, or it does not come."}, []string{"phase"})
	reg.MustRegister(phases, tokens, gone, cancels)
	for p := range numPhases {
		r.phases[p] = phases.WithLabelValues(p.String())
		if p == Total {
			continue // nobody leaves or is cancelled in the whole
		}
		r.gone[p] = gone.WithLabelValues(p.String())
		if p == KVWait || p == Decode {
			r.cancels[p] = cancels.WithLabelValues(p.String())
		}
	}
	r.prompt, r.cached, r.completion = tokens.WithLabelValues("prompt"), tokens.WithLabelValues("cached"), tokens.WithLabelValues("completion")
	return r
}

// Ended counts a request, once, by how it ended and the HTTP status that its client got or would have got.
func (r *Requests) Ended(endpoint, outcome string, status int) {
	r.ended.count(endpoint, outcome, status)
}

// Phase observes how long a phase took. Call it once for each phase that a request reached.
func (r *Requests) Phase(p Phase, d time.Duration) { seconds(r.phases[p], d) }

// Total observes the whole time of a request. A trace id, "" for none, becomes the observation's exemplar.
func (r *Requests) Total(d time.Duration, traceID string) { exemplar(r.phases[Total], d, traceID) }

// FirstByte observes the time to the first byte of content.
func (r *Requests) FirstByte(d time.Duration, traceID string) { exemplar(r.ttft, d, traceID) }

// InterToken observes the mean time between tokens of one reply, which had n of them over d. Fewer than two have none.
func (r *Requests) InterToken(d time.Duration, n int) {
	if n > 1 {
		seconds(r.interToken, d/time.Duration(n-1))
	}
}

// Added reports the time that the router itself took.
func (r *Requests) Added(d time.Duration) { seconds(r.added, d) }

// Body observes the size of a request body.
func (r *Requests) Body(bytes int) { r.body.Observe(float64(bytes)) }

// Prompt counts the tokens of a prompt, once a request, and how many of them prefill found in its cache.
func (r *Requests) Prompt(tokens, cached int) {
	r.prompt.Add(float64(max(tokens, 0)))
	r.cached.Add(float64(max(cached, 0)))
}

// Completion counts the tokens of a reply.
func (r *Requests) Completion(tokens int) { r.completion.Add(float64(max(tokens, 0))) }

// ClientGone counts a client that left in phase p, which is not Total.
func (r *Requests) ClientGone(p Phase) { r.gone[p].Inc() }

// Cancelled counts a cancel that was sent to a decode node for a request in phase p, KVWait or Decode.
func (r *Requests) Cancelled(p Phase) { r.cancels[p].Inc() }

// endings is the table of pd_router_requests_total.
type endings struct {
	vec       *prometheus.CounterVec
	endpoints map[string]int
	outcomes  map[string]int
	names     [2][]string // endpoints, outcomes by index
	cells     []atomic.Pointer[prometheus.Counter]
}

func newEndings(reg prometheus.Registerer, o Options) endings {
	e := endings{
		vec: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pd_router_requests_total", Help: "Requests by endpoint, by how they ended and by HTTP status; their sum is all requests that came. " +
			"When an outcome other than ok rises: queue_* wants more decode nodes or a longer bound, prefill_* and decode_* have their cause in the node's own log, invalid in the client."},
			[]string{"endpoint", "outcome", "code"}),
		endpoints: map[string]int{}, outcomes: map[string]int{},
	}
	reg.MustRegister(e.vec)
	for _, name := range append(append([]string{}, o.Endpoints...), Other) {
		e.endpoints[name] = len(e.names[0])
		e.names[0] = append(e.names[0], name)
	}
	for _, outcome := range append(append([]Outcome{}, o.Outcomes...), Outcome{Name: Other}) {
		e.outcomes[outcome.Name] = len(e.names[1])
		e.names[1] = append(e.names[1], outcome.Name)
	}
	e.cells = make([]atomic.Pointer[prometheus.Counter], len(e.names[0])*len(e.names[1])*len(codeNames))
	for _, endpoint := range o.Endpoints {
		for _, outcome := range o.Outcomes {
			for _, code := range outcome.Codes {
				e.cell(endpoint, outcome.Name, code)
			}
		}
	}
	return e
}

func (e *endings) count(endpoint, outcome string, status int) {
	e.cell(endpoint, outcome, status).Inc()
}

// cell is the counter of one combination, made at its first use.
func (e *endings) cell(endpoint, outcome string, status int) prometheus.Counter {
	ep, ok := e.endpoints[endpoint]
	if !ok {
		ep = len(e.names[0]) - 1
	}
	oc, ok := e.outcomes[outcome]
	if !ok {
		oc = len(e.names[1]) - 1
	}
	code := codeIndex(status)
	at := &e.cells[(ep*len(e.names[1])+oc)*len(codeNames)+code]
	if c := at.Load(); c != nil {
		return *c
	}
	c := e.vec.WithLabelValues(e.names[0][ep], e.names[1][oc], codeNames[code])
	at.Store(&c) // two that meet here store the same counter
	return c
}
