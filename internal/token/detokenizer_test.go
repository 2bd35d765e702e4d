package token

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// smallTokenizers are those of testdata/small by name.
func smallTokenizers(t testing.TB) map[string]*Tokenizer {
	out := map[string]*Tokenizer{}
	dirs, err := filepath.Glob("testdata/small/*")
	require.NoError(t, err)
	for _, dir := range dirs {
		out[filepath.Base(dir)], err = Load(dir)
		require.NoError(t, err)
	}
	return out
}

// TestPiecesAreTheWhole, invariant 1, for every small tokenizer and any ids.
func TestPiecesAreTheWhole(t *testing.T) {
	for name, tok := range smallTokenizers(t) {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				ids := rapid.SliceOfN(rapid.IntRange(-1, tok.Size()), 0, 30).Draw(t, "ids")
				skip := rapid.SampledFrom([]Skip{SkipNone, SkipSpecial, tok.SkipAllBut([]string{"<s>", "<|end|>"})}).Draw(t, "skip")
				d := tok.NewDetokenizer(skip)
				var got []byte
				for _, id := range ids {
					got = d.Append(got, id)
					if !utf8.Valid(got) {
						t.Fatalf("%q is not UTF-8", got)
					}
				}
				if got, want := string(d.Flush(got)), tok.Decode(ids, skip); got != want {
					t.Fatalf("pieces of %v: %q, whole: %q", ids, got, want)
				}
				if d.Pending() {
					t.Fatal("pending after Flush")
				}
			})
		})
	}
}

// TestTextComesOutAsSoonAsItIsFinal, invariant 2: what is out after some ids is the longest text that all continuations share.
func TestTextComesOutAsSoonAsItIsFinal(t *testing.T) {
	small := smallTokenizers(t)
	for name, ids := range map[string][]int{
		// 48 is "0" in both; the others are first, middle and wrong bytes of characters and a piece of text.
		"byte-level": {48, 0xE4, 0xB8, 0x96, 0xF0, 0x9F, 0xC3, 0xA9, 0xFF, 258, 265, 268},
		"llama":      {3 + 48, 3 + 0xE4, 3 + 0xB8, 3 + 0x96, 3 + 0xF0, 3 + 0x9F, 3 + 0xC3, 3 + 0xFF, 259, 260, 1, 264},
		"gemma":      {3 + 48, 3 + 0xE4, 3 + 0xB8, 3 + 0x96, 3 + 0xF0, 3 + 0x9F, 259, 260},
		"metaspace":  {1, 2, 3, 4, 6},
		"no-decoder": {1, 2, 5},
	} {
		tok := small[name]
		require.NotNil(t, tok, name)
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				prefix := rapid.SliceOfN(rapid.SampledFrom(ids), 0, 6).Draw(t, "prefix")
				d := tok.NewDetokenizer(SkipSpecial)
				var out []byte
				for _, id := range prefix {
					out = d.Append(out, id)
				}
				final := tok.Decode(prefix, SkipSpecial)
				for _, a := range ids {
					for _, b := range ids {
						for _, c := range ids {
							final = common(final, tok.Decode(append(prefix[:len(prefix):len(prefix)], a, b, c), SkipSpecial))
						}
					}
				}
				if string(out) != final {
					t.Fatalf("after %v: %q is out, %q is final", prefix, out, final)
				}
			})
		})
	}
}

// common is the longest common beginning of a and b in whole characters.
func common(a, b string) string {
	for i, r := range a {
		if !strings.HasPrefix(b[min(i, len(b)):], string(r)) {
			return a[:i]
		}
	}
	return a
}

func TestPendingTellsThatBytesAreHeld(t *testing.T) {
	small := smallTokenizers(t)
	for _, tc := range []struct {
		name, tokenizer string
		ids             []int
		want            bool
	}{
		{"nothing yet", "byte-level", nil, false},
		{"a whole character", "byte-level", []int{48}, false},
		{"the start of a character", "byte-level", []int{48, 0xE4}, true},
		{"the start of one, then an id outside the vocabulary", "byte-level", []int{0xE4, 1 << 20}, true},
		{"a wrong byte, which is U+FFFD at once", "byte-level", []int{0xFF}, false},
		{"a run of byte tokens that is text", "llama", []int{3 + 48}, true},
		{"a run that can no longer be text", "llama", []int{3 + 0xFF}, false},
		{"a run that has ended", "llama", []int{3 + 48, 259}, false},
		{"a space that vanishes", "llama", []int{259}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := small[tc.tokenizer].NewDetokenizer(SkipNone)
			for _, id := range tc.ids {
				d.Append(nil, id)
			}
			assert.Equal(t, tc.want, d.Pending())
		})
	}
}

func TestSkipAllButKeepsMarkers(t *testing.T) {
	tok := smallTokenizers(t)["llama"]
	ids := []int{1, 267, 2, 0}
	for _, tc := range []struct {
		name string
		skip Skip
		want string
	}{
		{"none skipped", SkipNone, "<s>!</s><unk>"},
		{"specials skipped", SkipSpecial, "!"},
		{"one marker", tok.SkipAllBut([]string{"</s>", "!", "no token"}), "!</s>"},
		{"no markers", tok.SkipAllBut(nil), "!"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want, strings.TrimLeft(tok.Decode(ids, tc.skip), " "))
		})
	}
}

func TestIsSpecial(t *testing.T) {
	tok := smallTokenizers(t)["llama"]
	assert.True(t, tok.IsSpecial(2))
	assert.False(t, tok.IsSpecial(267))
	assert.False(t, tok.IsSpecial(-1))
	assert.False(t, tok.IsSpecial(tok.Size()))
}

// TestNoAllocationPerToken, invariant 4.
func TestNoAllocationPerToken(t *testing.T) {
	for name, tok := range smallTokenizers(t) {
		d := tok.NewDetokenizer(SkipSpecial)
		buf, id := make([]byte, 0, 1024), 0
		run := func() {
			for range 2 * tok.Size() {
				id = (id*7 + 3) % (tok.Size() + 1)
				buf = d.Append(buf[:0], id)
			}
		}
		run() // grows the run of byte tokens
		assert.Zero(t, testing.AllocsPerRun(10, run), name)
	}
}

func FuzzDetokenizer(f *testing.F) {
	small := smallTokenizers(f)
	names := make([]string, 0, len(small))
	for name := range small {
		names = append(names, name)
	}
	for i := range names {
		f.Add(uint8(i), true, []byte("\x00\x01\xe4\xb8\x96\xff\x09\xf0\x9f"))
	}
	f.Fuzz(func(t *testing.T, which uint8, skipped bool, raw []byte) {
		tok := small[names[int(which)%len(names)]]
		skip := Skip{specials: skipped}
		ids := make([]int, len(raw))
		d := tok.NewDetokenizer(skip)
		var got []byte
		for i, b := range raw {
			ids[i] = int(b) * (tok.Size() + 2) / 256
			got = d.Append(got, ids[i])
			require.True(t, utf8.Valid(got))
		}
		require.Equal(t, tok.Decode(ids, skip), string(d.Flush(got)))
	})
}

// TestLossyTextFollowsMaximalSubparts, invariant 3, against the tables of the Unicode standard (chapter 3, tables 3-8 to 3-11).
func TestLossyTextFollowsMaximalSubparts(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"overlong forms", "\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffdA"},
		{"surrogates", "\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", "\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffdA"},
		{"beyond the last character", "\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", "\ufffd\ufffd\ufffd\ufffd\ufffdA\ufffd\ufffdB"},
		{"cut off characters", "\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", "\ufffd\ufffd\ufffd\ufffdA"},
		{"an unfinished end", "a\xF0\x9F\x99", "a\ufffd"},
		{"valid text", "aé世🙂\u0000", "aé世🙂\u0000"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, open := appendLossy(nil, []byte(tc.in))
			if open > 0 {
				got = append(got, replacement...)
			}
			assert.Equal(t, tc.want, string(got))
		})
	}
}

// realTokenizer is the largest of the real tokenizers, or a stand-in of that size when there is none.
func realTokenizer(tb testing.TB) []byte {
	if root := os.Getenv("PD_ROUTER_TOKENIZERS"); root != "" {
		b, err := os.ReadFile(filepath.Join(root, "qwen3", "tokenizer.json"))
		require.NoError(tb, err)
		return b
	}
	return synthetic(150_000)
}
