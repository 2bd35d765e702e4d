package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	binary := flag.String("router", "bin/pd-router", "router binary")
	only := flag.String("only", "", "run the parts whose name holds this")
	repeats := flag.Int("repeats", 5, "repeats of each part; medians are shown")
	attach := flag.String("addr", "", "address that the router listens on; any free one by default")
	flag.Parse()
	if err := run(*binary, *only, *repeats, *attach); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench is the set-up: stub nodes and a router in front of 64 slots on them.
type bench struct {
	pre, dec *stub
	router   *exec.Cmd
	addr     string
}

// slots is how many decode nodes the router is told of; all are the one stub, reached under different addresses.
const slots = 64

func run(binary, only string, repeats int, attach string) error {
	b := &bench{addr: attach}
	if err := b.start(binary); err != nil {
		return err
	}
	defer b.stop()
	for _, part := range []struct {
		name string
		f    func(*bench, int) error
	}{{"ttft", (*bench).ttft}, {"requests", (*bench).requests}, {"tokens", (*bench).tokens}, {"waiters", (*bench).waiters}} {
		if strings.Contains(part.name, only) {
			if err := part.f(b, repeats); err != nil {
				return fmt.Errorf("%s: %w", part.name, err)
			}
		}
	}
	return nil
}

func (b *bench) start(binary string) (err error) {
	if b.pre, err = newStub("127.0.0.1:0", prefill); err != nil {
		return err
	}
	// One stub stands for many nodes: it is reached under many addresses of the loopback network.
	if b.dec, err = newStub("0.0.0.0:0", decode); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte(tokenizer()), 0o600); err != nil {
		return err
	}
	if b.addr == "" {
		b.addr = freeAddr()
	}
	_, port, _ := net.SplitHostPort(b.addr)
	args := []string{"--vllm-url", "http://127.0.0.1:" + strconv.Itoa(b.pre.port()), "--host", "127.0.0.1", "--port", port,
		"--model-path", dir, "--parser", "none", "--queue-timeout", "1800", "--queue-max", "20000", "--log-level", "warn", "--decode"}
	for i := range slots {
		args = append(args, fmt.Sprintf("127.0.0.%d:1:%d", i+1, b.dec.port()))
	}
	b.router = exec.Command(binary, args...)
	b.router.Stderr = os.Stderr
	if err := b.router.Start(); err != nil {
		return err
	}
	return b.ready()
}

func (b *bench) ready() error {
	for range 500 {
		if c, err := dial(b.addr); err == nil {
			_, _, _, err = c.roundTrip(chat(100, false, 1))
			c.c.Close()
			if err == nil {
				return nil
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("the router did not become ready")
}

func (b *bench) stop() {
	_ = b.router.Process.Signal(syscall.SIGTERM)
	_ = b.router.Wait()
}

func freeAddr() string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// cpu is the CPU time that the router has used.
func (b *bench) cpu() time.Duration {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.router.Process.Pid))
	f := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	user, _ := strconv.Atoi(f[11])
	sys, _ := strconv.Atoi(f[12])
	return time.Duration(user+sys) * 10 * time.Millisecond
}

// rss is the router's resident memory in bytes.
func (b *bench) rss() int {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.router.Process.Pid))
	for _, line := range strings.Split(string(raw), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, _ := strconv.Atoi(strings.Fields(rest)[0])
			return kb << 10
		}
	}
	return 0
}

func median[T int | int64 | float64 | time.Duration](v []T) T {
	slices.Sort(v)
	return v[len(v)/2]
}

// ttft is the time to the first token through the router, one request at a time.
func (b *bench) ttft(repeats int) error {
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20, 4 << 20} {
		n := max(20, min(400, 64<<20/size))
		var p50 []time.Duration
		var cpus []float64
		for range repeats {
			c, err := dial(b.addr)
			if err != nil {
				return err
			}
			req := chat(size, true, 1)
			var all []time.Duration
			before := b.cpu()
			for range n {
				first, _, _, err := c.roundTrip(req)
				if err != nil {
					return err
				}
				all = append(all, first)
			}
			cpus = append(cpus, float64((b.cpu()-before).Microseconds())/float64(n))
			p50 = append(p50, median(all))
			c.c.Close()
		}
		fmt.Printf("ttft      %8d B   p50 %8.0f us   cpu/request %6.0f us\n", size, float64(median(p50).Nanoseconds())/1e3, median(cpus))
	}
	return nil
}

// parallel runs f on n connections and returns the wall time.
func (b *bench) parallel(n int, f func(*client) error) (time.Duration, error) {
	var wg sync.WaitGroup
	errs := make(chan error, n)
	start := time.Now()
	for range n {
		wg.Go(func() {
			c, err := dial(b.addr)
			if err == nil {
				defer c.c.Close()
				err = f(c)
			}
			if err != nil {
				errs <- err
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

// requests is requests a second at 32 clients, one token each.
func (b *bench) requests(repeats int) error {
	const clients, each = 32, 300
	var rate, cpus []float64
	for range repeats {
		before := b.cpu()
		d, err := b.parallel(clients, func(c *client) error {
			req := chat(1<<10, true, 1)
			for range each {
				if _, _, _, err := c.roundTrip(req); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		rate = append(rate, clients*each/d.Seconds())
		cpus = append(cpus, float64((b.cpu()-before).Microseconds())/(clients*each))
	}
	fmt.Printf("requests  c%-3d  %8.0f /s   cpu/request %6.0f us\n", clients, median(rate), median(cpus))
	return nil
}

// tokens is unpaced streaming.
func (b *bench) tokens(repeats int) error {
	for _, clients := range []int{1, 16, 64} {
		n := 200000 / clients
		b.dec.tokens.Store(int64(n))
		var rate, cpus []float64
		for range repeats {
			before := b.cpu()
			d, err := b.parallel(clients, func(c *client) error {
				_, _, lines, err := c.roundTrip(chat(1<<10, true, n))
				if err == nil && lines < n {
					err = fmt.Errorf("%d events for %d tokens", lines, n)
				}
				return err
			})
			if err != nil {
				return err
			}
			rate = append(rate, float64(n*clients)/d.Seconds())
			cpus = append(cpus, float64((b.cpu()-before).Nanoseconds())/float64(n*clients)/1e3)
		}
		fmt.Printf("tokens    c%-3d  %8.0f /s   cpu/token %6.3f us\n", clients, median(rate), median(cpus))
	}
	b.dec.tokens.Store(1)
	return nil
}

// waiters is the memory of requests that wait: the prefill node holds one request for each slot.
func (b *bench) waiters(int) error {
	for _, tc := range []struct{ n, size int }{{10000, 1 << 10}, {200, 1 << 20}} {
		hold := make(chan struct{})
		b.pre.hold.Store(&hold)
		runtime.GC()
		before := b.rss()
		var wg sync.WaitGroup
		errs := make(chan error, tc.n+slots)
		for i := range tc.n + slots {
			wg.Go(func() {
				c, err := dial(b.addr)
				if err == nil {
					defer c.c.Close()
					_, _, _, err = c.roundTrip(chat(tc.size, false, 1))
				}
				if err != nil {
					errs <- err
				}
			})
			if i%100 == 99 {
				time.Sleep(5 * time.Millisecond)
			}
		}
		time.Sleep(3 * time.Second)
		idle := b.cpu()
		grown := b.rss() - before
		time.Sleep(2 * time.Second)
		idle = b.cpu() - idle
		b.pre.hold.Store(nil)
		start := time.Now()
		close(hold)
		wg.Wait()
		fmt.Printf("waiters   %6d x %8d B   %8.1f KB each   idle cpu %4.2f %%   drained in %v\n", tc.n, tc.size,
			float64(grown)/float64(tc.n)/1024, 100*idle.Seconds()/2, time.Since(start).Round(time.Millisecond))
		select {
		case err := <-errs:
			return err
		default:
		}
	}
	return nil
}

// tokenizer is a byte-level one in which ids 201 and 202 are words.
func tokenizer() string {
	return `{"version":"1.0","added_tokens":[],"decoder":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false},` +
		`"model":{"type":"BPE","dropout":null,"unk_token":null,"byte_fallback":false,"vocab":{"Hello":201,"Ġworld":202},"merges":[]}}`
}
