package router

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"pd-router/internal/metrics"
	"pd-router/internal/nixl"
	"pd-router/internal/queue"
	"pd-router/internal/staging"
	"pd-router/internal/tilert"
)

// ArenaOptions say how much KV the router holds itself, for requests that wait for a decode slot with their KV ready.
type ArenaOptions struct {
	Slots   int            // requests, all with the same room; without a meaning beside Sizes
	Bytes   int64          // memory of all slots; 0: as much as Slots of the nodes' whole window take, or Sizes
	Sizes   []staging.Size // slots of several sizes instead
	Host    string         // where the prefill node reaches the router; "": the address from which the router reaches that node
	Port    int            // control port of the first slot, the others count up; 0: any
	Huge    bool           // memory in huge pages that the system has reserved
	Library string         // NIXL library, "" looks for it
	Verify  float64        // share of transfers whose bytes are summed up on both hops
}

// arena is the front of a staged router: requests wait in its line for room, are prefilled into it, and wait for a decode slot with
// their KV ready. It opens when a decode node has told what KV it takes.
type arena struct {
	opts    ArenaOptions
	line    *queue.Queue
	greeted chan struct{} // closed when a decode node has said hello
	opened  atomic.Pointer[rooms]
}

func newArena(o ArenaOptions, line *queue.Queue) (*arena, error) {
	if _, err := nixl.Open(nixl.Options{Path: o.Library}); err != nil { // before anything waits for what cannot be
		return nil, fmt.Errorf("--kv-handoff staged: %w", err)
	}
	return &arena{opts: o, line: line, greeted: make(chan struct{})}, nil
}

// missing is what keeps the arena from being used, for people; "" when nothing does. A nil arena misses nothing.
func (a *arena) missing() string {
	if a == nil || a.opened.Load() != nil {
		return ""
	}
	select {
	case <-a.greeted:
		return "the staging arena is being opened: its memory is locked"
	default:
		return "the staging arena is not open: no decode node has told on its control port what KV it takes"
	}
}

// runArena opens the arena as soon as that is possible and keeps it until ctx ends. An error is final, and none when ctx ended meanwhile:
// opening takes seconds, and who is told to stop in them has not failed.
func (r *Router) runArena(ctx context.Context) error {
	select {
	case <-r.arena.greeted:
	case <-ctx.Done():
		return nil
	}
	open, err := r.openArena(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("--kv-handoff staged: %w", err)
	}
	serving := open.Run(ctx)
	return errors.Join(serving, open.Close())
}

// openArena makes the rooms and gives each a place in the line.
func (r *Router) openArena(ctx context.Context) (*rooms, error) {
	hello, window := r.helloOfAll()
	o, err := r.arena.opts.staging(hello, window, r.prefill.Addr())
	if err != nil {
		return nil, err
	}
	open := &rooms{places: map[*staging.Slot]*queue.Slot{}, slots: map[*queue.Slot]*staging.Slot{}}
	o.Log = r.log
	o.Observe = staging.Hooks{Transfer: r.transferred, State: func(s *staging.Slot, now staging.State) { r.roomChanged(open.places[s], now) }}
	if open.Arena, err = staging.Open(ctx, o); err != nil {
		return nil, err
	}
	open.sizes = sizesOf(open.Slots())
	for _, s := range open.Slots() {
		place := r.arena.line.Add(s.Name(), 0)
		place.Down() // until all are known
		open.places[s], open.slots[place] = place, s
	}
	r.arena.opened.Store(open)
	for s, place := range open.places {
		place.SetTraits(open.traits(s.MaxSeqLen()))
		place.Up()
	}
	r.checkReady()
	return open, nil
}

// helloOfAll is a hello of the decode nodes and the longest window of all that have said one.
func (r *Router) helloOfAll() (hello *tilert.Hello, window int) {
	for _, be := range r.backends {
		if h := be.Hello(); h != nil {
			hello, window = h, max(window, h.MaxSeqLen)
		}
	}
	return hello, window
}

// staging are the options of an arena between a prefill node and decode nodes with that hello.
func (o ArenaOptions) staging(hello *tilert.Hello, window int, prefill string) (s staging.Options, err error) {
	s = staging.Options{
		Slots: o.Slots, Bytes: o.Bytes, Sizes: o.Sizes, MaxSeqLen: window, Senders: hello.Senders,
		Host: o.Host, CtrlPort: o.Port, HugePages: o.Huge, Library: o.Library, Verify: o.Verify,
	}
	if s.Layout, err = staging.LayoutOf(hello); err != nil {
		return s, err
	}
	switch {
	case len(o.Sizes) > 0:
		s.Slots = 0
	case o.Bytes == 0:
		s.Slots, s.Sizes = 0, []staging.Size{{Slots: o.Slots, MaxSeqLen: window}}
	}
	if s.Host == "" {
		if s.Host, err = addressTowards(prefill); err != nil {
			return s, fmt.Errorf("--kv-arena-host: no address towards the prefill node: %w", err)
		}
	}
	return s, nil
}

// addressTowards is the address of this host on its way to addr. Nothing is sent.
func addressTowards(addr string) (string, error) {
	c, err := net.Dial("udp4", addr) // senders connect by IPv4 only
	if err != nil {
		return "", err
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).IP.String(), nil
}

// roomChanged keeps a slot whose transfers have not come to a known end from being given out.
func (r *Router) roomChanged(place *queue.Slot, now staging.State) {
	switch now {
	case staging.Quarantined:
		place.Down()
		r.metrics.Arena.Quarantined()
	case staging.Free:
		place.Up()
	}
}

func (r *Router) transferred(t staging.Transfer) {
	reason := ""
	if t.Reason != staging.None {
		reason = t.Reason.String()
		r.log.Info("KV transfer failed", zap.String("slot", t.Slot.Name()), zap.String("hop", t.Hop.String()), zap.String("reason", reason),
			zap.String("node", t.Node), zap.Float64("seconds", t.Seconds))
	}
	r.metrics.Arena.Transferred(t.Hop.String(), reason, t.Bytes, t.Descriptors, time.Duration(t.Seconds*float64(time.Second)))
}

// fillState reads the gauges of the arena.
func (a *arena) fillState(s *metrics.State) {
	states, bytes := a.states()
	copy(s.Rooms, states[:])
	s.ArenaBytes = bytes
}

// states counts the rooms by state, and their memory: nothing before the arena is open.
func (a *arena) states() (states [staging.NumStates]int, bytes int64) {
	if open := a.opened.Load(); open != nil {
		return open.States(), open.Bytes()
	}
	return states, 0
}
