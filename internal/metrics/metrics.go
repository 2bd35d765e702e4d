package metrics

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Registry takes metrics and gives them out; *prometheus.Registry does both.
type Registry interface {
	prometheus.Registerer
	prometheus.Gatherer
}

// Options are the label sets, what is fixed for the life of the process, and where state is read.
type Options struct {
	Version  string // of the program
	Revision string // of its source, "" when unknown
	Dialect  string // engine pair that is served, such as "tilert"

	// ModelName is the label model_name of the vllm: families; "" leaves the label out.
	ModelName string

	Nodes        []string  // decode nodes, as --decode has them
	Endpoints    []string  // what a request may ask for
	Outcomes     []Outcome // how a request may end
	WaitOutcomes []string  // how a wait for a slot may end
	Legs         []string  // calls to nodes that may fail
	ErrorClasses []string  // how they fail
	Retries      []string  // why something is tried again

	// Of a staged router; empty for a direct one.
	Hops       []string // of KV
	HopReasons []string // how they fail
	RoomStates []string // of a slot in the arena

	QueueMax      int           // limit of the line in requests
	QueueMaxBytes int64         // and in bytes of bodies
	QueueTimeout  time.Duration // longest wait in it

	// State fills in what is true now. It is called at each scrape, by one goroutine at a time, and must not block.
	State func(*State)
}

// Outcome is one way in which a request may end.
type Outcome struct {
	Name  string
	Codes []int // HTTP statuses that it comes with
}

// Metrics is all that the router exports.
type Metrics struct {
	Requests Requests // for the life of a request
	Queue    Queue    // for the line
	Upstream Upstream // for calls to nodes
	Engine   Engine   // for what nodes tell of their work
	Arena    Arena    // for KV that the router holds itself

	nodes  map[string]*Node
	gather prometheus.Gatherer
}

// New registers all metrics on reg, with those of the Go runtime and the process.
func New(reg Registry, o Options) *Metrics {
	m := &Metrics{
		Requests: newRequests(reg, o),
		Queue:    newQueue(reg, o),
		Upstream: newUpstream(reg, o),
		Engine:   newEngine(reg),
		Arena:    newArena(reg, o),
		nodes:    map[string]*Node{},
		gather:   reg,
	}
	nodes := make([]*Node, len(o.Nodes))
	for i, name := range o.Nodes {
		nodes[i] = newNode(name)
		m.nodes[name] = nodes[i]
	}
	info(reg, "pd_router_build_info", "Always 1: which build of the router this is. Differing values between replicas: an update is under way or stuck.",
		prometheus.Labels{"version": o.Version, "revision": o.Revision, "goversion": runtime.Version()})
	info(reg, "pd_router_config_info", "Always 1: which engine pair the router speaks to. If it is not yours, the flags select the wrong one.",
		prometheus.Labels{"dialect": o.Dialect})
	reg.MustRegister(
		newCollector(o, nodes),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

// Node is the part of one decode node. name must be one of Options.Nodes.
func (m *Metrics) Node(name string) *Node {
	n := m.nodes[name]
	if n == nil {
		panic("BUG: metrics of a node that is not configured: " + name)
	}
	return n
}

// info registers a gauge that is 1 for ever and carries facts as labels.
func info(reg prometheus.Registerer, name, help string, labels prometheus.Labels) {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels})
	g.Set(1)
	reg.MustRegister(g)
}
