package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// State is what is true at the moment of a scrape.
type State struct {
	QueueDepth  int           // requests that wait for a slot
	QueueBytes  int64         // bytes of their bodies
	QueueOldest time.Duration // how long the one that came first has waited
	Connections int           // open connections of clients
	PrefillUp   bool          // the prefill node answers
	Nodes       []NodeState   // one for each of Options.Nodes, in that order; zero until filled in
	Rooms       []int         // slots of the arena, one number for each of Options.RoomStates; zero until filled in
	ArenaBytes  int64         // its memory
}

// NodeState is the part of one decode node.
type NodeState struct {
	Up      bool    // it answers
	Busy    bool    // its slot is held, settling included
	KVUsage float64 // the running sequence as a share of the longest that the node takes, 0 to 1

	Sequence int // tokens of the running sequence, prompt and reply; 0 when there is none
}

// collector turns State into metrics.
type collector struct {
	nodes []*Node
	read  func(*State)
	model []string // the value of model_name, or nothing
	rooms []string // states of the arena's slots

	depth, bytes, oldest, connections, prefillUp *prometheus.Desc
	busy, slotState, slotSeconds, nodeUp         *prometheus.Desc
	generated, kvUsage, running, waiting         *prometheus.Desc
	sequence, arenaSlots, arenaBytes             *prometheus.Desc
	fixed                                        []prometheus.Metric

	mu    sync.Mutex // guards state, and makes read's calls follow each other
	state State
}

func newCollector(o Options, nodes []*Node) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	worker := []string{"component", "worker_id"} // one set for all vllm: families (invariant 4)
	c := &collector{nodes: nodes, read: o.State, rooms: o.RoomStates}
	if o.ModelName != "" {
		worker, c.model = append(worker, "model_name"), []string{o.ModelName}
	}
	c.depth = desc("pd_router_queue_depth", "Requests that wait for a decode slot. Above zero for long: add decode nodes or lower client concurrency.")
	c.bytes = desc("pd_router_queue_bytes", "Bytes of the bodies of waiting requests. When it nears pd_router_queue_limit, newcomers get 429: add decode nodes or raise --queue-max-bytes.")
	c.oldest = desc("pd_router_queue_oldest_seconds", "How long the request that waits longest has waited; 0 when none waits. When it nears pd_router_queue_timeout_seconds, requests are about to be refused.")
	c.connections = desc("pd_router_connections", "Open connections of clients. When it rises without requests, clients open connections and do not use or close them.")
	c.prefillUp = desc("pd_router_prefill_up", "1 while the prefill node answers. At 0 all requests wait: look at vLLM and the network.")
	c.busy = desc("pd_router_slots_busy", "Slots of a decode node that a request holds, from the grant until the node has let go. All at 1 with a line waiting: the nodes are fully used.", "node")
	c.slotState = desc("pd_router_slot_state", "1 for the state that a node's slot is in, 0 for the others. Long in settle: the node does not let go of cancelled requests. down: it does not answer.", "node", "state")
	c.slotSeconds = desc("pd_router_slot_seconds_total", "Time that a node's slot was held, by what for; its rate is the share of time. prefill and kv_wait are time in which the node does not decode: "+
		"when their share rises, a faster prefill or network gains more than another decode node.", "node", "phase")
	c.nodeUp = desc("pd_router_node_up", "1 while a decode node answers. At 0 it gets no requests: look at its log.", "node")
	c.sequence = desc("pd_router_node_sequence_tokens", "Tokens of the sequence that a decode node works on, prompt and reply; 0 when it is idle. When it nears the node's window, replies will end for want of room.", "node")
	c.arenaSlots = desc("pd_router_arena_slots", "Slots of the staging arena by state. None free with a line waiting: more slots would prefill more ahead, as far as prefill keeps up. Long in quarantined: see the log.", "state")
	c.arenaBytes = desc("pd_router_arena_bytes", "Memory of the staging arena. Does not change by itself; to be set against the host's free memory before --kv-arena-slots is raised.")
	c.generated = desc("vllm:generation_tokens_total", "Tokens that decode nodes generated, without the first of each reply, which the prefill node counts under this name. When its rate falls while requests wait, a node has become slower.", worker...)
	c.kvUsage = desc("vllm:kv_cache_usage_perc", "The running sequence of a decode node as a share of the longest it takes (1 is all). At 1, replies end for want of room.", worker...)
	c.running = desc("vllm:num_requests_running", "Requests that a decode node works on. When it stays at 0 while requests wait, prefill holds them up.", worker...)
	c.waiting = desc("vllm:num_requests_waiting", "Requests that wait in the router for a decode slot, as pd_router_queue_depth. When it rises: add decode nodes.", worker...)

	limit := desc("pd_router_queue_limit", "Configured limits of the line: waiters is --queue-max, bytes is --queue-max-bytes. Does not change by itself; to be drawn beside pd_router_queue_bytes.", "limit")
	timeout := desc("pd_router_queue_timeout_seconds", "Configured bound on the wait, --queue-timeout; 0 refuses at once. Does not change by itself; to be set against pd_router_queue_oldest_seconds.")
	c.fixed = []prometheus.Metric{
		prometheus.MustNewConstMetric(timeout, prometheus.GaugeValue, o.QueueTimeout.Seconds()),
		prometheus.MustNewConstMetric(limit, prometheus.GaugeValue, float64(o.QueueMax), "waiters"),
		prometheus.MustNewConstMetric(limit, prometheus.GaugeValue, float64(o.QueueMaxBytes), "bytes"),
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.depth, c.bytes, c.oldest, c.connections, c.prefillUp, c.busy, c.slotState, c.slotSeconds, c.nodeUp,
		c.sequence, c.arenaSlots, c.arenaBytes, c.generated, c.kvUsage, c.running, c.waiting, c.fixed[0].Desc(), c.fixed[1].Desc()} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.state
	nodes := append(s.Nodes[:0], make([]NodeState, len(c.nodes))...)
	rooms := append(s.Rooms[:0], make([]int, len(c.rooms))...)
	*s = State{Nodes: nodes, Rooms: rooms}
	if c.read != nil {
		c.read(s)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(c.depth, float64(s.QueueDepth))
	gauge(c.bytes, float64(s.QueueBytes))
	gauge(c.oldest, s.QueueOldest.Seconds())
	gauge(c.connections, float64(s.Connections))
	gauge(c.prefillUp, oneIf(s.PrefillUp))
	gauge(c.waiting, float64(s.QueueDepth), c.worker("router", "router")...)
	for _, m := range c.fixed {
		ch <- m
	}
	for i, name := range c.rooms {
		gauge(c.arenaSlots, float64(rooms[i]), name)
	}
	if len(c.rooms) > 0 {
		gauge(c.arenaBytes, float64(s.ArenaBytes))
	}
	for i, n := range c.nodes {
		c.collectNode(ch, gauge, n, nodes[i])
	}
}

// collectNode writes the series of one node. Whether the slot is held is the queue's to say; what for, the holder's.
func (c *collector) collectNode(ch chan<- prometheus.Metric, gauge func(*prometheus.Desc, float64, ...string), n *Node, is NodeState) {
	state, spent := n.times()
	switch {
	case is.Busy && !state.held():
		state = SlotPrefill // granted a moment ago
	case !is.Busy && is.Up:
		state = SlotFree
	case !is.Busy:
		state = SlotDown
	}
	gauge(c.nodeUp, oneIf(is.Up), n.name)
	gauge(c.busy, oneIf(is.Busy), n.name)
	gauge(c.sequence, float64(is.Sequence), n.name)
	for s := range numSlotStates {
		gauge(c.slotState, oneIf(s == state), n.name, s.String())
		if s.held() {
			ch <- prometheus.MustNewConstMetric(c.slotSeconds, prometheus.CounterValue, spent[s].Seconds(), n.name, s.String())
		}
	}
	worker := c.worker("decode", n.name)
	ch <- prometheus.MustNewConstMetric(c.generated, prometheus.CounterValue, float64(n.generated.Load()), worker...)
	gauge(c.kvUsage, is.KVUsage, worker...)
	gauge(c.running, oneIf(state > SlotPrefill && state.held()), worker...)
}

// worker are the label values of the vllm: families.
func (c *collector) worker(component, id string) []string {
	return append([]string{component, id}, c.model...)
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
