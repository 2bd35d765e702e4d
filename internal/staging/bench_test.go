package staging

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"pd-router/internal/tilert"
)

// BenchmarkHops is one request through the arena: what it takes to come, with 8 ranks, and to go. bytes/s is of the second alone.
func BenchmarkHops(b *testing.B) {
	for _, bc := range []struct {
		name   string
		layout tilert.Layout
		tokens int
	}{
		{"tiny_64", tiny, 64},
		{"glm5_100", glm5(b), 100},
		{"glm5_1000", glm5(b), 1000},
	} {
		b.Run(bc.name, func(b *testing.B) {
			room := tilert.Pages(bc.tokens) * tilert.PageTokens
			a, w := openArena(b, Options{Layout: bc.layout, Sizes: []Size{{1, room}}, Log: zap.NewNop()})
			p, n, s := newPrefill(b, bc.layout, room, 8), startNode(b, nodeOptions{layout: bc.layout, room: room}), a.Slots()[0]
			ctx := within(b, 100*time.Second)
			var in, out time.Duration
			i := 0
			for b.Loop() {
				i++
				kv, err := s.Expect(rid(i))
				require.NoError(b, err)
				began := time.Now()
				require.NoError(b, p.send(ctx, s, tilert.Request{RID: rid(i), SeqLen: bc.tokens}))
				require.NoError(b, kv.Receive(ctx, rid(i)))
				in += time.Since(began)
				began = time.Now()
				require.NoError(b, kv.Send(ctx, n.target()))
				out += time.Since(began)
				<-n.complete
				kv.Release()
				w.free(b, s)
			}
			b.ReportMetric(in.Seconds()*1e3/float64(b.N), "in-ms")
			b.ReportMetric(out.Seconds()*1e3/float64(b.N), "out-ms")
			b.ReportMetric(float64(bc.layout.Bytes(bc.tokens))*float64(b.N)/out.Seconds()/1e9, "out-GB/s")
			b.ReportAllocs()
		})
	}
}

// BenchmarkChecksum is what verifying costs, twice a transfer.
func BenchmarkChecksum(b *testing.B) {
	a, _ := openArena(b, Options{Layout: glm5(b), Sizes: []Size{{1, 1024}}, Senders: 1, Log: zap.NewNop()})
	s := a.Slots()[0]
	kv := expect(b, s, "x")
	handshake(b, s, "x", 1000)
	require.NoError(b, kv.Receive(within(b, time.Minute), "x"))
	b.SetBytes(kv.Bytes())
	b.ReportAllocs()
	for b.Loop() {
		kv.checksum()
	}
}
