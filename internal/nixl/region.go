package nixl

import (
	"context"
	"errors"
	"fmt"
)

// Region is a piece of memory that is registered with an agent: peers that have the agent's metadata may write into it, and the agent
// writes from it. The caller owns it; closing the agent closes it too.
type Region struct {
	agent *Agent
	mem   *Memory
	addr  uint64
	n     int
	reg   handle

	// Guarded by the agent's mutex.
	users  int // writes that read from here
	closed bool
}

// Register shows n bytes of m, from off on, to the library. off lies on a page. Register everything once and before Metadata: a peer
// refuses a registration that changed. It counts as a user of m until the region or the agent is closed.
func (a *Agent) Register(ctx context.Context, m *Memory, off, n int) (*Region, error) {
	r := &Region{agent: a, mem: m, n: n}
	err := a.change(ctx, "register", func() (err error) {
		if r.addr, err = m.hold(off, n); err != nil {
			return err
		}
		if r.reg, err = a.drv.register(a.h, r.addr, uint64(n)); err != nil {
			m.letGo()
			return err
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.regions[r] = struct{}{} // from here on teardown frees it, also if nobody waits for r any more
		return nil
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Addr is the address of the first byte, as peers name it.
func (r *Region) Addr() uint64 { return r.addr }

// Len is the number of bytes.
func (r *Region) Len() int { return r.n }

// Close takes the memory away from the library. While a write may still read it, it fails with ErrBusy and changes nothing. Peers that
// have the metadata may still write into the memory if the network lets them (TCP does): after a transfer whose end is unknown,
// close the agent instead.
func (r *Region) Close() error {
	a := r.agent
	err := a.change(context.Background(), "deregister", func() error {
		a.mu.Lock()
		closed, users := r.closed, r.users
		if !closed && users == 0 {
			r.closed = true // no write begins from here on
		}
		a.mu.Unlock()
		switch {
		case closed:
			return nil
		case users > 0:
			return fmt.Errorf("nixl: deregister: %d writes read from the region: %w", users, ErrBusy)
		}
		if err := a.drv.deregister(a.h, r.reg); err != nil {
			return err // the library keeps it, and so do we: the memory stays counted until the agent is gone
		}
		a.mu.Lock()
		delete(a.regions, r)
		a.mu.Unlock()
		r.mem.letGo()
		return nil
	})
	return unlessClosed(err)
}

// unlessClosed is for children of an agent: that it is closed, or about to be, closes them too.
func unlessClosed(err error) error {
	if errors.Is(err, ErrClosed) {
		return nil
	}
	return err
}
