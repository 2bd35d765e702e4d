package sim

import (
	"fmt"
	"sync"
	"unsafe"

	"pd-router/internal/tilert"
)

// arena is the receive buffer: one piece of memory, on which the layout's shards lie one after the other.
type arena struct {
	mem    []byte
	base   uint64
	layout tilert.Layout
	region tilert.Region
	unmap  func() error
	freed  sync.Once
}

// newArena lays a buffer out on memory that only this process writes to.
func newArena(l tilert.Layout, maxSeqLen, shards int) (*arena, error) {
	mem, err := mapMemory(arenaBytes(l, maxSeqLen, shards))
	if err != nil {
		return nil, fmt.Errorf("receive buffer of %d bytes: %w", arenaBytes(l, maxSeqLen, shards), err)
	}
	return layArena(l, maxSeqLen, shards, mem, func() error { return unmapMemory(mem) }), nil
}

// layArena lays a buffer out on mem, which has arenaBytes. The arena owns it and gives it back by unmap.
func layArena(l tilert.Layout, maxSeqLen, shards int, mem []byte, unmap func() error) *arena {
	base := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
	starts := make([]uint64, shards)
	for i := range starts {
		starts[i] = base + uint64(i)*uint64(l.ShardBytes(maxSeqLen, shards))
	}
	return &arena{mem: mem, base: base, layout: l, region: l.Region(maxSeqLen, starts...), unmap: unmap}
}

func arenaBytes(l tilert.Layout, maxSeqLen, shards int) int {
	return int(l.ShardBytes(maxSeqLen, shards)) * shards
}

// at returns n bytes at an absolute address, or false if any of them lies outside.
func (a *arena) at(addr, n uint64) ([]byte, bool) {
	off := addr - a.base
	if addr < a.base || off > uint64(len(a.mem)) || n > uint64(len(a.mem))-off {
		return nil, false
	}
	return a.mem[off : off+n : off+n], true
}

// layer returns the room of one layer of a plane.
func (a *arena) layer(p tilert.Plane, layer int) []byte {
	b, _ := a.at(a.layout.Address(a.region, p, layer), uint64(a.layout.RowBytes(p, a.region.MaxSeqLen)))
	return b
}

// free gives the memory back, once. Nobody may hold a piece of it any more.
func (a *arena) free() (err error) {
	a.freed.Do(func() { err = a.unmap() })
	return err
}
