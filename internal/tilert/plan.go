package tilert

import (
	"fmt"
	"math"
)

// Region is where the planes of one buffer are: on one piece of memory, or spread over shards. Layer l lives in shard
// l mod n, as that shard's layer l div n.
type Region struct {
	MaxSeqLen int // tokens that each layer has room for
	Base      [NumPlanes][]uint64
}

// Shards returns the number of shards.
func (r Region) Shards() int { return len(r.Base[KV]) }

// Region lays the planes out on shards that begin at the given addresses: KV, PE and KI of all the shard's layers, one
// after the other without gaps.
func (l Layout) Region(maxSeqLen int, starts ...uint64) Region {
	r := Region{MaxSeqLen: maxSeqLen}
	layers := l.shardLayers(len(starts))
	for _, at := range starts {
		for p := range NumPlanes {
			r.Base[p] = append(r.Base[p], at)
			at += uint64(layers) * uint64(l.RowBytes(p, maxSeqLen))
		}
	}
	return r
}

// ShardBytes returns the size of each of n shards of a buffer.
func (l Layout) ShardBytes(maxSeqLen, n int) int64 {
	whole := l
	whole.Layers = l.shardLayers(n)
	return whole.Bytes(maxSeqLen)
}

// shardLayers returns for how many layers each of n shards has room.
func (l Layout) shardLayers(n int) int { return (l.Layers + n - 1) / max(n, 1) }

// Region returns where the hello says that the planes are.
func (h *Hello) Region() Region {
	return Region{MaxSeqLen: h.MaxSeqLen, Base: [NumPlanes][]uint64{h.KVBase, h.PEBase, h.KIBase}}
}

// SetRegion makes the hello say where the planes are.
func (h *Hello) SetRegion(r Region) {
	h.MaxSeqLen, h.KVBase, h.PEBase, h.KIBase = r.MaxSeqLen, r.Base[KV], r.Base[PE], r.Base[KI]
}

// Address returns where a layer of a plane begins. The region must have the layout's shards.
func (l Layout) Address(r Region, p Plane, layer int) uint64 {
	shard, local := layer%r.Shards(), layer/r.Shards()
	return r.Base[p][shard] + uint64(local)*uint64(l.RowBytes(p, r.MaxSeqLen))
}

// Write is one piece of memory that goes from a sender to a receiver.
type Write struct {
	Src, Dst uint64
	Len      int
	Plane    Plane
	Layer    int
}

// LayerWrites are the three writes that bring n tokens of one layer from src to dst.
func (l Layout) LayerWrites(src, dst Region, layer, n int) [NumPlanes]Write {
	var out [NumPlanes]Write
	for p := range NumPlanes {
		out[p] = Write{Src: l.Address(src, p, layer), Dst: l.Address(dst, p, layer), Len: int(l.RowBytes(p, n)), Plane: p, Layer: layer}
	}
	return out
}

// RankLayers returns the layers that a rank sends, in order: those with layer mod senders = rank.
func (l Layout) RankLayers(rank, senders int) []int {
	var layers []int
	for layer := rank; layer < l.Layers; layer += max(senders, 1) {
		layers = append(layers, layer)
	}
	return layers
}

// Plan returns all writes of one rank. src may be one region for all ranks, or one shard a sender (Region with as many
// starts as senders), of which only the rank's own is read from.
func (l Layout) Plan(src, dst Region, rank, senders, n int) []Write {
	layers := l.RankLayers(rank, senders)
	out := make([]Write, 0, len(layers)*int(NumPlanes))
	for _, layer := range layers {
		w := l.LayerWrites(src, dst, layer, n)
		out = append(out, w[:]...)
	}
	return out
}

// CheckRegion tells whether a hello's region can take n tokens of this layout without an address running over.
func (l Layout) CheckRegion(r Region, n int) error {
	if r.Shards() == 0 || n > r.MaxSeqLen || r.MaxSeqLen > math.MaxInt32 {
		return fmt.Errorf("plan: no room for %d tokens in %d shards of %d", n, r.Shards(), r.MaxSeqLen)
	}
	for p := range NumPlanes {
		size := uint64(l.shardLayers(r.Shards())) * uint64(l.RowBytes(p, r.MaxSeqLen))
		for _, base := range r.Base[p] {
			if base > math.MaxUint64-size {
				return fmt.Errorf("plan: %s plane at %#x runs over the end of memory", p, base)
			}
		}
	}
	return nil
}
