package nixl

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// recorded is a blob that an agent of a published wheel gave out, with what an independent reader finds in it.
type recorded struct {
	NIXL     string `json:"nixl"`
	Blob     []byte `json:"md"`
	Agent    string
	Backends []string
	Sections []struct {
		Backend string
		Mem     MemType
		Descs   [][4]uint64 // address, length, device, bytes of the key
	}
}

func recordings(t testing.TB) []recorded {
	t.Helper()
	text, err := os.ReadFile("testdata/metadata.json")
	require.NoError(t, err)
	var out []recorded
	require.NoError(t, json.Unmarshal(text, &out))
	require.NotEmpty(t, out)
	return out
}

func TestParseMetadataOfPublishedWheels(t *testing.T) {
	for _, want := range recordings(t) {
		m, err := ParseMetadata(want.Blob)
		require.NoError(t, err, want.NIXL)
		require.Equal(t, want.Agent, m.Agent)
		require.Len(t, m.Conns, len(want.Backends))
		for i, b := range want.Backends {
			require.Equal(t, b, m.Conns[i].Backend)
		}
		require.LessOrEqual(t, m.ucxInfo()[0]&0x0f, byte(1), "the formats of a UCX address that AddPeer lets through")
		require.Len(t, m.Sections, len(want.Sections))
		for i, s := range want.Sections {
			require.Equal(t, s.Backend, m.Sections[i].Backend)
			require.Equal(t, s.Mem, m.Sections[i].Mem)
			require.Len(t, m.Sections[i].Descs, len(s.Descs))
			for j, d := range s.Descs {
				got := m.Sections[i].Descs[j]
				require.Equal(t, d, [4]uint64{got.Addr, got.Len, got.Dev, uint64(len(got.Key))})
			}
		}
		require.Equal(t, want.Blob, m.Marshal(), "the same bytes")
	}
}

func TestParseMetadataRefuses(t *testing.T) {
	good := fakeBlob("peer", 1)
	change := func(edit func(m *Metadata)) []byte {
		m, err := ParseMetadata(good)
		require.NoError(t, err)
		edit(m)
		return m.Marshal()
	}
	at := func(tag string, v uint64) []byte { // another length or count behind a tag
		b := bytes.Clone(good)
		binary.LittleEndian.PutUint64(b[bytes.Index(b, []byte(tag))+len(tag):], v)
		return b
	}
	for name, b := range map[string][]byte{
		"nothing":                          {},
		"another header":                   bytes.Replace(good, []byte("SerDes"), []byte("SerdeS"), 1),
		"bytes after the end":              append(bytes.Clone(good), 0),
		"no name":                          change(func(m *Metadata) { m.Agent = "" }),
		"a NUL in the name":                change(func(m *Metadata) { m.Agent = "a\x00b" }),
		"a length beyond the end":          at("Agent", uint64(len(good))),
		"a length that overflows":          at("Agent", ^uint64(0)),
		"a count of a size that is no u64": bytes.Replace(good, []byte("Conns\x08\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00|"), []byte("Conns\x01\x00\x00\x00\x00\x00\x00\x00\x01|"), 1),
		"more connections than bytes":      at("Conns\x08\x00\x00\x00\x00\x00\x00\x00", 1<<40),
		"more connections than there are":  at("Conns\x08\x00\x00\x00\x00\x00\x00\x00", 2),
		"another kind of list":             bytes.Replace(good, []byte("nixlSDList"), []byte("nixlXDList"), 1),
		"a short descriptor":               bytes.Replace(good, putField(nil, "", make([]byte, 25))[:9], putField(nil, "", make([]byte, 9))[:9], 1),
	} {
		m, err := ParseMetadata(b)
		require.ErrorIs(t, err, ErrMetadata, name)
		require.Nil(t, m, name)
	}
	for cut := range len(good) {
		_, err := ParseMetadata(good[:cut])
		require.ErrorIs(t, err, ErrMetadata, "cut at %d", cut)
	}
}

func TestMetadataAsOtherKinds(t *testing.T) {
	m, err := ParseMetadata(fakeBlob("peer", 1))
	require.NoError(t, err)
	both, err := ParseMetadata(m.as([]MemType{DRAM, VRAM}).Marshal())
	require.NoError(t, err)
	require.Equal(t, m.Conns, both.Conns)
	require.Len(t, both.Sections, 2)
	require.Equal(t, []MemType{DRAM, VRAM}, []MemType{both.Sections[0].Mem, both.Sections[1].Mem})
	require.Equal(t, m.Sections[0].Descs, both.Sections[1].Descs)
}

// FuzzParseMetadata: no input panics, and what is understood is written back as the same bytes.
func FuzzParseMetadata(f *testing.F) {
	for _, r := range recordings(f) {
		f.Add(r.Blob)
	}
	f.Add(fakeBlob("peer", 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseMetadata(b)
		if err != nil {
			require.ErrorIs(t, err, ErrMetadata)
			return
		}
		require.Equal(t, b, m.Marshal())
	})
}
