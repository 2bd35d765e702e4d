package probe

import (
	"context"
	"sync"
	"time"

	"pd-router/internal/nodes"
)

// Targets are the nodes of one router.
type Targets struct {
	VLLM   string          // base URL of the prefill node
	Decode []nodes.Address // decode nodes
}

// Options are the limits and helpers of a probe.
type Options struct {
	// Limit of each check but the two below. 0 is 5 s.
	Limit time.Duration
	// TokenLimit of the one-token call, which waits behind what vLLM computes. 0 is 60 s.
	TokenLimit time.Duration
	// ConnectLimit of Connect. 0 is 15 s.
	ConnectLimit time.Duration
	// Connect has a NIXL agent of this host take the node with that metadata as a peer. It writes nothing, ends with ctx, and is called for
	// several nodes at once. nil: not checked.
	Connect func(ctx context.Context, metadata []byte) error
	// APIKey is what vLLM was started with (--api-key); without it the checks that need one are unchecked.
	APIKey string
	// Progress is told every few seconds of each check that has been running for that long, from one goroutine, never after Run has
	// returned. nil: nobody is told.
	Progress func(node, check string, since time.Duration)
}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{{&o.Limit, 5 * time.Second}, {&o.TokenLimit, time.Minute}, {&o.ConnectLimit, 15 * time.Second}} {
		if *d.v <= 0 {
			*d.v = d.def
		}
	}
	return o
}

// Run looks at all nodes. It returns when everything has been looked at, or soon after the end of ctx: what was under way then has failed.
func Run(ctx context.Context, t Targets, o Options) Report {
	start := time.Now()
	s := newSession(o.withDefaults())
	prefill := newPrefill(s, t.VLLM)
	decode := make([]*decodeProbe, len(t.Decode))
	var g sync.WaitGroup
	g.Go(func() { prefill.run(ctx) })
	for i, a := range t.Decode {
		decode[i] = newDecode(s, a)
		g.Go(func() { decode[i].run(ctx) })
	}
	stop := s.tellProgress()
	g.Wait()
	stop()

	r := Report{Format: Format, Prefill: prefill.found, Decode: make([]DecodeNode, len(decode)), Checks: prefill.checks}
	for i, d := range decode {
		r.Decode[i] = d.found()
		r.Checks = append(append(r.Checks, d.ctrl.checks...), d.http.checks...)
	}
	all := &list{session: s, node: groupAll}
	compare(all, prefill, decode)
	r.Checks = append(r.Checks, all.checks...)
	r.OK = r.Count(Fail) == 0
	r.TookMS = milliseconds(time.Since(start))
	return r
}
