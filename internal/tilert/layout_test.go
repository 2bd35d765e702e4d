package tilert

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func layout(t testing.TB, profile string, o LayoutOptions) Layout {
	t.Helper()
	l, err := LayoutOf(profile, o)
	require.NoError(t, err)
	return l
}

// The worked numbers of spec 2.4 and of 0.1.6.post3.
func TestBufferSizes(t *testing.T) { // case 193
	for _, tc := range []struct {
		profile string
		o       LayoutOptions
		n       int
		want    int64
	}{
		{"glm5", LayoutOptions{}, 4096, 254984192},
		{"glm5", LayoutOptions{}, 202752, 12621717504},
		{"glm5", LayoutOptions{}, 100, 6517184},
		{"glm5", LayoutOptions{DType: "bf16"}, 4096, 415481856},
		{"glm5", LayoutOptions{DType: "fp8_rocm"}, 4096, 229097472},
		{"glm5", LayoutOptions{NoMTP: true}, 4096, 251756544},
		{"glm5_2", LayoutOptions{}, 4096, 254984192},
		{"glm5_2", LayoutOptions{DType: "bf16"}, 4096, 415481856},
		{"dsv32", LayoutOptions{Protocol: Protocol1}, 4096, 200114176},
		{"dsv32", LayoutOptions{}, 4096, 196886528},
		{"dsv32", LayoutOptions{DType: "bf16"}, 4096, 320815104},
		{"dsv32", LayoutOptions{DType: "rocm_fp8"}, 4096, 176898048},
	} {
		assert.Equal(t, tc.want, layout(t, tc.profile, tc.o).Bytes(tc.n), "%s %+v, %d tokens", tc.profile, tc.o, tc.n)
	}
}

func TestLayoutVersions(t *testing.T) { // case 196
	for profile, want := range map[string][3]int{"glm5": {10, 50, 250}, "glm5_2": {12, 52, 252}, "glm5_3": {12, 52, 252}, "dsv32": {11, 51, 251}} {
		for i, dtype := range []string{"fp8_ds_mla", "bf16", "fp8_rocm"} {
			assert.Equal(t, want[i], layout(t, profile, LayoutOptions{DType: dtype}).Version, "%s %s", profile, dtype)
			assert.Equal(t, want[i]+100, layout(t, profile, LayoutOptions{DType: dtype, TiledKI: true}).Version)
		}
	}
	for i, dtype := range []string{"fp8_ds_mla", "bf16", "fp8_rocm"} {
		l := layout(t, "glm5", LayoutOptions{DType: dtype, NoMTP: true})
		assert.Equal(t, [2]int{78, []int{1010, 1050, 1250}[i]}, [2]int{l.Layers, l.Version})
	}
	assert.Equal(t, 62, layout(t, "dsv32", LayoutOptions{Protocol: Protocol1}).Layers)
	assert.Equal(t, 61, layout(t, "dsv32", LayoutOptions{}).Layers)
}

func TestProfileNames(t *testing.T) {
	for want, names := range map[string][]string{
		"glm5":   {"glm5", "glm_5", "glm-5", "GLM-5"},
		"glm5_2": {"glm5_2", "glm-5.2", "glm5.2", "glm52", "glm5_3", "glm-5.3", "glm5.3", "glm53"},
		"dsv32":  {"dsv32", "deepseek_v3_2", "deepseek-v3.2", "dsv3.2", "v32"},
	} {
		for _, name := range names {
			assert.Equal(t, want, layout(t, name, LayoutOptions{}).Profile, name)
		}
	}
	for _, tc := range []struct {
		profile string
		o       LayoutOptions
	}{{"glm4", LayoutOptions{}}, {"", LayoutOptions{}}, {"glm5", LayoutOptions{DType: "fp4"}}, {"dsv32", LayoutOptions{NoMTP: true}}} {
		_, err := LayoutOf(tc.profile, tc.o)
		assert.Error(t, err, "%+v", tc)
	}
}

func TestIndexLayersOfGLM52(t *testing.T) { // case 196
	l := layout(t, "glm5_2", LayoutOptions{})
	assert.Equal(t, []int{0, 1, 2, 6, 10, 14, 18, 22, 26, 30, 34, 38, 42, 46, 50, 54, 58, 62, 66, 70, 74, 78}, l.FullKI)
	for layer, want := range map[int]int{0: 0, 1: 1, 2: 2, 5: 2, 6: 6, 9: 6, 77: 74, 78: 78} {
		assert.Equal(t, want, l.KISource(layer), "layer %d", layer)
	}
	assert.Equal(t, 41, layout(t, "glm5", LayoutOptions{}).KISource(41))
}

func TestPlaneAddresses(t *testing.T) { // case 194
	r := layout(t, "glm5", LayoutOptions{}).Region(4096, 4294967296)
	assert.Equal(t, [3]uint64{4294967296, 4465819648, 4507238400}, [3]uint64{r.Base[KV][0], r.Base[PE][0], r.Base[KI][0]})
}

func TestAPlan(t *testing.T) { // case 195
	l := layout(t, "glm5", LayoutOptions{})
	src, dst := l.Region(4096, 8589934592), l.Region(202752, 4294967296)
	assert.Equal(t, [3]Write{
		{8592097280, 4402020352, 52800, KV, 1},
		{8761311232, 12778110976, 12800, PE, 1},
		{8802746368, 14829150208, 16896, KI, 1},
	}, l.LayerWrites(src, dst, 1, 100))
	writes, bytes := l.Plan(src, dst, 0, 1, 100), 0
	for _, w := range writes {
		bytes += w.Len
	}
	assert.Equal(t, [2]int{237, 6517184}, [2]int{len(writes), bytes})
}

func TestPlansOfEightRanks(t *testing.T) { // 0.1.6.post3
	l := layout(t, "glm5", LayoutOptions{})
	starts := make([]uint64, 8)
	for i := range starts {
		starts[i] = uint64(i+1) << 40 // each rank's own card
	}
	src, dst := l.Region(4096, starts...), l.Region(202752, 4294967296)
	all := 0
	for rank := range 8 {
		writes, bytes := l.Plan(src, dst, rank, 8, 100), 0
		for _, w := range writes {
			bytes += w.Len
			assert.Equal(t, starts[rank]>>40, w.Src>>40, "a rank reads its own card")
		}
		want := [2]int{30, 824960}
		if rank == 7 {
			want = [2]int{27, 742464}
		}
		assert.Equal(t, want, [2]int{len(writes), bytes}, "rank %d", rank)
		all += bytes
	}
	assert.Equal(t, 6517184, all)
	w := l.LayerWrites(src, dst, 17, 100)
	assert.Equal(t, starts[1]+2*4096*528, w[KV].Src, "layer 17 is layer 2 of rank 1")
	assert.Equal(t, dst.Base[KV][0]+17*202752*528, w[KV].Dst, "the destination does not know of ranks")
}

// Invariant 6: over all ranks, every layer of every plane is written once, in its own place, and nothing runs out of
// the buffer or into a neighbour.
func TestPlansTile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := LayoutOptions{DType: rapid.SampledFrom([]string{"fp8", "bf16", "fp8_rocm"}).Draw(t, "dtype")}
		l, err := LayoutOf(rapid.SampledFrom(Profiles()).Draw(t, "profile"), o)
		if err != nil {
			t.Fatal(err)
		}
		room := rapid.IntRange(1, 5000).Draw(t, "room")
		n := rapid.IntRange(1, room).Draw(t, "tokens")
		senders := rapid.IntRange(1, 8).Draw(t, "senders")
		shards := rapid.IntRange(1, 8).Draw(t, "shards")
		starts := make([]uint64, shards)
		for i := range starts {
			starts[i] = uint64(i+1) << 40
		}
		src, dst := l.Region(room, 1<<50), l.Region(room, starts...)
		if err := l.CheckRegion(dst, n); err != nil {
			t.Fatal(err)
		}
		type key struct {
			p     Plane
			layer int
		}
		seen := map[key]Write{}
		total := int64(0)
		for rank := range senders {
			for _, w := range l.Plan(src, dst, rank, senders, n) {
				k := key{w.Plane, w.Layer}
				if _, twice := seen[k]; twice {
					t.Fatalf("%v twice", k)
				}
				seen[k] = w
				total += int64(w.Len)
				shard := starts[w.Layer%shards]
				if w.Dst < shard || w.Dst+uint64(w.Len) > shard+uint64(l.ShardBytes(room, shards)) {
					t.Fatalf("%v at %#x leaves its shard", k, w.Dst)
				}
			}
		}
		if len(seen) != 3*l.Layers || total != l.Bytes(n) {
			t.Fatalf("%d writes of %d bytes, want %d of %d", len(seen), total, 3*l.Layers, l.Bytes(n))
		}
		for k, w := range seen { // the next layer on the same shard begins where this one's room ends
			next, ok := seen[key{k.p, k.layer + shards}]
			if ok && (next.Dst < w.Dst+uint64(w.Len) || next.Dst-w.Dst != uint64(l.RowBytes(k.p, room))) {
				t.Fatalf("%v and the next overlap", k)
			}
		}
	})
}

func TestRegionsThatCannotBe(t *testing.T) {
	l := layout(t, "glm5", LayoutOptions{})
	assert.Error(t, l.CheckRegion(Region{}, 1))
	assert.Error(t, l.CheckRegion(l.Region(100, 0), 101))
	assert.Error(t, l.CheckRegion(l.Region(4096, 1<<64-100), 1))
	assert.NoError(t, l.CheckRegion(l.Region(4096, 1<<40), 4096))
}

func BenchmarkPlan(b *testing.B) {
	l := layout(b, "glm5", LayoutOptions{})
	src, dst := l.Region(202752, 1<<40), l.Region(202752, 1<<41)
	b.ReportAllocs()
	for b.Loop() {
		l.Plan(src, dst, 3, 8, 100000)
	}
}
