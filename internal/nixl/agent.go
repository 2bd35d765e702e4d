package nixl

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// callLimit bounds a wait for the library where the caller's context does not: none of its calls has a time-out.
	callLimit = 60 * time.Second
	// closeLimit is how long Close waits for calls that are still in the library.
	closeLimit = 10 * time.Second
	// maxPosts is how many writes may be inside their first C calls at once. Such a call can copy everything before it returns, and
	// each holds an OS thread.
	maxPosts = 8
)

var errCallLimit = fmt.Errorf("no answer from the library within %v", callLimit)

// Agent is one identity towards peers, with its own connections and one poller. All methods may be called from any goroutine.
type Agent struct {
	drv     driver
	h       handle
	name    string
	poller  *poller
	posts   chan struct{} // a place for each write inside its first C calls
	turn    chan struct{} // holds a value while a call changes what the agent knows (memory, peers): one at a time
	down    chan struct{} // closed by teardown, after which err is set
	err     error
	lists   sync.Pool    // of *[]span, for writes
	yielded atomic.Int64 // when a write last passed through the scheduler, Unix nanoseconds

	mu      sync.Mutex
	peers   map[string]*Peer // by agent name: the newest generation of each
	regions map[*Region]struct{}
	orphans []*transfer // left by a peer that was replaced: never looked at again, released with the agent
	calls   int         // goroutines that are in the library or about to be
	closing bool
	quiet   chan struct{} // made by Close, closed when calls is zero
}

// NewAgentNamed makes an agent of just this name, for stand-ins of programs that come again under the name that they had. When ctx ends
// first, the agent is taken down as soon as the library gives it.
func (l *Library) NewAgentNamed(ctx context.Context, name string) (*Agent, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callLimit, errCallLimit)
	defer cancel()
	type made struct {
		h   handle
		err error
	}
	ready := make(chan made)
	go func() {
		h, err := l.drv.createAgent(name)
		select {
		case ready <- made{h, err}:
		case <-ctx.Done():
			if err == nil {
				_ = l.drv.destroyAgent(h) // nobody is left to tell
			}
		}
	}()
	select {
	case m := <-ready:
		if m.err != nil {
			return nil, m.err
		}
		a := &Agent{
			drv: l.drv, h: m.h, name: name, poller: newPoller(l.drv, m.h),
			posts: make(chan struct{}, maxPosts), turn: make(chan struct{}, 1), down: make(chan struct{}),
			peers: map[string]*Peer{}, regions: map[*Region]struct{}{},
		}
		a.poller.settle = a.settle
		a.lists.New = func() any { return new([]span) }
		go a.poller.run()
		return a, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("nixl: create agent: %w: %w", ErrUncertain, context.Cause(ctx))
	}
}

// Name is how peers know the agent.
func (a *Agent) Name() string { return a.name }

// Metadata is what a peer needs to write into the agent's regions: send it over a trusted channel, after registering. Peers check
// the kind of memory against it and nothing else does: as lists the kinds under which to present every region, for peers that take
// all memory for GPU memory. Without it the regions are what they are, DRAM.
func (a *Agent) Metadata(ctx context.Context, as ...MemType) ([]byte, error) {
	var blob []byte
	err := a.change(ctx, "metadata", func() (err error) {
		blob, err = a.drv.localMetadata(a.h)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(as) == 0 {
		return blob, nil
	}
	m, err := ParseMetadata(blob)
	if err != nil {
		return nil, err
	}
	return m.as(as).Marshal(), nil
}

// change runs f, which calls the library, alone among the calls that change the agent. When ctx ends before f has, change returns
// and f goes on: f itself must leave everything in order, and its results belong to the caller only when change returns nil.
func (a *Agent) change(ctx context.Context, op string, f func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, callLimit, errCallLimit)
	defer cancel()
	if err := a.enter(); err != nil {
		return fmt.Errorf("nixl: %s: %w", op, err)
	}
	select {
	case a.turn <- struct{}{}:
	case <-ctx.Done():
		a.leave()
		return fmt.Errorf("nixl: %s: not begun: %w", op, context.Cause(ctx))
	}
	done := make(chan error, 1)
	go func() {
		err := f()
		<-a.turn
		a.leave()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("nixl: %s: %w: %w", op, ErrUncertain, context.Cause(ctx))
	}
}

// enter counts a goroutine that will be in the library, which an agent that closes refuses.
func (a *Agent) enter() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closing {
		return fmt.Errorf("agent %s: %w", a.name, ErrClosed)
	}
	a.calls++
	return nil
}

func (a *Agent) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leaveLocked()
}

func (a *Agent) leaveLocked() {
	a.calls--
	if a.calls == 0 && a.quiet != nil {
		close(a.quiet)
	}
}

// Close ends the agent: running writes fail with ErrClosed, connections are cut, and when it returns nil nothing reads or writes the
// memory of its regions any more, not even a peer. It is the one way to stop a transfer that nobody waits for. A second call waits for the
// first. If a call does not come back from the library, Close gives up with ErrUncertain and the memory stays in use for good.
func (a *Agent) Close() error {
	a.mu.Lock()
	first := !a.closing
	if first {
		a.closing = true
		a.quiet = make(chan struct{})
		if a.calls == 0 {
			close(a.quiet)
		}
	}
	a.mu.Unlock()
	if first {
		go a.teardown()
	}
	limit := time.NewTimer(closeLimit)
	defer limit.Stop()
	select {
	case <-a.down:
		return a.err
	case <-limit.C:
		return fmt.Errorf("nixl: close agent %s: %w: a call has not come back for %v", a.name, ErrUncertain, closeLimit)
	}
}

// teardown frees what the agent has, children first. Requests in flight are released without an end: that alone stops nothing, but
// destroying the agent does.
func (a *Agent) teardown() {
	defer close(a.down)
	<-a.quiet
	left := append(a.poller.stop(), a.orphans...)
	for _, t := range left {
		_ = a.drv.release(a.h, t.req) // the agent goes anyway
	}
	// Nobody else changes regions any more; their owners may still ask whether they are closed.
	var errs error
	for r := range a.regions {
		errs = errors.Join(errs, a.drv.deregister(a.h, r.reg))
	}
	if err := a.drv.destroyAgent(a.h); err != nil {
		// The library may still hold everything: memory stays counted and waiters get no false end.
		a.err = errors.Join(errs, err)
		return
	}
	for _, t := range left {
		a.settle(t, fmt.Errorf("nixl: write to %s: agent %s: %w", t.peer.name, a.name, ErrClosed), false)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for r := range a.regions {
		r.closed = true
		r.mem.letGo()
	}
	clear(a.regions)
	clear(a.peers)
}
