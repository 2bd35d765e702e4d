package nixl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// replaceGrace is how long a peer that is replaced may take to end the writes that are under way to it.
const replaceGrace = time.Second

// Peer is one generation of another agent: what its metadata said. The agent owns it; it ends when a write to it fails, when metadata
// of a newer generation is added, or when it is closed. It never comes back: AddPeer then gives another one.
type Peer struct {
	agent *Agent
	name  string
	blob  []byte
	mem   []kind

	// Guarded by the agent's mutex.
	ended   error         // why there are no more writes; nil while there may be
	loaded  bool          // the library knows this generation
	posting int           // writes inside their first C calls
	users   int           // writes that have a request, or are about to
	unused  chan struct{} // made by whoever waits for users to be zero
}

// AddPeer makes the agent that blob describes a peer. The same blob again gives the same peer, as long as that has not ended. Another blob
// of a name that is known is a process that started again under its old name: the old peer ends with ErrPeerLost, its writes get a second to
// come to their end, and the new one takes its place. When that second is over, the ends of those writes can no longer be learnt: their
// callers' contexts end them with ErrUncertain and their memory stays in use until the agent is closed.
//
// Load only blobs that came over a trusted channel: the library connects to whatever address they contain.
func (a *Agent) AddPeer(ctx context.Context, blob []byte) (*Peer, error) {
	p, err := a.newPeer(blob)
	if err != nil {
		return nil, err
	}
	err = a.change(ctx, "add peer", func() error {
		a.mu.Lock()
		old := a.peers[p.name]
		var over []*Peer // peers that have ended and whose owners did not close them
		for _, o := range a.peers {
			if o != old && o.ended != nil && o.users == 0 {
				over = append(over, o)
			}
		}
		same := old != nil && old.ended == nil && bytes.Equal(old.blob, p.blob)
		a.mu.Unlock()
		if same {
			p = old
			return nil
		}
		for _, o := range over {
			a.forget(o)
		}
		if old != nil {
			if err := a.retire(old); err != nil {
				return err
			}
		}
		return a.load(p)
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// newPeer reads the blob and refuses what the library would take badly.
func (a *Agent) newPeer(blob []byte) (*Peer, error) {
	m, err := ParseMetadata(blob)
	if err != nil {
		return nil, err
	}
	info := m.ucxInfo()
	switch {
	case m.Agent == a.name:
		return nil, fmt.Errorf("nixl: add peer: %w: it is the agent's own", ErrMetadata)
	case len(info) == 0:
		return nil, fmt.Errorf("nixl: add peer %s: %w: no UCX address", m.Agent, ErrMetadata)
	case info[0]&0x0f > 1:
		// UCX has two formats of an address, and ends the process over a third.
		return nil, fmt.Errorf("nixl: add peer %s: %w: UCX address of format %d", m.Agent, ErrMetadata, info[0]&0x0f)
	}
	return &Peer{agent: a, name: m.Agent, blob: bytes.Clone(blob), mem: kinds(m)}, nil
}

// load gives the metadata to the library. A refusal is tried once more after making the library forget the name: it may know a generation
// that this package does not (NOT_ALLOWED, which older libraries do not tell from other errors).
func (a *Agent) load(p *Peer) error {
	err := a.drv.load(a.h, p.blob, p.name)
	if refused := (*CallError)(nil); errors.As(err, &refused) {
		_ = a.drv.invalidate(a.h, p.name) // the library may know nothing of it
		err = a.drv.load(a.h, p.blob, p.name)
	}
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	p.loaded = true
	a.peers[p.name] = p
	return nil
}

// retire ends a generation so that another can be loaded: no request of it is looked at after this.
func (a *Agent) retire(p *Peer) error {
	a.mu.Lock()
	if p.ended == nil {
		p.ended = fmt.Errorf("nixl: peer %s: it started again: %w", p.name, ErrPeerLost)
	}
	unused := p.whenUnusedLocked()
	a.mu.Unlock()

	grace := time.NewTimer(replaceGrace)
	defer grace.Stop()
	select {
	case <-unused:
	case <-grace.C:
		a.mu.Lock()
		posting := p.posting
		a.mu.Unlock()
		if posting > 0 {
			return fmt.Errorf("nixl: replace peer %s: %d writes have not come back from the library: %w", p.name, posting, ErrBusy)
		}
		left := a.poller.drop(p)
		a.mu.Lock()
		a.orphans = append(a.orphans, left...)
		a.mu.Unlock()
	}
	a.forget(p)
	return nil
}

// forget makes the library drop the metadata of a peer that has ended and of which no request will be looked at again.
func (a *Agent) forget(p *Peer) {
	a.mu.Lock()
	loaded := p.loaded
	p.loaded = false
	if a.peers[p.name] == p {
		delete(a.peers, p.name)
	}
	a.mu.Unlock()
	if loaded {
		_ = a.drv.invalidate(a.h, p.name) // older libraries have dropped a dead peer by themselves and say NOT_FOUND
	}
}

// Name is the peer's agent name.
func (p *Peer) Name() string { return p.name }

// Close ends the peer. Writes that are under way go on; the connection is dropped now if there are none, else some time after the last.
func (p *Peer) Close() error {
	a := p.agent
	err := a.change(context.Background(), "close peer", func() error {
		a.mu.Lock()
		if p.ended == nil {
			p.ended = fmt.Errorf("nixl: peer %s: %w", p.name, ErrClosed)
		}
		users := p.users
		a.mu.Unlock()
		if users == 0 {
			a.forget(p)
		}
		return nil
	})
	return unlessClosed(err)
}

// whenUnusedLocked returns a channel that is closed once no write uses the peer. It must have ended already.
func (p *Peer) whenUnusedLocked() <-chan struct{} {
	if p.unused == nil {
		p.unused = make(chan struct{})
		if p.users == 0 {
			close(p.unused)
		}
	}
	return p.unused
}

// kind is the memory of one type that a peer has registered.
type kind struct {
	mem   MemType
	descs []Desc
}

// kinds sorts the UCX sections of m by memory type, host memory first.
func kinds(m *Metadata) []kind {
	var out []kind
	for _, mem := range []MemType{DRAM, VRAM} {
		k := kind{mem: mem}
		for _, s := range m.Sections {
			if s.Backend == backendUCX && s.Mem == mem {
				k.descs = append(k.descs, s.Descs...)
			}
		}
		if len(k.descs) > 0 {
			out = append(out, k)
		}
	}
	return out
}

// covers finds the registered piece that contains [addr, addr+n); -1 is none. The search begins at hint, where the last one was found.
func (k *kind) covers(addr, n uint64, hint int) int {
	if k.descs[hint].contains(addr, n) {
		return hint
	}
	return slices.IndexFunc(k.descs, func(d Desc) bool { return d.contains(addr, n) })
}

func (d *Desc) contains(addr, n uint64) bool {
	return addr >= d.Addr && addr-d.Addr <= d.Len && n <= d.Len-(addr-d.Addr)
}
