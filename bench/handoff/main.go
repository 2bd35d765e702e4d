package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// The modes that are measured unless told otherwise.
const defaultModes = "direct=;ahead=--prefill-ahead;" +
	"staged 2=--kv-handoff staged --kv-arena-slots 2;staged 4=--kv-handoff staged --kv-arena-slots 4;staged 8=--kv-handoff staged --kv-arena-slots 8"

// settings are the flags.
type settings struct {
	router    string
	unit      time.Duration // the shorter of P and D
	share     float64       // T as a part of the unit
	requests  int           // that are measured
	clients   int
	transport string // of the simulators
}

func main() {
	var s settings
	flag.StringVar(&s.router, "router", "bin/pd-router", "router binary")
	flag.DurationVar(&s.unit, "unit", 250*time.Millisecond, "the shorter one of prefill and decode time")
	flag.Float64Var(&s.share, "transfer", 0.25, "transfer time, in units")
	flag.IntVar(&s.requests, "requests", 20, "requests that are measured in each case and mode")
	flag.IntVar(&s.clients, "clients", 10, "clients, each of which asks again as soon as it was answered")
	flag.StringVar(&s.transport, "transport", "auto", "how KV moves to simulated nodes: auto, nixl or tcp; staged modes need nixl")
	cases := flag.String("cases", "P=4D,P=D,D=4P", "proportions of prefill and decode time, of P=nD, P=D, D=nP")
	modes := flag.String("modes", defaultModes, "modes of the router: NAME=FLAGS, with ; between them")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s, *cases, *modes); err != nil {
		fmt.Fprintln(os.Stderr, "bench/handoff:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings, cases, modes string) error {
	// The NIXL library reads its network from the environment when it is loaded; here it is loopback.
	for name, value := range map[string]string{"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo"} {
		if _, set := os.LookupEnv(name); !set {
			if err := os.Setenv(name, value); err != nil {
				return err
			}
		}
	}
	todo, err := parseModes(modes)
	if err != nil {
		return err
	}
	tokens, kv, err := size(ctx, s)
	if err != nil {
		return err
	}
	for _, name := range strings.Split(cases, ",") {
		c, err := parseCase(name, s.unit, s.share)
		if err != nil {
			return err
		}
		fmt.Println(c.title())
		fmt.Println(header)
		for _, m := range todo {
			r, err := measure(ctx, s, c, tokens, kv, m)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", name, m.name, err)
			}
			fmt.Println(r.row(m.name, c))
		}
		fmt.Println()
	}
	return nil
}

// mode is a way to run the router.
type mode struct {
	name  string
	flags []string
}

func parseModes(s string) ([]mode, error) {
	var out []mode
	for part := range strings.SplitSeq(s, ";") {
		name, flags, ok := strings.Cut(part, "=")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, fmt.Errorf("-modes: %q: want NAME=FLAGS", part)
		}
		out = append(out, mode{strings.TrimSpace(name), strings.Fields(flags)})
	}
	return out, nil
}
