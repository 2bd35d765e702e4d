package tilert

import (
	"fmt"
	"slices"
	"strings"
)

// PageTokens is the number of tokens that share one page of the index plane.
const PageTokens = 64

// IndexPageBytes is one page of the index plane: 64 keys of 128 fp8 values and an fp32 scale each.
const IndexPageBytes = PageTokens * (128 + 4)

// Plane is one of the three regions of a buffer.
type Plane uint8

const (
	KV        Plane = iota // latents, a row a token
	PE                     // rotary part of the keys, a row a token
	KI                     // keys of the sparse index, a page for 64 tokens
	NumPlanes              // sizes tables
)

func (p Plane) String() string { return [...]string{"KV", "PE", "KI"}[p] }

// Layout is the shape of one model's cache for one request (spec 2.4).
type Layout struct {
	Profile string
	Layers  int
	Version int // layout_version of the hello: two ends with the same number mean the same bytes
	KVBytes int // bytes of a token's row in the KV plane
	PEBytes int // bytes of a token's row in the PE plane

	// FullKI lists the layers that have index keys of their own; nil means all. The sender repeats the nearest of them
	// below for every other layer, so the wire does not show the difference.
	FullKI []int
}

// LayoutOptions select a variant of a profile. The zero value is what the newest nodes use on NVIDIA cards.
type LayoutOptions struct {
	DType    string   // cache type: fp8_ds_mla (also "", fp8, fp8_e4m3), bf16 (bfloat16, auto), fp8_rocm (rocm_fp8)
	Protocol Protocol // Protocol1 has 62 layers for dsv32; 0 means Protocol2
	TiledKI  bool     // index keys in tiles, default of HIP builds (TILERT_PD_KI_TILED)
	NoMTP    bool     // glm5 without its draft layer (TILERT_PD_NO_MTP)
}

// Tiny is the cache of the simulators' own model: a layer for each of eight ranks and 5 KB a token, so that long prompts move in no
// time. Its version is far from those of real models.
var Tiny = Layout{Profile: "tiny", Layers: 8, Version: 9008, KVBytes: 528, PEBytes: 128}

// profiles with their aliases, as the peer's flags take them. Versions are those of fp8.
var profiles = []struct {
	names   []string
	layers  int
	version int
	fullKI  func() []int
}{
	{[]string{"glm5"}, 79, 10, nil},
	{[]string{"glm5_2", "glm5_3"}, 79, 12, sparseKI},
	{[]string{"dsv32", "v32"}, 61, 11, nil},
}

// sparseKI are the 22 layers of glm5_2 with index keys: 0, 1, 2, 6, 10, ... 74, 78.
func sparseKI() []int {
	layers := []int{0, 1}
	for l := 2; l <= 78; l += 4 {
		layers = append(layers, l)
	}
	return layers
}

// Profiles returns the known model profiles, without aliases.
func Profiles() []string {
	names := make([]string, len(profiles))
	for i, p := range profiles {
		names[i] = p.names[0]
	}
	return names
}

// LayoutOf returns the layout of a profile. Names are taken as the peer takes them: glm-5.2, glm52 and glm5_2 are one.
func LayoutOf(profile string, o LayoutOptions) (Layout, error) {
	for _, p := range profiles {
		if !slices.ContainsFunc(p.names, func(n string) bool { return plainName(n) == plainName(profile) }) {
			continue
		}
		l := Layout{Profile: p.names[0], Layers: p.layers, Version: p.version}
		if p.fullKI != nil {
			l.FullKI = p.fullKI()
		}
		if l.Profile == "dsv32" && o.Protocol == Protocol1 {
			l.Layers = 62 // with the same version: only the protocol tells the two apart
		}
		if o.NoMTP {
			if l.Profile != "glm5" {
				return Layout{}, fmt.Errorf("layout: only glm5 has a form without its draft layer, not %s", l.Profile)
			}
			l.Layers, l.Version = 78, 1010
		}
		return l.withDType(o)
	}
	return Layout{}, fmt.Errorf("layout: unknown model profile %q, want one of %s", profile, strings.Join(Profiles(), ", "))
}

func (l Layout) withDType(o LayoutOptions) (Layout, error) {
	switch o.DType {
	case "", "fp8_ds_mla", "fp8", "fp8_e4m3":
		l.KVBytes, l.PEBytes = 528, 128 // 512 fp8 values and four fp32 scales; 64 bf16 values
	case "bf16", "bfloat16", "auto":
		l.KVBytes, l.PEBytes = 1024, 128
		l.Version += 40
	case "fp8_rocm", "rocm_fp8":
		l.KVBytes, l.PEBytes = 512, 64
		l.Version += 240
	default:
		return Layout{}, fmt.Errorf("layout: unknown cache type %q, want fp8_ds_mla, bf16 or fp8_rocm", o.DType)
	}
	if o.TiledKI {
		l.Version += 100
	}
	return l, nil
}

// plainName folds the spellings of a profile: case, dots, dashes, underscores and the deepseek prefix do not count.
func plainName(s string) string {
	s = strings.NewReplacer(".", "", "-", "", "_", "").Replace(strings.ToLower(s))
	if rest, ok := strings.CutPrefix(s, "deepseek"); ok {
		s = "ds" + rest
	}
	return s
}

// Pages returns how many pages of the index plane n tokens need.
func Pages(n int) int { return (n + PageTokens - 1) / PageTokens }

// RowBytes returns the bytes of one layer of a plane that holds n tokens.
func (l Layout) RowBytes(p Plane, n int) int64 {
	switch p {
	case KV:
		return int64(n) * int64(l.KVBytes)
	case PE:
		return int64(n) * int64(l.PEBytes)
	}
	return int64(Pages(n)) * IndexPageBytes
}

// Bytes returns what n tokens take in all layers and planes: the size of a buffer with max_seq_len n, and equally what
// a request of n tokens moves.
func (l Layout) Bytes(n int) int64 {
	return int64(l.Layers) * (l.RowBytes(KV, n) + l.RowBytes(PE, n) + l.RowBytes(KI, n))
}

// KISource returns the layer whose index keys a layer carries.
func (l Layout) KISource(layer int) int {
	if l.FullKI == nil {
		return layer
	}
	i, found := slices.BinarySearch(l.FullKI, layer)
	if !found {
		i--
	}
	return l.FullKI[i]
}
