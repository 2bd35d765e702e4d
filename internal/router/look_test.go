package router

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"pd-router/internal/metrics"
	"pd-router/internal/openai"
	"pd-router/internal/queue"
)

// Both lines of a staged router are one to whoever looks; those in the second have their KV ready.
func TestLookTellsWhoHasHisKVReady(t *testing.T) {
	o := Options{QueueTimeout: time.Minute, QueueMax: 10, QueueMaxBytes: 1 << 20, Parser: "none"}
	m := metrics.New(prometheus.NewRegistry(), MetricsOptions(o, nil, nil))
	r, err := New(o, Backends{VLLM: "http://127.0.0.1:9"}, &openai.Gate{}, nil, m, zap.NewNop())
	require.NoError(t, err)
	gone, end := context.WithCancel(context.Background())
	end()
	defer func() { require.NoError(t, r.Run(gone)) }() // only closes what New has opened
	require.Nil(t, r.Look(10).Arena, "there is none with direct handoff")

	r.line = queue.New(queue.Options{MaxWaiters: o.QueueMax, MaxBytes: o.QueueMaxBytes})
	r.arena = &arena{line: r.line, greeted: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	var waits []<-chan granted
	for _, q := range []*queue.Queue{r.line, r.line, r.queue} {
		waits = append(waits, acquiring(ctx, q, queue.Want{Bound: time.Minute}))
	}
	await(t, "all wait", func() bool { return r.Stats().Waiting == 3 })
	v := r.Look(10)
	require.Equal(t, &ArenaLook{Ready: 1}, v.Arena)
	require.Len(t, v.Waiters, 3)
	cancel()
	for _, got := range waits {
		<-got
	}
	r.arena = nil // nothing of it runs
}
