package nixl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The tests below play with the real library, over TCP on loopback. `make deps` fetches it.

// realPath finds the library that `make deps` or the environment provides.
func realPath() string {
	if path := os.Getenv(PathVariable); path != "" {
		return path
	}
	cache := os.Getenv("PD_ROUTER_CACHE")
	if cache == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return ""
		}
		cache = filepath.Join(base, "pd-router-ci")
	}
	path := filepath.Join(cache, "nixl/lib/.nixl_cu12.mesonpy.libs/libnixl_capi.so")
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

var openReal = sync.OnceValues(func() (*Library, error) { return Open(Options{Path: realPath()}) })

// realLibrary is the library, or the end of the test: skipped here, failed in CI, where nothing may go untested.
func realLibrary(t testing.TB) *Library {
	t.Helper()
	if realPath() == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("no NIXL library: run `make deps` or set " + PathVariable)
		}
		t.Skip("no NIXL library: run `make deps` or set " + PathVariable)
	}
	lib, err := openReal()
	require.NoError(t, err)
	return lib
}

// side is an agent with one region, all of it closed at the end of the test.
type side struct {
	*Agent
	mem    *Memory
	region *Region
}

func newSide(t testing.TB, lib *Library, role string, n int) *side {
	t.Helper()
	a, err := lib.NewAgent(t.Context(), role)
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
	blob, err := s.Metadata(t.Context(), as...)
	require.NoError(t, err)
	return blob
}

func (s *side) peer(t testing.TB, blob []byte) *Peer {
	t.Helper()
	p, err := s.AddPeer(t.Context(), blob)
	require.NoError(t, err)
	return p
}

// soon is a context that is long enough for whatever works.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func fill(b []byte, seed uint64) {
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	rand.NewChaCha8(key).Read(b)
}

// layerwise are spans as a KV cache of 79 layers and 100 tokens has them: three planes, each of its own size, scattered at the receiver.
func layerwise(base uint64) (spans []Span, bytes int) {
	at := base
	for range 79 {
		for _, n := range []int{52_800, 12_800, 16_896} {
			spans = append(spans, Span{Off: bytes, Len: n, Addr: at})
			bytes += n
			at += uint64(n) + 4096
		}
	}
	return spans, bytes
}

func TestWriteInOneProcess(t *testing.T) {
	lib := realLibrary(t)
	const size = 64 << 20
	to, from := newSide(t, lib, "decode", size), newSide(t, lib, "prefill", size)
	kv, _ := layerwise(to.region.Addr())
	require.Len(t, kv, 237)
	p := from.peer(t, to.metadata(t))
	for name, spans := range map[string][]Span{
		"4 KB":                          {{Off: 8192, Len: 4096, Addr: to.region.Addr() + 100}},
		"64 MB":                         {{Off: 0, Len: size, Addr: to.region.Addr()}},
		"237 descriptors of a KV cache": kv,
		"no bytes in a descriptor":      {{Off: 0, Len: 0, Addr: to.region.Addr()}, {Off: 0, Len: 1, Addr: to.region.Addr()}},
		"nothing":                       nil,
		"the last byte":                 {{Off: size - 1, Len: 1, Addr: to.region.Addr() + size - 1}},
	} {
		t.Run(name, func(t *testing.T) {
			fill(from.mem.Bytes(), uint64(len(name)))
			want := make([]byte, size)
			copy(want, to.mem.Bytes())
			for _, s := range spans {
				copy(want[s.Addr-to.region.Addr():], from.mem.Bytes()[s.Off:s.Off+s.Len])
			}
			require.NoError(t, p.Write(soon(t), from.region, spans))
			require.True(t, bytes.Equal(want, to.mem.Bytes()), "content")
		})
	}
	t.Log(lib.Info(), "UCX", lib.UCX(), runtime.Version())
	_ = errors.New
	_ = fmt.Sprint
}
