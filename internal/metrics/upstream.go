package metrics

import "github.com/prometheus/client_golang/prometheus"

// Upstream is what calls to nodes report.
type Upstream struct {
	errors  map[string]counters // by leg
	unknown counters
	retries counters
}

func newUpstream(reg prometheus.Registerer, o Options) Upstream {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pd_router_upstream_errors_total", Help: "Calls to nodes that failed, by leg and by how. A client that left counts nowhere here. " +
		"When it rises, the node's own log and the router's lines of that time name the node and the cause."}, []string{"leg", "class"})
	reg.MustRegister(vec)
	leg := func(name string, classes []string) counters {
		return curry(classes, func(class string) prometheus.Counter { return vec.WithLabelValues(name, class) })
	}
	u := Upstream{errors: map[string]counters{}, unknown: leg(Other, nil)}
	for _, name := range o.Legs {
		u.errors[name] = leg(name, o.ErrorClasses)
	}
	u.retries = newCounters(reg, "pd_router_retries_total", "Calls or whole attempts that were made again, by reason. "+
		"Each costs a prefill or more; when it rises, look for the node that fails in pd_router_upstream_errors_total and pd_router_node_up.", "reason", o.Retries)
	return u
}

// Failed counts a call of leg that failed.
func (u *Upstream) Failed(leg, class string) {
	c, ok := u.errors[leg]
	if !ok {
		c = u.unknown
	}
	c.get(class).Inc()
}

// Retried counts a retry.
func (u *Upstream) Retried(reason string) { u.retries.get(reason).Inc() }
