package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"pd-router/internal/nixl"
	"pd-router/internal/tilert"
)

// nixlInlet takes writes by NIXL: the agent that the arena is registered with. Each node has one, of a name of its own, so
// a node that starts again is never taken for the one before, unless it was told to keep its name.
type nixlInlet struct {
	agent  *nixl.Agent
	meta   []byte
	closed chan struct{} // closed by close, after err is set
	once   sync.Once
	err    error
}

// newNIXLArena maps a receive buffer and registers all of it, once, as host memory (spec 2.5). An agent without a name gets one of its own.
func newNIXLArena(lib *nixl.Library, name string, l tilert.Layout, maxSeqLen, shards int) (*arena, *nixlInlet, error) {
	size, ctx := arenaBytes(l, maxSeqLen, shards), context.Background() // the binding bounds each call by itself
	mem, err := nixl.NewMemory(size, false)
	if err != nil {
		return nil, nil, fmt.Errorf("receive buffer: %w", err)
	}
	keepSparse(mem.Bytes())
	in := &nixlInlet{closed: make(chan struct{})}
	if name == "" {
		in.agent, err = lib.NewAgent(ctx, "decode")
	} else {
		in.agent, err = lib.NewAgentNamed(ctx, name)
	}
	if err != nil {
		return nil, nil, errors.Join(err, mem.Close())
	}
	if _, err = in.agent.Register(ctx, mem, 0, size); err == nil {
		in.meta, err = in.agent.Metadata(ctx)
	}
	if err != nil {
		return nil, nil, errors.Join(err, in.agent.Close(), mem.Close())
	}
	return layArena(l, maxSeqLen, shards, mem.Bytes(), mem.Close), in, nil
}

func (in *nixlInlet) announce(h *tilert.Hello) {
	h.Transport, h.NixlMeta, h.NixlDev = TransportNIXL, in.meta, 0
}

func (in *nixlInlet) serve() { <-in.closed }

// close ends the agent, after which nothing that is still on its way lands any more.
func (in *nixlInlet) close() error {
	in.once.Do(func() {
		in.err = in.agent.Close()
		close(in.closed)
	})
	return in.err
}
