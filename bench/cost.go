package main

import (
	"fmt"
	"sync"
	"time"
)

// sizes of prompts.
var sizes = []struct {
	name         string
	bytes, count int // count: requests in a repeat
}{{"1 KB", 1 << 10, 300}, {"64 KB", 64 << 10, 200}, {"1 MB", 1 << 20, 60}, {"4 MB", 4 << 20, 30}}

// ttft is what a router adds to the time to the first token, one request at a time. Targets take turns every few requests.
func (b *bench) ttft() error {
	const turn = 10
	for _, size := range sizes {
		req := chat("", size.bytes, true, 1)
		added := newRow("added TTFT "+size.name, "%.0f us")
		cpu := newRow("CPU a request "+size.name, "%.0f us")
		clients := make([]*client, len(b.targets))
		for i, t := range b.targets {
			c, err := dial(t.addr)
			if err != nil {
				return err
			}
			defer c.c.Close()
			clients[i] = c
		}
		for range b.repeats {
			took := make([][]time.Duration, len(clients))
			used := make([]time.Duration, len(clients))
			for range size.count / turn {
				for i, c := range clients {
					before := b.targets[i].cpu()
					for range turn {
						first, _, err := c.roundTrip(req)
						if err != nil {
							return fmt.Errorf("%s: %w", b.targets[i].name, err)
						}
						took[i] = append(took[i], first)
					}
					used[i] += b.targets[i].cpu() - before
				}
			}
			added.add(direct, micros(median(took[0])))
			for i, t := range b.targets[1:] {
				added.add(t.name, micros(median(took[i+1])-median(took[0])))
				cpu.add(t.name, micros(used[i+1])/float64(size.count))
			}
		}
		fmt.Println(added)
		fmt.Println(cpu)
	}
	return nil
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// parallel runs f on n connections to t at once, and returns the wall time.
func parallel(t *target, n int, f func(*client) error) (time.Duration, error) {
	var wg sync.WaitGroup
	errs := make(chan error, n)
	start := time.Now()
	for range n {
		wg.Go(func() {
			c, err := dial(t.addr)
			if err == nil {
				defer c.c.Close()
				err = f(c)
			}
			if err != nil {
				errs <- fmt.Errorf("%s: %w", t.name, err)
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return 0, err
	default:
		return time.Since(start), nil
	}
}

// requests is how many a second there are with 32 clients, one token each.
func (b *bench) requests() error {
	const clients, each = 32, 150
	rate, cpu := newRow("requests/s c32", "%.0f"), newRow("CPU a request c32", "%.0f us")
	req := chat("", 1<<10, true, 1)
	for range b.repeats {
		for _, t := range b.targets {
			before := t.cpu()
			took, err := parallel(t, clients, again(req, each))
			if err != nil {
				return err
			}
			rate.add(t.name, clients*each/took.Seconds())
			if t.cmd != nil {
				cpu.add(t.name, micros(t.cpu()-before)/(clients*each))
			}
		}
	}
	fmt.Println(rate)
	fmt.Println(cpu)
	return nil
}

// tokens is streaming as fast as it goes.
func (b *bench) tokens() error {
	defer b.nodes.tokens.Store(1)
	for _, clients := range []int{1, 16, 64} {
		n := 100_000 / clients
		b.nodes.tokens.Store(int64(n))
		rate, cpu := newRow(fmt.Sprintf("tokens/s c%d", clients), "%.0f"), newRow(fmt.Sprintf("CPU a token c%d", clients), "%.3f us")
		req := chat("", 1<<10, true, n)
		for range b.repeats {
			for _, t := range b.targets {
				before := t.cpu()
				took, err := parallel(t, clients, func(c *client) error {
					_, events, err := c.roundTrip(req)
					if err == nil && events < n {
						err = fmt.Errorf("%d events for %d tokens", events, n)
					}
					return err
				})
				if err != nil {
					return err
				}
				rate.add(t.name, float64(n*clients)/took.Seconds())
				if t.cmd != nil {
					cpu.add(t.name, micros(t.cpu()-before)/float64(n*clients))
				}
			}
		}
		fmt.Println(rate)
		fmt.Println(cpu)
	}
	return nil
}

// paced is 16 streams of one token every 2 ms: what each token costs, and how much later it comes than from the node itself.
func (b *bench) paced() error {
	const clients, n, pace = 16, 500, 2 * time.Millisecond
	b.nodes.tokens.Store(n)
	b.nodes.pace.Store(int64(pace))
	defer b.nodes.tokens.Store(1)
	defer b.nodes.pace.Store(0)
	late, cpu := newRow("added delay paced c16", "%.0f us"), newRow("CPU a token paced c16", "%.1f us")
	req := chat("", 1<<10, true, n)
	for range b.repeats {
		var base time.Duration
		for _, t := range b.targets {
			before := t.cpu()
			var mu sync.Mutex
			var all []time.Duration
			_, err := parallel(t, clients, func(c *client) error {
				got, err := c.delays(req)
				if err == nil && len(got) < n*9/10 { // a chunk may end in the middle of an event, which is then passed over
					err = fmt.Errorf("%d tokens, want %d", len(got), n)
				}
				mu.Lock()
				defer mu.Unlock()
				all = append(all, got...)
				return err
			})
			if err != nil {
				return err
			}
			if t.cmd == nil {
				base = median(all)
				late.add(t.name, micros(base))
				continue
			}
			late.add(t.name, micros(median(all)-base))
			cpu.add(t.name, micros(t.cpu()-before)/(clients*n))
		}
	}
	fmt.Println(late)
	fmt.Println(cpu)
	return nil
}
