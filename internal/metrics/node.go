package metrics

import (
	"sync"
	"sync/atomic"
	"time"
)

// SlotState is what the slot of a decode node is held for.
type SlotState uint8

// The states. A slot goes through those between Free and Down in this order.
const (
	SlotFree    SlotState = iota // nobody holds it
	SlotPrefill                  // held while the prompt is prefilled
	SlotKVWait                   // the node waits for the KV
	SlotDecode                   // the node generates
	SlotSettle                   // the request is over and the node lets go of it
	SlotDown                     // nobody holds it and the node does not answer; only shown, never entered
	numSlotStates
)

var slotStateNames = [numSlotStates]string{"free", "prefill", "kv_wait", "decode", "settle", "down"}

// String is the state as label.
func (s SlotState) String() string { return slotStateNames[s] }

// held tells the states that cost slot time.
func (s SlotState) held() bool { return s > SlotFree && s < SlotDown }

// Node is what the request that holds a node's slot reports about it.
type Node struct {
	name      string
	generated atomic.Uint64

	mu    sync.Mutex // guards what follows
	state SlotState
	since time.Time
	spent [numSlotStates]time.Duration
}

func newNode(name string) *Node { return &Node{name: name, since: time.Now()} }

// Enter says what the slot is held for from now on; SlotFree ends it. Only the holder of the slot may call it.
func (n *Node) Enter(s SlotState) {
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.spent[n.state] += now.Sub(n.since)
	n.state, n.since = s, now
}

// Generated counts tokens that the node itself made: not the first of a reply, which prefill samples and vLLM counts.
func (n *Node) Generated(tokens int) {
	if tokens > 0 {
		n.generated.Add(uint64(tokens))
	}
}

// times gives the state and the time spent in each, the running one included (invariant 6).
func (n *Node) times() (SlotState, [numSlotStates]time.Duration) {
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	spent := n.spent
	spent[n.state] += now.Sub(n.since)
	return n.state, spent
}
