package nixl

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkWriteOverhead is what a small write costs beside the library.
func BenchmarkWriteOverhead(b *testing.B) {
	d := newFakeDriver(b)
	d.begin = func(string, int) Code { return Success }
	lib := &Library{drv: d}
	a, err := lib.NewAgent(b.Context(), "bench")
	require.NoError(b, err)
	s := withMemory(b, a, 1<<20)
	p := s.peer(b, fakeBlob("peer", 1))
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	for _, tc := range []struct {
		name  string
		spans []Span
	}{
		{"one span", []Span{{Len: 4096, Addr: fakeBase}}},
		{"237 spans", func() []Span {
			s := layerwise(fakeBase)
			for i := range s {
				s[i].Off, s[i].Len = 0, 200
			}
			return s
		}()},
	} {
		b.Run(tc.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := p.Write(ctx, s.region, tc.spans); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
