package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"time"
)

// line sends n streaming requests to t at once, whose node has one slot, waits for their end and returns what the slot saw.
func (b *bench) line(t *target, n int, decode, prefill time.Duration) (*slot, error) {
	b.nodes.decodeTime.Store(int64(decode))
	b.nodes.prefillTime.Store(int64(prefill))
	s := &slot{}
	b.nodes.slot.Store(s)
	defer func() {
		b.nodes.slot.Store(nil)
		b.nodes.decodeTime.Store(0)
		b.nodes.prefillTime.Store(0)
	}()
	_, err := parallel(t, n, func(c *client) error {
		_, _, err := c.roundTrip(chat(mark(0), 1<<10, true, 1))
		return err
	})
	if err == nil && len(s.marks) != n {
		err = fmt.Errorf("%s: %d prefills for %d requests", t.name, len(s.marks), n)
	}
	return s, err
}

// gap is the time from the end of a decode to the next prefill while a thousand wait.
func (b *bench) gap() error {
	const waiters, decode = 1000, time.Millisecond
	gap := newRow("gap, 1000 waiters", "%.0f us")
	for range b.repeats {
		for _, t := range b.targets[1:] {
			s, err := b.line(t, waiters, decode, 0)
			if err != nil {
				return err
			}
			gap.add(t.name, micros(median(s.gaps)))
			if s.overlaps > 0 {
				fmt.Printf("%s: %d decodes came while another ran\n", t.name, s.overlaps)
			}
		}
	}
	fmt.Println(gap)
	return nil
}

// use is which part of the time the slot decodes.
func (b *bench) use() error {
	const ms = time.Millisecond
	for _, tc := range []struct {
		waiters         int
		decode, prefill time.Duration
	}{{30, 5 * ms, 0}, {100, 50 * ms, 0}, {50, 50 * ms, 20 * ms}} {
		use := newRow(fmt.Sprintf("slot use, %d x %v+%v", tc.waiters, tc.prefill, tc.decode), "%.1f %%")
		for range b.repeats {
			for _, t := range b.targets[1:] {
				s, err := b.line(t, tc.waiters, tc.decode, tc.prefill)
				if err != nil {
					return err
				}
				use.add(t.name, 100*s.use())
			}
		}
		fmt.Println(use)
	}
	return nil
}

// order is whether ten thousand are served in the order in which they came, one at a time. Each joins the line when the router has told that
// the one before is in it.
func (b *bench) order() error {
	const n = 10_000
	t := b.target(router)
	s := &slot{}
	hold := make(chan struct{})
	b.nodes.hold.Store(&hold)
	b.nodes.slot.Store(s)
	defer b.nodes.slot.Store(nil)
	var wg sync.WaitGroup
	errs := make(chan error, n)
	for i := range n {
		wg.Go(func() {
			c, err := dial(t.addr)
			if err == nil {
				defer c.c.Close()
				_, _, err = c.roundTrip(chat(mark(i), 1<<10, true, 1))
			}
			if err != nil {
				errs <- err
			}
		})
		if err := t.depth(i); err != nil { // the first is at the prefill node
			return err
		}
	}
	b.nodes.hold.Store(nil)
	start := time.Now()
	close(hold)
	wg.Wait()
	took := time.Since(start)
	close(errs)
	fmt.Printf("%-34s  %d served in %v, %d out of order, %d decodes while another ran, %d failed\n",
		"order on one slot", len(s.marks), took.Round(time.Millisecond), s.disorder(), s.overlaps, len(errs))
	for err := range errs {
		return err
	}
	return nil
}

// depth waits until so many are in the router's line, or one more.
func (t *target) depth(n int) error {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		resp, err := http.Get("http://" + t.addr + "/health")
		if err != nil {
			return err
		}
		var health struct {
			Depth int  `json:"queue_depth"`
			Free  *int `json:"decode_free"`
		}
		err = json.NewDecoder(resp.Body).Decode(&health)
		_ = resp.Body.Close()
		if err != nil {
			return err
		}
		if health.Depth >= n && health.Free != nil && *health.Free == 0 {
			return nil
		}
	}
	return fmt.Errorf("there are not %d in line", n)
}

// waiters is the memory and the CPU time of requests that wait, while the prefill node holds the first one.
func (b *bench) waiters() error {
	const look = 10 * time.Second
	for _, tc := range []struct{ n, size int }{{10_000, 1 << 10}, {1000, 1 << 10}, {200, 1 << 20}} {
		t, err := b.pdRouter(1).start(b.nodes) // a new one: what the heap has kept from others is not counted
		if err != nil {
			return err
		}
		if err := t.ready(); err != nil {
			return err
		}
		hold := make(chan struct{})
		b.nodes.hold.Store(&hold)
		runtime.GC() // our own work is not to be in the way
		before := t.rss()
		done := make(chan error, 1)
		go func() {
			_, err := parallel(t, tc.n+1, func(c *client) error {
				_, _, err := c.roundTrip(chat(mark(0), tc.size, false, 1))
				return err
			})
			done <- err
		}()
		if err := t.depth(tc.n); err != nil {
			return err
		}
		grown := t.rss() - before
		time.Sleep(2 * time.Second)
		idle := t.cpu()
		time.Sleep(look)
		idle = t.cpu() - idle
		b.nodes.hold.Store(nil)
		close(hold)
		err = <-done
		stopped := t.stop()
		if err != nil {
			return err
		}
		fmt.Printf("%-34s  %.1f KB each, idle CPU %.2f %% of a core, stop %v\n", fmt.Sprintf("%d waiters of %d KB", tc.n, tc.size>>10),
			float64(grown)/float64(tc.n)/1024, 100*idle.Seconds()/look.Seconds(), stopped.Round(time.Millisecond))
	}
	return nil
}
