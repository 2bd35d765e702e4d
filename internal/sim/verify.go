package sim

import (
	"encoding/binary"
	"fmt"

	"pd-router/internal/tilert"
)

// verify compares the buffer with the KV that a request of so many tokens must have, and returns the script in it. The
// first difference is the error, which says what was found there. Rows beyond the prompt must not be the request's.
func verify(a *arena, rid string, tokens int) (script []byte, err error) {
	c := &content{layout: a.layout, hash: hashOf(rid, tokens), tokens: tokens}
	if tokens < 1 || tokens > a.region.MaxSeqLen {
		return nil, fmt.Errorf("KV check: %d tokens in a buffer for %d", tokens, a.region.MaxSeqLen)
	}
	layer0 := a.layer(tilert.KV, 0)
	for n := range tokens {
		if err := c.head(layer0[n*c.layout.KVBytes:], tilert.KV, 0, n); err != nil {
			return nil, err
		}
	}
	if script, err = c.readScript(layer0); err != nil {
		return nil, fmt.Errorf("KV check: KV plane, layer 0: %w", err)
	}
	for layer := range a.layout.Layers {
		for p := range tilert.NumPlanes {
			if err := c.compare(a.layer(p, layer), p, layer); err != nil {
				return nil, err
			}
		}
	}
	return script, nil
}

// compare checks one layer of a plane, b being all the room that it has.
func (c *content) compare(b []byte, p tilert.Plane, layer int) error {
	size, rows := c.row(p), c.rows(p)
	want := make([]byte, size)
	for n := range rows {
		row := b[n*size : (n+1)*size]
		if err := c.head(row, p, layer, n); err != nil {
			return err
		}
		if c.same(row, p, layer, n, want) {
			continue
		}
		c.fill(want, p, layer, n)
		for i := range row {
			if row[i] != want[i] {
				return fmt.Errorf("KV check: %s plane, layer %d, %s %d: byte %d is %#02x, want %#02x", p, layer, unit(p), n, i, row[i], want[i])
			}
		}
	}
	if end := b[rows*size:]; len(end) >= size && binary.LittleEndian.Uint64(end) == c.hash {
		return fmt.Errorf("KV check: %s plane, layer %d: more than %d %ss were written", p, layer, rows, unit(p))
	}
	return nil
}

// same compares one row's words without making them first. False is not yet a difference.
func (c *content) same(row []byte, p tilert.Plane, layer, n int, scratch []byte) bool {
	if p == tilert.KV && layer == 0 {
		c.fill(scratch, p, layer, n)
		return string(row) == string(scratch)
	}
	body := row[rowHead:]
	for x := seed(c.hash, place(p, layer, n)); len(body) >= 8; body = body[8:] {
		if binary.LittleEndian.Uint64(body) != x {
			return false
		}
		x += stride
	}
	return true
}

// head checks whose row this is and which one.
func (c *content) head(row []byte, p tilert.Plane, layer, n int) error {
	hash, at := binary.LittleEndian.Uint64(row), binary.LittleEndian.Uint64(row[8:])
	if hash == c.hash && at == place(p, layer, n) {
		return nil
	}
	where := fmt.Sprintf("KV check: %s plane, layer %d, %s %d", p, layer, unit(p), n)
	fp, fl, fn, known := placeOf(at)
	switch {
	case hash == 0 && at == 0:
		return fmt.Errorf("%s: nothing was written there", where)
	case hash == c.hash && known:
		return fmt.Errorf("%s: holds %s plane, layer %d, %s %d of the request: written to the wrong place", where, fp, fl, unit(fp), fn)
	case known && at == place(p, layer, n):
		return fmt.Errorf("%s: holds the bytes of another request", where)
	}
	return fmt.Errorf("%s: holds bytes that are no row's: damaged, or written across rows", where)
}

func unit(p tilert.Plane) string {
	if p == tilert.KI {
		return "page"
	}
	return "token"
}
