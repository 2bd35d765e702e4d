package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"pd-router/internal/nixl"
)

const memory = 64 << 20

// kind is one kind of write and what is asked of Go.
type kind struct {
	name  string
	spans []nixl.Span // addresses relative to the receiver's memory
	block int         // writes of a block: short, so that what else the machine does meets both sides alike
	pairs int         // blocks of each side in a round
	speed bool        // the ratio is of bytes a second, and should be high; else of time, and should be low
	goal  float64
}

func kinds() []kind {
	return []kind{
		{"4 KB, latency", []nixl.Span{{Len: 4096}}, 400, 15, false, 1.10},
		{"64 MB, bandwidth", []nixl.Span{{Len: memory}}, 4, 5, true, 0.97},
		{"KV of 237 descriptors, 6.5 MB, bandwidth", cache(), 16, 11, true, 0.95},
	}
}

// cache is the KV of 100 tokens: 79 layers in three planes, with gaps at the receiver.
func cache() (spans []nixl.Span) {
	off, at := 0, uint64(0)
	for range 79 {
		for _, n := range []int{52_800, 12_800, 16_896} {
			spans = append(spans, nixl.Span{Off: off, Len: n, Addr: at})
			off += n
			at += uint64(n) + 4096
		}
	}
	return spans
}

func main() {
	if len(os.Args) > 2 && os.Args[2] == "writer" { // started by startSides, in the form of bench.c
		end(serveWriter(os.Args[1]))
	}
	rounds := flag.Int("rounds", 16, "how often all processes are started anew")
	flag.Parse()
	end(run(*rounds))
}

func end(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/nixl:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(rounds int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	for name, value := range map[string]string{"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo"} {
		if _, set := os.LookupEnv(name); !set {
			if err := os.Setenv(name, value); err != nil {
				return err
			}
		}
	}
	lib, err := nixl.Open(nixl.Options{})
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "bench-nixl-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	program, err := compile(ctx, folder)
	if err != nil {
		return err
	}
	results := make([]result, len(kinds()))
	for i := range rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", i+1, rounds)
		if err := round(ctx, program, lib.Info().Path, results); err != nil {
			return err
		}
	}
	fmt.Printf("NIXL %s, UCX %s, %s\n\n", lib.Info().Path, lib.UCX(), os.Getenv("UCX_TLS"))
	fmt.Println("| write | repeats | C p50 | Go p50 | Go/C, median of repeats | quartiles | goal |")
	fmt.Println("|---|---|---|---|---|---|---|")
	missed := 0
	for i, k := range kinds() {
		fmt.Println(results[i].row(k))
		if !results[i].reaches(k) {
			missed++
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d ratios miss their goal", missed, len(kinds()))
	}
	return nil
}

// round adds to the results what one set of processes yields.
func round(ctx context.Context, program, library string, results []result) error {
	s, err := startSides(ctx, program, library)
	if err != nil {
		return err
	}
	defer s.close()
	for i, k := range kinds() {
		if err := results[i].compare(k, s); err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
	}
	return nil
}

// result is one row of the table.
type result struct {
	c, g   []time.Duration // medians of the blocks
	ratios []float64
}

// compare runs blocks in turn: C first in the even repeats, Go first in the odd ones. One block of each warms up.
func (r *result) compare(k kind, s *sides) error {
	for i := -1; i < k.pairs; i++ {
		order := []*writer{&s.c, &s.g}
		if i%2 != 0 {
			slices.Reverse(order)
		}
		took := map[*writer]time.Duration{}
		for _, w := range order {
			samples, err := w.write(k.spans, k.block)
			if err != nil {
				return err
			}
			took[w] = median(samples[len(samples)/2:])
		}
		if i < 0 {
			continue
		}
		c, g := took[&s.c], took[&s.g]
		r.c, r.g = append(r.c, c), append(r.g, g)
		ratio := float64(g) / float64(c)
		if k.speed {
			ratio = 1 / ratio
		}
		r.ratios = append(r.ratios, ratio)
	}
	return nil
}

func (r result) reaches(k kind) bool {
	if k.speed {
		return median(r.ratios) >= k.goal
	}
	return median(r.ratios) <= k.goal
}

func (r result) row(k kind) string {
	sorted := slices.Sorted(slices.Values(r.ratios))
	sign := "<="
	if k.speed {
		sign = ">="
	}
	return fmt.Sprintf("| %s | %d | %s | %s | %.3f | %.3f-%.3f | %s %.2f |", k.name, len(r.ratios), speed(k, median(r.c)), speed(k, median(r.g)), median(r.ratios),
		sorted[len(sorted)/4], sorted[len(sorted)*3/4], sign, k.goal)
}

func speed(k kind, d time.Duration) string {
	if !k.speed {
		return d.Round(100 * time.Nanosecond).String()
	}
	n := 0
	for _, s := range k.spans {
		n += s.Len
	}
	return fmt.Sprintf("%.2f GB/s", float64(n)/d.Seconds()/1e9)
}

func median[T int | float64 | time.Duration](s []T) T {
	return slices.Sorted(slices.Values(s))[len(s)/2]
}
