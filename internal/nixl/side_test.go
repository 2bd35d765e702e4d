package nixl

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// side is an agent with one region, all of it closed at the end of the test.
type side struct {
	*Agent
	mem    *Memory
	region *Region
}

func newSide(t testing.TB, lib *Library, role string, n int) *side {
	t.Helper()
	a, err := lib.NewAgent(context.Background(), role)
	require.NoError(t, err)
	return withMemory(t, a, n)
}

func withMemory(t testing.TB, a *Agent, n int) *side {
	t.Helper()
	mem, err := NewMemory(n, false)
	require.NoError(t, err)
	region, err := a.Register(context.Background(), mem, 0, n)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, a.Close())
		require.NoError(t, mem.Close())
	})
	return &side{a, mem, region}
}

func (s *side) metadata(t testing.TB, as ...MemType) []byte {
	t.Helper()
	blob, err := s.Metadata(context.Background(), as...)
	require.NoError(t, err)
	return blob
}

func (s *side) peer(t testing.TB, blob []byte) *Peer {
	t.Helper()
	p, err := s.AddPeer(context.Background(), blob)
	require.NoError(t, err)
	return p
}

// soon is a context that is long enough for whatever works.
func soon(t testing.TB) context.Context { return within(t, 30*time.Second) }

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// fill makes content in which no two pages are alike.
func fill(b []byte, seed byte) {
	var page [4096]byte
	rand.NewChaCha8([32]byte{seed}).Read(page[:])
	for at := 0; at < len(b); at += len(page) {
		binary.LittleEndian.PutUint64(page[:], uint64(at))
		copy(b[at:], page[:])
	}
}

// layerwise are spans as a KV cache of 79 layers and 100 tokens has them: three planes, each of its own size, scattered at the receiver.
func layerwise(base uint64) []Span {
	var spans []Span
	off, at := 0, base
	for range 79 {
		for _, n := range []int{52_800, 12_800, 16_896} {
			spans = append(spans, Span{Off: off, Len: n, Addr: at})
			off += n
			at += uint64(n) + 4096
		}
	}
	return spans
}

// image is what the receiver's memory holds after spans were written from src into before.
func image(before, src []byte, base uint64, spans []Span) []byte {
	out := append([]byte(nil), before...)
	for _, s := range spans {
		copy(out[s.Addr-base:], src[s.Off:s.Off+s.Len])
	}
	return out
}
