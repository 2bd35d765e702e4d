package staging

import (
	"fmt"
	"hash/crc32"
	"time"

	"pd-router/internal/tilert"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum sums up the bytes of the prompt, without the room behind it.
func (kv *KV) checksum() uint32 {
	s := kv.s
	layout, all, n := s.a.o.Layout, s.mem.Bytes(), kv.SeqLen()
	planes := layout.Region(s.room, 0)
	var sum uint32
	for layer := range layout.Layers {
		for p := range tilert.NumPlanes {
			at := layout.Address(planes, p, layer)
			sum = crc32.Update(sum, castagnoli, all[at:at+uint64(layout.RowBytes(p, n))])
		}
	}
	return sum
}

// unchanged compares what has been sent with what had come, if this transfer is verified.
func (kv *KV) unchanged() error {
	if !kv.verify {
		return nil
	}
	if now := kv.checksum(); now != kv.sum {
		return fmt.Errorf("%w: checksum %08x when sent, %08x when received", Corrupt, now, kv.sum)
	}
	return nil
}

// account is what there is to tell of a hop.
func (kv *KV) account(hop Hop, err *Error) Transfer {
	kv.s.mu.Lock()
	defer kv.s.mu.Unlock()
	t := Transfer{Slot: kv.s, Hop: hop}
	if err != nil {
		t.Reason = err.Reason
	}
	if in := kv.in; in != nil {
		layout := kv.s.a.o.Layout
		t.Bytes, t.Descriptors = layout.Bytes(in.seqLen), layout.Layers*int(tilert.NumPlanes)
		if t.Seconds = in.took.Seconds(); in.transfer == nil {
			t.Seconds = time.Since(in.began).Seconds()
		}
	}
	return t
}

func (a *Arena) report(t Transfer) {
	if a.o.Observe.Transfer != nil {
		a.o.Observe.Transfer(t)
	}
}
