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
	freed  sync.Once
}

func newArena(l tilert.Layout, maxSeqLen, shards int) (*arena, error) {
	size := l.ShardBytes(maxSeqLen, shards)
	mem, err := mapMemory(int(size) * shards)
	if err != nil {
		return nil, fmt.Errorf("receive buffer of %d bytes: %w", size*int64(shards), err)
	}
	base := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
	starts := make([]uint64, shards)
	for i := range starts {
		starts[i] = base + uint64(i)*uint64(size)
	}
	return &arena{mem: mem, base: base, layout: l, region: l.Region(maxSeqLen, starts...)}, nil
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
	a.freed.Do(func() { err = unmapMemory(a.mem) })
	return err
}
