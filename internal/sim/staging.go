package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"pd-router/internal/nixl"
	"pd-router/internal/tilert"
)

// stageBytes is how much a rank copies together before it writes, at most. The real connector has room for its share of the
// longest prompt; here a group of layers that is larger goes in several writes.
const stageBytes = 32 << 20

// nixlOutlet writes by NIXL: one agent for all ranks, and staging memory from which they write.
type nixlOutlet struct {
	agent *nixl.Agent
	life  context.Context // the node's
	limit time.Duration   // for one write; a peer that hangs never reports an error
	all   []*stage

	mu    sync.Mutex
	free  []*stage
	held  []*stage              // whose last write has no known end yet
	peers map[string]*nixl.Peer // by control port: what is loaded for the node there
}

// stage is staging memory for one rank at a time.
type stage struct {
	mem     *nixl.Memory
	b       []byte
	region  *nixl.Region
	settled <-chan struct{} // set when a write was given up: closed when the library has let go of the memory
}

// newNIXLOutlet makes the agent and twice as many stages as there are ranks: for each rank one, and one for a write
// that was given up.
func newNIXLOutlet(life context.Context, lib *nixl.Library, l tilert.Layout, maxTokens, senders int) (*nixlOutlet, error) {
	ctx := context.Background() // the binding bounds each call by itself
	agent, err := lib.NewAgent(ctx, "prefill")
	if err != nil {
		return nil, err
	}
	o := &nixlOutlet{agent: agent, life: life, limit: dataTimeout, peers: map[string]*nixl.Peer{}}
	size := int(min(stageBytes, max(l.ShardBytes(maxTokens, senders), tilert.IndexPageBytes)))
	for range 2 * senders {
		st := &stage{}
		if st.mem, err = nixl.NewMemory(size, false); err == nil {
			st.b = st.mem.Bytes()
			o.all = append(o.all, st)
			st.region, err = agent.Register(ctx, st.mem, 0, size)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("staging memory: %w", err), o.close())
		}
	}
	o.free = append(o.free, o.all...)
	return o, nil
}

func (o *nixlOutlet) name() string { return TransportNIXL }

// close ends the agent, and with it every write that was given up.
func (o *nixlOutlet) close() error {
	err := o.agent.Close()
	for _, st := range o.all {
		err = errors.Join(err, st.mem.Close())
	}
	return err
}

func (o *nixlOutlet) open(ctx context.Context, host string, port int, h *tilert.Hello) (stream, error) {
	peer, err := o.peer(ctx, net.JoinHostPort(host, strconv.Itoa(port)), h.NixlMeta)
	if err != nil {
		return nil, err
	}
	st, err := o.take()
	if err != nil {
		return nil, err
	}
	return &nixlStream{out: o, peer: peer, at: st}, nil
}

// peer gives the node's agent. One that was lost, or is of the process that had the node's place before, goes.
func (o *nixlOutlet) peer(ctx context.Context, node string, meta []byte) (*nixl.Peer, error) {
	p, err := o.agent.AddPeer(ctx, meta)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	old := o.peers[node]
	o.peers[node] = p
	o.mu.Unlock()
	if old != nil && old != p {
		_ = old.Close() // at worst its connection stays as long as this node
	}
	return p, nil
}

// take hands out memory that no write reads.
func (o *nixlOutlet) take() (*stage, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	held := o.held[:0]
	for _, st := range o.held {
		select {
		case <-st.settled:
			o.free = append(o.free, st)
		default:
			held = append(held, st)
		}
	}
	o.held = held
	if len(o.free) == 0 {
		return nil, fmt.Errorf("no staging memory: %d writes were given up and have no known end", len(o.held))
	}
	st := o.free[len(o.free)-1]
	o.free = o.free[:len(o.free)-1]
	st.settled = nil
	return st, nil
}

// give takes memory back.
func (o *nixlOutlet) give(st *stage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if st.settled != nil {
		o.held = append(o.held, st)
	} else {
		o.free = append(o.free, st)
	}
}

// nixlStream collects pieces in a stage and writes each group of them at once.
type nixlStream struct {
	out   *nixlOutlet
	peer  *nixl.Peer
	at    *stage
	used  int // bytes of the stage
	spans []nixl.Span
}

func (s *nixlStream) write(w tilert.Write, row int, fill func(part []byte, from int)) error {
	for from := 0; from < w.Len; {
		n := min((len(s.at.b)-s.used)/row*row, w.Len-from)
		if n == 0 {
			if err := s.group(); err != nil {
				return err
			}
			continue
		}
		fill(s.at.b[s.used:s.used+n], from)
		s.spans = append(s.spans, nixl.Span{Off: s.used, Len: n, Addr: w.Dst + uint64(from)})
		s.used += n
		from += n
	}
	return nil
}

// group returns when the group is in the other node's memory. It goes on when the request is aborted: a write has no
// other end but its own, and the end of the node.
func (s *nixlStream) group() error {
	ctx, cancel := context.WithTimeout(s.out.life, s.out.limit)
	defer cancel()
	err := s.peer.Write(ctx, s.at.region, s.spans)
	if uncertain := (*nixl.UncertainError)(nil); errors.As(err, &uncertain) {
		s.at.settled = uncertain.Settled
	}
	s.spans, s.used = s.spans[:0], 0
	return err
}

func (s *nixlStream) flush() error { return s.group() }

func (s *nixlStream) close() error {
	s.out.give(s.at)
	return nil
}
