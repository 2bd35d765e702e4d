package sim

import (
	"fmt"
	"testing"

	"pd-router/internal/tilert"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// placeAll writes a whole request into the buffer, as a sender with one rank does.
func placeAll(t require.TestingT, a *arena, rid string, tokens int, script string) {
	c, err := newContent(a.layout, rid, tokens, []byte(script))
	require.NoError(t, err)
	for _, w := range a.layout.Plan(a.region, a.region, 0, 1, tokens) {
		b, ok := a.at(w.Dst, uint64(w.Len))
		require.True(t, ok)
		c.fill(b, w.Plane, w.Layer, 0)
	}
}

func testArena(t testing.TB, l tilert.Layout, maxSeqLen, shards int) *arena {
	a, err := newArena(l, maxSeqLen, shards)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, a.free()) })
	return a
}

// Invariant 2, on the bytes alone.
func TestVerify(t *testing.T) {
	const tokens, script = 100, `{"say":"hello"}`
	kv := func(a *arena, p tilert.Plane, layer, n int) []byte {
		size := (&content{layout: a.layout}).row(p)
		return a.layer(p, layer)[n*size : (n+1)*size]
	}
	for _, tc := range []struct {
		name   string
		damage func(a *arena)
		want   string // "" is a good request
	}{
		{"what was sent is found", func(*arena) {}, ""},
		{"what an older request left behind the prompt does not matter", func(a *arena) {
			placeAll(t, a, "older", 200, "")
			placeAll(t, a, "r", tokens, script)
		}, ""},
		{"a flipped byte in the KV plane", func(a *arena) { kv(a, tilert.KV, 3, 17)[100] ^= 1 }, "KV plane, layer 3, token 17: byte 100"},
		{"a flipped byte in the PE plane", func(a *arena) { kv(a, tilert.PE, 7, 99)[127] ^= 0x80 }, "PE plane, layer 7, token 99: byte 127"},
		{"a flipped byte in the KI plane", func(a *arena) { kv(a, tilert.KI, 0, 1)[8447] ^= 1 }, "KI plane, layer 0, page 1: byte 8447"},
		{"a flipped byte in the script", func(a *arena) { kv(a, tilert.KV, 0, 0)[rowHead+blobHead+1] ^= 1 }, "checksum"},
		{"a flipped byte in the script's head", func(a *arena) { kv(a, tilert.KV, 0, 0)[rowHead] ^= 1 }, "head is damaged"},
		{"a flipped byte in a row's head", func(a *arena) { kv(a, tilert.KV, 2, 5)[0] ^= 1 }, "KV plane, layer 2, token 5: holds"},
		{"a row of another request", func(a *arena) {
			(&content{layout: a.layout, hash: hashOf("other", tokens), tokens: tokens}).fill(kv(a, tilert.PE, 1, 4), tilert.PE, 1, 4)
		}, "PE plane, layer 1, token 4: holds the bytes of another request"},
		{"all of another request", func(a *arena) { placeAll(t, a, "other", tokens, script) }, "token 0: holds the bytes of another request"},
		{"a row of another layer", func(a *arena) { copy(kv(a, tilert.KV, 5, 9), kv(a, tilert.KV, 4, 9)) }, "layer 5, token 9: holds KV plane, layer 4, token 9 of the request"},
		{"rows moved by one", func(a *arena) { b := a.layer(tilert.KV, 6); copy(b[528:101*528], b[:100*528]) }, "layer 6, token 1: holds KV plane, layer 6, token 0"},
		{"rows moved by some bytes", func(a *arena) { b := a.layer(tilert.KV, 6); copy(b[5:], b[:100*528]) }, "layer 6, token 0: holds bytes that are no row's"},
		{"a row that never came", func(a *arena) { clear(kv(a, tilert.PE, 6, 99)) }, "PE plane, layer 6, token 99: nothing was written there"},
		{"a page that never came", func(a *arena) { clear(kv(a, tilert.KI, 6, 1)) }, "KI plane, layer 6, page 1: nothing"},
		{"a row too many", func(a *arena) {
			(&content{layout: a.layout, hash: hashOf("r", tokens), tokens: tokens}).fill(kv(a, tilert.PE, 2, tokens), tilert.PE, 2, tokens)
		}, "PE plane, layer 2: more than 100 tokens"},
		{"a longer prompt of the same rid", func(a *arena) { placeAll(t, a, "r", tokens+1, script) }, "another request"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := testArena(t, tilert.Tiny, 256, 1)
			placeAll(t, a, "r", tokens, script)
			tc.damage(a)
			got, err := verify(a, "r", tokens)
			if tc.want == "" {
				require.NoError(t, err)
				assert.Equal(t, script, string(got))
				return
			}
			require.Error(t, err)
			assert.Contains(t, err.Error(), tc.want)
		})
	}
}

// Whatever byte of a request is changed, it is found; and whatever the layout, what was written is found right.
func TestVerifyFindsAnyFlippedByte(t *testing.T) {
	type variant struct {
		dtype  string
		shards int
	}
	arenas := map[variant]*arena{}
	for _, dtype := range []string{"fp8", "bf16", "fp8_rocm"} {
		for _, shards := range []int{1, 3} {
			l, err := tilert.LayoutOf("dsv32", tilert.LayoutOptions{DType: dtype})
			require.NoError(t, err)
			l.Layers = 5
			arenas[variant{dtype, shards}] = testArena(t, l, 130, shards)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a := arenas[variant{rapid.SampledFrom([]string{"fp8", "bf16", "fp8_rocm"}).Draw(t, "dtype"), rapid.SampledFrom([]int{1, 3}).Draw(t, "shards")}]
		tokens := rapid.IntRange(1, 130).Draw(t, "tokens")
		rid := rapid.StringMatching(`[a-z]{1,8}`).Draw(t, "rid")
		script := rapid.StringMatching(`[a-z ]{0,300}`).Draw(t, "script")
		placeAll(t, a, rid, tokens, script)
		got, err := verify(a, rid, tokens)
		require.NoError(t, err)
		require.Equal(t, script, string(got))

		w := rapid.SampledFrom(a.layout.Plan(a.region, a.region, 0, 1, tokens)).Draw(t, "write")
		b, _ := a.at(w.Dst, uint64(w.Len))
		i := rapid.IntRange(0, w.Len-1).Draw(t, "byte")
		b[i] ^= byte(rapid.IntRange(1, 255).Draw(t, "by"))
		_, err = verify(a, rid, tokens)
		require.Error(t, err)
	})
}

func TestAScriptThatDoesNotFit(t *testing.T) {
	c := &content{layout: tilert.Tiny, tokens: 2}
	_, err := newContent(tilert.Tiny, "r", 2, make([]byte, c.room()))
	require.NoError(t, err)
	_, err = newContent(tilert.Tiny, "r", 2, make([]byte, c.room()+1))
	require.Error(t, err)
	assert.Equal(t, 2*512-16, c.room())
}

func TestAnArenaHasBounds(t *testing.T) {
	a := testArena(t, tilert.Tiny, 64, 2)
	size := uint64(len(a.mem))
	assert.Equal(t, uint64(tilert.Tiny.Bytes(64)), size)
	for _, tc := range []struct {
		addr, n uint64
		ok      bool
	}{{a.base, size, true}, {a.base, size + 1, false}, {a.base - 1, 1, false}, {a.base + size, 0, true}, {a.base + size, 1, false}, {1<<64 - 1, 1, false}, {a.base, 1<<64 - 1, false}} {
		_, ok := a.at(tc.addr, tc.n)
		assert.Equal(t, tc.ok, ok, "%#x+%d", tc.addr-a.base, tc.n)
	}
}

func BenchmarkContent(b *testing.B) {
	l, err := tilert.LayoutOf("glm5", tilert.LayoutOptions{})
	require.NoError(b, err)
	l.Layers = 8
	a := testArena(b, l, 2048, 1)
	placeAll(b, a, "r", 2048, "x")
	c, _ := newContent(l, "r", 2048, nil)
	for _, p := range []tilert.Plane{tilert.KV, tilert.PE, tilert.KI} {
		buf := make([]byte, 100*c.row(p))
		b.Run(fmt.Sprintf("fill %s", p), func(b *testing.B) {
			b.SetBytes(int64(len(buf)))
			for b.Loop() {
				c.fill(buf, p, 1, 0)
			}
		})
	}
	b.Run("verify", func(b *testing.B) {
		b.SetBytes(l.Bytes(2048))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := verify(a, "r", 2048); err != nil {
				b.Fatal(err)
			}
		}
	})
}
