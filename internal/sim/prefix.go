package sim

import (
	"hash/maphash"
	"math/bits"
	"sync"
)

const (
	tokenBytes  = 4  // of a prompt's JSON
	blockTokens = 64 // that are cached together
	blockBytes  = tokenBytes * blockTokens

	// cacheBlocks is how many blocks the cache keeps, 8 million tokens. When it is full the older half goes.
	cacheBlocks = 128 << 10
)

// prefixCache remembers the blocks of earlier prompts. A block's key covers all that stands before it, so that the
// longest common prefix with any earlier prompt is found by walking through the prompt's own blocks.
type prefixCache struct {
	seed maphash.Seed

	mu       sync.Mutex
	now, old map[uint64]struct{} // keys of this and of the former generation
}

func newPrefixCache() *prefixCache {
	return &prefixCache{seed: maphash.MakeSeed(), now: map[uint64]struct{}{}}
}

// visit returns how many leading blocks of the prompt are known, and remembers all of them.
func (c *prefixCache) visit(prompt ...[]byte) (known int) {
	keys := c.keys(prompt)
	c.mu.Lock()
	defer c.mu.Unlock()
	for known < len(keys) && c.has(keys[known]) {
		known++
	}
	for _, k := range keys {
		c.now[k] = struct{}{}
	}
	if len(c.now) >= cacheBlocks/2 {
		c.old, c.now = c.now, map[uint64]struct{}{}
	}
	return known
}

func (c *prefixCache) has(key uint64) bool {
	if _, ok := c.now[key]; ok {
		return true
	}
	_, ok := c.old[key]
	return ok
}

// keys chains the hashes of the full blocks of the prompt's parts. Each part is cut for itself; what is left over at its
// end is in the keys of the parts behind it.
func (c *prefixCache) keys(prompt [][]byte) (keys []uint64) {
	key := uint64(1)
	for _, part := range prompt {
		for ; len(part) >= blockBytes; part = part[blockBytes:] {
			key = bits.RotateLeft64(key*stride, 31) ^ maphash.Bytes(c.seed, part[:blockBytes])
			keys = append(keys, key)
		}
		key ^= maphash.Bytes(c.seed, part)
	}
	return keys
}
