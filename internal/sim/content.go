package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"

	"pd-router/internal/tilert"
)

// content is the KV of one request. Each row (a token's bytes in the KV and PE planes, a page in the KI plane) begins
// with the request's hash and with its own coordinates, and goes on with words that follow from both, so that a reader
// knows what it has found wherever it looks. The rows of the KV plane's layer 0 carry the script instead of words, as
// far as it goes: what the model will say.
type content struct {
	layout tilert.Layout
	hash   uint64
	tokens int
	blob   []byte // framed script, nil on the receiving side until it was read
}

const (
	rowHead   = 16 // request hash and coordinates
	blobHead  = 16 // magic, length and checksum of the script
	blobMagic = 0x74706373
)

var crcTable = crc64.MakeTable(crc64.ECMA)

// newContent returns the KV of a request. A script that does not fit into the prompt's rows is an error.
func newContent(l tilert.Layout, rid string, tokens int, script []byte) (*content, error) {
	c := &content{layout: l, hash: hashOf(rid, tokens), tokens: tokens}
	if room := c.room(); len(script) > room {
		return nil, fmt.Errorf("a script of %d bytes does not fit into the KV of %d tokens, which takes %d", len(script), tokens, room)
	}
	c.blob = make([]byte, blobHead+len(script))
	binary.LittleEndian.PutUint32(c.blob, blobMagic)
	binary.LittleEndian.PutUint32(c.blob[4:], uint32(len(script)))
	binary.LittleEndian.PutUint64(c.blob[8:], c.checksum(script))
	copy(c.blob[blobHead:], script)
	return c, nil
}

// room returns how long the script may be.
func (c *content) room() int { return c.tokens*(c.layout.KVBytes-rowHead) - blobHead }

func (c *content) checksum(script []byte) uint64 { return crc64.Checksum(script, crcTable) ^ c.hash }

// row returns the size of a row of a plane.
func (c *content) row(p tilert.Plane) int {
	switch p {
	case tilert.KV:
		return c.layout.KVBytes
	case tilert.PE:
		return c.layout.PEBytes
	}
	return tilert.IndexPageBytes
}

// rows returns how many rows a layer of a plane has.
func (c *content) rows(p tilert.Plane) int {
	if p == tilert.KI {
		return tilert.Pages(c.tokens)
	}
	return c.tokens
}

// fill writes the rows from first on into b, which holds whole rows.
func (c *content) fill(b []byte, p tilert.Plane, layer, first int) {
	size := c.row(p)
	for n := first; len(b) > 0; n, b = n+1, b[size:] {
		row := b[:size]
		at := place(p, layer, n)
		binary.LittleEndian.PutUint64(row, c.hash)
		binary.LittleEndian.PutUint64(row[8:], at)
		body := row[rowHead:]
		for x := seed(c.hash, at); len(body) >= 8; body = body[8:] {
			binary.LittleEndian.PutUint64(body, x)
			x += stride
		}
		if p == tilert.KV && layer == 0 {
			c.overlay(row, n)
		}
	}
}

// overlay puts the script's share into row n of the KV plane's layer 0.
func (c *content) overlay(row []byte, n int) {
	if from := n * (len(row) - rowHead); from < len(c.blob) {
		copy(row[rowHead:], c.blob[from:])
	}
}

// readScript takes the script out of layer 0 of the KV plane, whose rows' heads were found right.
func (c *content) readScript(layer0 []byte) ([]byte, error) {
	size := c.layout.KVBytes
	take := func(n int) []byte {
		out := make([]byte, 0, n+size)
		for row := 0; len(out) < n && row < c.tokens; row++ {
			out = append(out, layer0[row*size+rowHead:(row+1)*size]...)
		}
		return out[:min(n, len(out))]
	}
	head := take(blobHead)
	n := int(binary.LittleEndian.Uint32(head[4:]))
	if binary.LittleEndian.Uint32(head) != blobMagic || n > c.room() {
		return nil, errors.New("the script's head is damaged")
	}
	c.blob = take(blobHead + n)
	script := c.blob[blobHead:]
	if binary.LittleEndian.Uint64(head[8:]) != c.checksum(script) {
		return nil, errors.New("the script's checksum is wrong")
	}
	return script, nil
}

// place packs the coordinates of a row; it is never 0.
func place(p tilert.Plane, layer, n int) uint64 {
	return uint64(p+1)<<56 | uint64(layer)<<40 | uint64(n)
}

// placeOf unpacks coordinates, or reports that these are none.
func placeOf(at uint64) (p tilert.Plane, layer, n int, ok bool) {
	p = tilert.Plane(at>>56) - 1
	return p, int(at >> 40 & 0xffff), int(at & (1<<40 - 1)), p < tilert.NumPlanes
}

const stride = 0x9e3779b97f4a7c15

// seed spreads two words over one.
func seed(a, b uint64) uint64 {
	x := a ^ b*stride
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// hashOf stands for a request in its KV: its rid, and its length, so that not even the same rid with another prompt passes
// for it. FNV-1a, spread; it is never 0, which is what untouched memory holds.
func hashOf(rid string, tokens int) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(rid) {
		h = (h ^ uint64(rid[i])) * 1099511628211
	}
	return max(seed(h, uint64(tokens)), 1)
}
