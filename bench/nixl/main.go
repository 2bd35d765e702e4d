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
	pairs int         // blocks of each side
	speed bool        // the ratio is of bytes a second, and should be high; else of time, and should be low
	goal  float64
}

func kinds() []kind {
	return []kind{
		{"4 KB, latency", []nixl.Span{{Len: 4096}}, 400, 61, false, 1.10},
		{"64 MB, bandwidth", []nixl.Span{{Len: memory}}, 4, 31, true, 0.97},
		{"KV of 237 descriptors, 6.5 MB, bandwidth", cache(), 16, 61, true, 0.95},
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

// writer is one side of the comparison: it does n writes and returns how long each took.
type writer interface {
	write(spans []nixl.Span, n int) ([]time.Duration, error)
}

func main() {
	scale := flag.Float64("scale", 1, "repeats, times this")
	flag.Parse()
	if err := run(*scale); err != nil {
		fmt.Fprintln(os.Stderr, "bench/nixl:", err)
		os.Exit(1)
	}
}

func run(scale float64) error {
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
	c, err := startC(ctx, lib.Info().Path)
	if err != nil {
		return err
	}
	defer c.close()
	g, err := startGo(ctx, lib, c.blob, c.base)
	if err != nil {
		return err
	}
	defer g.close()

	fmt.Printf("NIXL %s, UCX %s, %s\n\n", lib.Info().Path, lib.UCX(), os.Getenv("UCX_TLS"))
	fmt.Println("| write | repeats | C p50 | Go p50 | Go/C, median of repeats | quartiles | goal |")
	fmt.Println("|---|---|---|---|---|---|---|")
	missed := 0
	for _, k := range kinds() {
		res, err := compare(k, max(1, int(float64(k.pairs)*scale)), c, g)
		if err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		fmt.Println(res.row(k))
		if !res.reaches(k) {
			missed++
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d ratios miss their goal", missed, len(kinds()))
	}
	return nil
}

// result is one row of the table.
type result struct {
	c, g   []time.Duration // medians of the blocks
	ratios []float64
}

// compare runs blocks in turn: C first in the even repeats, Go first in the odd ones. One block of each warms up.
func compare(k kind, repeats int, c, g writer) (result, error) {
	var res result
	for i := -1; i < repeats; i++ {
		sides := []writer{c, g}
		if i%2 != 0 {
			slices.Reverse(sides)
		}
		took := map[writer]time.Duration{}
		for _, w := range sides {
			samples, err := w.write(k.spans, k.block)
			if err != nil {
				return res, err
			}
			took[w] = median(samples[len(samples)/2:])
		}
		if i < 0 {
			continue
		}
		res.c, res.g = append(res.c, took[c]), append(res.g, took[g])
		ratio := float64(took[g]) / float64(took[c])
		if k.speed {
			ratio = 1 / ratio
		}
		res.ratios = append(res.ratios, ratio)
	}
	return res, nil
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
