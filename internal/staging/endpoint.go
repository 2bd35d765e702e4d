package staging

import (
	"context"
	"fmt"
	"sync"

	"pd-router/internal/nixl"
	"pd-router/internal/tilert"
)

// endpoint is a slot's memory as the network sees it: one NIXL agent with one region. A slot gets another one when the end of a transfer over
// the last one could not be learnt otherwise.
type endpoint struct {
	agent  *nixl.Agent
	region *nixl.Region
	meta   []byte // for the hello
	planes tilert.Region

	turn  sync.Mutex // of peer alone, which looks at peers under no other lock
	peers map[string]*nixl.Peer
}

// newEndpoint registers the slot's memory with a new agent. TileRT's senders describe the memory that they write to by the kind of their own,
// GPU or host, and NIXL compares that with the metadata: so it presents the region as both.
func (a *Arena) newEndpoint(ctx context.Context, s *Slot) (*endpoint, error) {
	agent, err := a.lib.NewAgent(ctx, "pd-router-staging")
	if err != nil {
		return nil, err
	}
	e := &endpoint{agent: agent, peers: map[string]*nixl.Peer{}}
	if e.region, err = agent.Register(ctx, s.mem, 0, len(s.mem.Bytes())); err == nil {
		e.meta, err = agent.Metadata(ctx, nixl.DRAM, nixl.VRAM)
	}
	if err != nil {
		_ = agent.Close() // the first error is the one to tell; the memory stays counted if this fails
		return nil, err
	}
	e.planes = a.o.Layout.Region(s.room, e.region.Addr())
	return e, nil
}

// peer gives the node's agent, by the metadata of its present hello. One peer is kept for each target: a node that has started again under
// another name would leave its old one behind.
func (e *endpoint) peer(ctx context.Context, to string, blob []byte) (*nixl.Peer, error) {
	p, err := e.agent.AddPeer(ctx, blob)
	if err != nil {
		return nil, fmt.Errorf("node's agent: %w", err)
	}
	e.turn.Lock()
	old := e.peers[to]
	e.peers[to] = p
	shared := false // by another name of the same node
	for _, other := range e.peers {
		shared = shared || other == old
	}
	e.turn.Unlock()
	if old != nil && !shared {
		_ = old.Close() // at worst its connection stays until the agent goes
	}
	return p, nil
}
