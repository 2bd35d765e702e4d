//go:build cgo && linux

package nixl

import (
	"bytes"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const large = 64 << 20

func TestRealWriteInOneProcess(t *testing.T) {
	lib := realLibrary(t)
	to, from := newSide(t, lib, "decode", large), newSide(t, lib, "prefill", large)
	base := to.region.Addr()
	p := from.peer(t, to.metadata(t))
	require.Len(t, layerwise(base), 237)
	for i, tc := range []struct {
		name  string
		spans []Span
	}{
		{"nothing", nil},
		{"4 KB", []Span{{Off: 8192, Len: 4096, Addr: base + 100}}},
		{"64 MB", []Span{{Off: 0, Len: large, Addr: base}}},
		{"237 descriptors of a KV cache", layerwise(base)},
		{"a descriptor without bytes beside one with", []Span{{Off: 0, Len: 0, Addr: base}, {Off: 0, Len: 1, Addr: base}}},
		{"the last byte", []Span{{Off: large - 1, Len: 1, Addr: base + large - 1}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fill(from.mem.Bytes(), byte(i))
			want := image(to.mem.Bytes(), from.mem.Bytes(), base, tc.spans)
			require.NoError(t, p.Write(soon(t), from.region, tc.spans))
			require.True(t, bytes.Equal(want, to.mem.Bytes()), "content")
		})
	}
	t.Log(lib.Info(), "UCX", lib.UCX())
	require.NotEmpty(t, lib.UCX())
}

func TestRealWriteToAnotherProcess(t *testing.T) {
	lib := realLibrary(t)
	o := startOther(t, "receiver", large)
	from := newSide(t, lib, "prefill", large)
	p := from.peer(t, o.Blob)
	require.Equal(t, "receiver", p.Name())
	before := make([]byte, large)
	for i, spans := range [][]Span{{{Off: 1, Len: 4096, Addr: o.Base + 7}}, {{Off: 0, Len: large, Addr: o.Base}}, layerwise(o.Base)} {
		fill(from.mem.Bytes(), byte(i))
		before = image(before, from.mem.Bytes(), o.Base, spans)
		require.NoError(t, p.Write(soon(t), from.region, spans))
		o.holds(before)
	}
	o.end()
}

func TestRealManyWritesAtOnce(t *testing.T) {
	lib := realLibrary(t)
	const part = 1 << 20
	to, from := newSide(t, lib, "decode", 8*part), newSide(t, lib, "prefill", 8*part)
	p := from.peer(t, to.metadata(t))
	fill(from.mem.Bytes(), 3)
	ctx := soon(t)
	var wg sync.WaitGroup
	errs := make(chan error, 8*50)
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				n := 4096 << (i % 9) // up to 1 MB: on the caller's goroutine and on one of its own
				errs <- p.Write(ctx, from.region, []Span{{Off: g * part, Len: n, Addr: to.region.Addr() + uint64(g*part)}})
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.True(t, bytes.Equal(from.mem.Bytes(), to.mem.Bytes()))
}

// A peer that takes all memory for its own kind (TileRT's sender on a GPU) describes ours as GPU memory.
func TestRealHostMemoryPresentedAsGPUMemory(t *testing.T) {
	lib := realLibrary(t)
	to, from := newSide(t, lib, "decode", 1<<20), newSide(t, lib, "prefill", 1<<20)
	for i, as := range [][]MemType{{VRAM}, {DRAM, VRAM}, {DRAM}} {
		p := from.peer(t, to.metadata(t, as...))
		require.Len(t, p.mem, len(as))
		require.Equal(t, as[0], p.mem[0].mem)
		fill(from.mem.Bytes(), byte(i))
		require.NoError(t, p.Write(soon(t), from.region, []Span{{Len: 1 << 20, Addr: to.region.Addr()}}))
		require.True(t, bytes.Equal(from.mem.Bytes(), to.mem.Bytes()))
	}
}

func TestRealSpansOutsideAreRefusedAndTheRestGoesOn(t *testing.T) {
	lib := realLibrary(t)
	to, from := newSide(t, lib, "decode", 1<<20), newSide(t, lib, "prefill", 1<<20)
	p := from.peer(t, to.metadata(t))
	base := to.region.Addr()
	for name, span := range map[string]Span{
		"the peer's end":      {Off: 0, Len: 2, Addr: base + 1<<20 - 1},
		"before the peer's":   {Off: 0, Len: 1, Addr: base - 1},
		"an address overflow": {Off: 0, Len: 4096, Addr: ^uint64(0) - 10},
		"our end":             {Off: 1<<20 - 1, Len: 2, Addr: base},
		"before ours":         {Off: -1, Len: 2, Addr: base},
		"a negative length":   {Off: 1, Len: -1, Addr: base},
	} {
		require.ErrorIs(t, p.Write(soon(t), from.region, []Span{span}), ErrRange, name)
	}
	require.ErrorIs(t, p.Write(soon(t), to.region, []Span{{Len: 1, Addr: base}}), ErrRange, "the region of another agent")
	require.NoError(t, p.Write(soon(t), from.region, []Span{{Len: 1, Addr: base}}))
}

// Invariant 7. None of these may reach the library: some would end this process.
func TestRealDamagedMetadataHarmsNothing(t *testing.T) {
	lib := realLibrary(t)
	to, from := newSide(t, lib, "decode", 1<<20), newSide(t, lib, "prefill", 1<<20)
	blob := to.metadata(t)
	for cut := range len(blob) {
		_, err := from.AddPeer(soon(t), blob[:cut])
		require.ErrorIs(t, err, ErrMetadata, "cut at %d", cut)
	}
	m, err := ParseMetadata(blob)
	require.NoError(t, err)
	info := bytes.Clone(m.ucxInfo())
	for nibble := byte(2); nibble < 16; nibble++ {
		m.Conns[0].Info = append([]byte{info[0]&0xf0 | nibble}, info[1:]...)
		_, err := from.AddPeer(soon(t), m.Marshal())
		require.ErrorIs(t, err, ErrMetadata, "UCX address of format %d", nibble)
	}
	_, err = from.AddPeer(soon(t), from.metadata(t))
	require.ErrorIs(t, err, ErrMetadata, "its own")
	p := from.peer(t, blob)
	require.NoError(t, p.Write(soon(t), from.region, []Span{{Len: 100, Addr: to.region.Addr()}}))
}

func TestRealTheSameMetadataGivesTheSamePeer(t *testing.T) {
	lib := realLibrary(t)
	to, from := newSide(t, lib, "decode", 1<<20), newSide(t, lib, "prefill", 1<<20)
	blob := to.metadata(t)
	p := from.peer(t, blob)
	require.Same(t, p, from.peer(t, bytes.Clone(blob)))
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	require.ErrorIs(t, p.Write(soon(t), from.region, []Span{{Len: 1, Addr: to.region.Addr()}}), ErrClosed)
	again := from.peer(t, blob)
	require.NotSame(t, p, again)
	require.NoError(t, again.Write(soon(t), from.region, []Span{{Len: 1, Addr: to.region.Addr()}}))
}

// UCX takes SIGHUP unless it is told not to, and a router wants it.
func TestRealSignalsStayWithGo(t *testing.T) {
	lib := realLibrary(t)
	newSide(t, lib, "decode", 4096)
	got := make(chan os.Signal, 1)
	signal.Notify(got, syscall.SIGHUP)
	defer signal.Stop(got)
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	select {
	case <-got:
	case <-time.After(10 * time.Second):
		t.Fatal("SIGHUP did not arrive")
	}
	func() { // and faults of Go code stay Go's
		defer func() { require.NotNil(t, recover()) }()
		var p *Metadata
		p.Agent = "x"
	}()
}

func TestRealFailuresOfTheLibraryAreTyped(t *testing.T) {
	lib := realLibrary(t)
	a := newSide(t, lib, "decode", 4096)
	err := a.drv.invalidate(a.h, "nobody")
	call := new(CallError)
	require.ErrorAs(t, err, &call)
	require.Equal(t, "nobody", call.Peer)
	require.ErrorIs(t, err, ErrRefused)
	require.True(t, errors.Is(err, NotFound) || errors.Is(err, Backend), "%v: before generation 2 all is -2", err)
}
