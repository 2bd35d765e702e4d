package staging

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"pd-router/internal/nixl"
)

// Arena is the memory in which requests wait with their KV ready. Its methods may be called from any goroutine.
type Arena struct {
	o     Options
	lib   *nixl.Library
	log   *zap.Logger
	slots []*Slot
	ctx   context.Context // ended by Close
	stop  context.CancelCauseFunc
	gone  chan struct{}  // closed by Close when the agents are
	late  sync.WaitGroup // goroutines that keep a node's connections until gone at the latest

	// honours says that the last rid was the id that prefill had been told: then another one is a stranger's.
	honours atomic.Bool

	mu      sync.Mutex
	closing bool
	work    sync.WaitGroup // Run, Receive and Send; Add under mu while not closing
	share   float64        // of a transfer that is to be verified, see sampled
}

// Open maps and registers the memory of all slots and opens their control ports, which are served by Run. The memory is locked where the
// system allows it, else the log says so. The caller owns the arena and must Close it.
func Open(ctx context.Context, o Options) (*Arena, error) {
	rooms, err := o.sizes()
	if err != nil {
		return nil, err
	}
	lib, err := nixl.Open(nixl.Options{Path: o.Library})
	if err != nil {
		return nil, fmt.Errorf("staging: %w", err)
	}
	a := &Arena{o: o, lib: lib, log: o.Log, gone: make(chan struct{})}
	a.ctx, a.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	pin := true
	for i, room := range rooms {
		if err := a.addSlot(ctx, i, room, &pin); err != nil {
			return nil, errors.Join(err, a.Close())
		}
	}
	a.log.Info("staging arena", zap.Int("slots", len(a.slots)), zap.Int64("bytes", a.Bytes()), zap.Bool("locked", pin),
		zap.String("library", lib.Info().Path), zap.String("ucx", lib.UCX()))
	return a, nil
}

// addSlot makes one slot. pin is turned off when the system does not lock as much memory.
func (a *Arena) addSlot(ctx context.Context, i, room int, pin *bool) error {
	s := newSlot(a, i, room)
	a.slots = append(a.slots, s) // from here on Close frees what it has
	n := int(a.o.memoryOf(room))
	var err error
	if a.o.HugePages {
		s.mem, err = nixl.NewHugeMemory(n)
	} else if s.mem, err = nixl.NewMemory(n, *pin); err != nil && *pin {
		a.log.Warn("staging memory is not locked and may be swapped: raise ulimit -l", zap.Int("slots_locked", i), zap.Error(err))
		*pin = false
		s.mem, err = nixl.NewMemory(n, false)
	}
	if err != nil {
		return fmt.Errorf("staging %s: %w", s.name, err)
	}
	if s.end, err = a.newEndpoint(ctx, s); err != nil {
		return fmt.Errorf("staging %s: %w", s.name, err)
	}
	port := a.o.CtrlPort
	if port != 0 {
		port += i
	}
	if s.ln, err = (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(a.o.Host, strconv.Itoa(port))); err != nil {
		return fmt.Errorf("staging %s: control port: %w", s.name, err)
	}
	s.port = s.ln.Addr().(*net.TCPAddr).Port
	return nil
}

// Bytes is the memory of all slots.
func (a *Arena) Bytes() (n int64) {
	for _, s := range a.slots {
		n += a.o.memoryOf(s.room)
	}
	return n
}

// Slots are all slots, the same ones for the life of the arena.
func (a *Arena) Slots() []*Slot { return a.slots }

// States counts the slots by state.
func (a *Arena) States() (n [NumStates]int) {
	for _, s := range a.slots {
		n[s.State()]++
	}
	return n
}

// Run serves the control ports and brings quarantined slots back, until ctx ends or the arena is closed. It is called once at most.
// When it returns, its goroutines have ended and nothing more is received.
func (a *Arena) Run(ctx context.Context) error {
	if !a.enter() {
		return ErrClosed
	}
	defer a.work.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(a.ctx, func() { cancel(ErrClosed) })()
	var slots sync.WaitGroup
	for _, s := range a.slots {
		slots.Go(func() { s.accept(ctx) }) // ended by closing its listener
		slots.Go(func() { s.keep(ctx) })
	}
	<-ctx.Done()
	for _, s := range a.slots {
		_ = s.ln.Close() // ends accept, which closes the connections and awaits them
	}
	slots.Wait()
	return nil
}

// enter counts somebody who uses the arena, which Close awaits; they call work.Done. It is false when the arena is closed.
func (a *Arena) enter() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closing {
		return false
	}
	a.work.Add(1)
	return true
}

// Close ends Run, Receive and Send with ErrClosed, closes the control ports and the agents, and gives the memory back, of which no peer
// reads or writes anything any more. An error is about what could not be given back.
func (a *Arena) Close() error {
	a.mu.Lock()
	closing := a.closing
	a.closing = true
	a.mu.Unlock()
	a.stop(ErrClosed)
	a.work.Wait()
	if closing {
		<-a.gone
		return nil
	}
	var errs error
	for _, s := range a.slots {
		if s.ln != nil {
			_ = s.ln.Close() // Run has closed it already, if it ran
		}
		errs = errors.Join(errs, s.endpointGone())
	}
	close(a.gone)
	a.late.Wait()
	for _, s := range a.slots {
		if s.mem != nil {
			errs = errors.Join(errs, s.mem.Close())
		}
	}
	return errs
}

// sampled tells whether the next transfer is one of those to be verified: evenly spread, the first one early.
func (a *Arena) sampled() bool {
	if a.o.Verify == 0 {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.share += a.o.Verify
	if a.share < 1 {
		return false
	}
	a.share--
	return true
}
