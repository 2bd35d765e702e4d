package token

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// synthetic is a byte-level tokenizer.json of n tokens with as many merges, in the form that current tools write.
func synthetic(n int) []byte {
	var b strings.Builder
	b.WriteString(`{"version":"1.0","added_tokens":[{"id":0,"content":"<|end|>","special":true}],"decoder":{"type":"ByteLevel"},` +
		`"model":{"type":"BPE","vocab":{"<|end|>":0`)
	for i := 1; i < n; i++ {
		fmt.Fprintf(&b, ",\n      %q: %d", fmt.Sprintf("Ġw%dä½", i), i)
	}
	b.WriteString("},\n\"merges\":[\"a b\"")
	for i := 1; i < n; i++ {
		fmt.Fprintf(&b, ",\n      [\n        \"Ġw\",\n        \"%dä½\"\n      ]", i)
	}
	b.WriteString("]}}")
	return []byte(b.String())
}

func TestParseRefusesWhatItDoesNotSupport(t *testing.T) {
	const model = `"model":{"type":"BPE","vocab":{"a":0}}`
	decoder := func(d string) string { return `{` + model + `,"decoder":` + d + `}` }
	sequence := func(d string) string { return decoder(`{"type":"Sequence","decoders":[` + d + `]}`) }
	for _, tc := range []struct{ name, in, want string }{
		{"no JSON", `hello`, "not a JSON object"},
		{"not an object", `[1]`, "not a JSON object"},
		{"an empty file", ``, "not a JSON object"},
		{"a token that is not UTF-8", "{\"model\":{\"vocab\":{\"a\xff\":1}}}", "not UTF-8"},
		{"cut off", `{"model":{"type":"BPE","vocab":{"a":0`, "unexpected end"},
		{"cut off in a string", `{"model":{"type":"BPE","vocab":{"a`, "unexpected end"},
		{"cut off in a skipped value", `{"normalizer":{"a":["b"`, "unexpected end"},
		{"text after the end", `{` + model + `}x`, "text after the JSON object"},
		{"no model", `{"decoder":null}`, "no model"},
		{"no vocabulary", `{"model":{"type":"BPE"}}`, "model.vocab is missing"},
		{"another model type", `{"model":{"type":"Magic","vocab":{}}}`, `model type "Magic" is not supported`},
		{"a fraction as id", `{"model":{"vocab":{"a":1.5}}}`, "must be an integer"},
		{"a negative id", `{"model":{"vocab":{"a":-1}}}`, "want a token id"},
		{"a huge id", `{"model":{"vocab":{"a":99999999}}}`, "is more than"},
		{"a bad escape", `{"model":{"vocab":{"\x":1}}}`, "bad escape"},
		{"half a surrogate pair", `{"model":{"vocab":{"\ud83d":1}}}`, "surrogate"},
		{"two first halves", `{"model":{"vocab":{"\ud83d\ud83d":1}}}`, "surrogate"},
		{"added tokens of a wrong type", `{` + model + `,"added_tokens":{}}`, "added_tokens"},
		{"another decoder", decoder(`{"type":"WordPiece","prefix":"##"}`), `decoder type "WordPiece" is not supported`},
		{"another decoder in a sequence", sequence(`{"type":"CTC"}`), `decoder type "CTC" is not supported`},
		{"a decoder of a wrong type", decoder(`5`), "decoder"},
		{"a pattern that is an expression", decoder(`{"type":"Replace","pattern":{"Regex":"a+"},"content":""}`), "pattern String only"},
		{"strip at the end", decoder(`{"type":"Strip","content":" ","start":0,"stop":1}`), "stop 0 only, not 1"},
		{"strip of two characters", decoder(`{"type":"Strip","content":"ab","start":1,"stop":0}`), "not one character"},
		{"strip after byte fallback", sequence(`{"type":"ByteFallback"},{"type":"Strip","content":" ","start":1,"stop":0}`), "Strip is not supported at this place"},
		{"replace after fuse", sequence(`{"type":"Fuse"},{"type":"Replace","pattern":{"String":"a"},"content":"b"}`), "Replace is not supported after"},
		{"byte level after fuse", sequence(`{"type":"Fuse"},{"type":"ByteLevel"}`), "ByteLevel is not supported at this place"},
		{"metaspace after byte fallback", sequence(`{"type":"ByteFallback"},{"type":"Metaspace","replacement":"_"}`), "Metaspace is not supported at this place"},
		{"metaspace of two characters", decoder(`{"type":"Metaspace","replacement":"__"}`), "not one character"},
		{"metaspace with another scheme", decoder(`{"type":"Metaspace","replacement":"_","prepend_scheme":"last"}`), "prepend_scheme"},
		{"metaspace that contradicts itself", decoder(`{"type":"Metaspace","replacement":"_","add_prefix_space":false}`), "add_prefix_space"},
		{"an added token behind an unknown normalizer", `{` + model +
			`,"normalizer":{"type":"Nmt"},"added_tokens":[{"content":"x","normalized":true}]}`, `added token "x"`},
		{"a normalizer of a wrong type", `{` + model + `,"normalizer":5,"added_tokens":[{"content":"x"}]}`, "normalizer"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse([]byte(tc.in))
			require.Error(t, err)
			assert.Contains(t, err.Error(), tc.want)
		})
	}
}

func TestParseReadsUnusualButValidFiles(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     string // Decode(0, 1, 2)
	}{
		{"no type, decoder or added tokens", `{"model":{"vocab":{"a":0,"b":2}}}`, "a b"},
		{"empty lists and much white space", " { \"added_tokens\" : [ ] ,\n\t\"model\" : { \"vocab\" : { \"a\" : 0 } , \"merges\" : [ ] } } \r\n", "a"},
		{"an empty vocabulary", `{"model":{"vocab":{}},"added_tokens":[{"content":"x"}]}`, "x"},
		{"escapes in tokens", `{"model":{"vocab":{"\"\\\/\b\f\n\r\t":0,"\u00e9\uD83D\ude42":1}}}`, "\"\\/\b\f\n\r\t é🙂"},
		{"the decoder before the model", `{"decoder":{"type":"Fuse"},"model":{"vocab":{"a":0,"b":1}}}`, "ab"},
		{"pieces with scores", `{"model":{"type":"Unigram","vocab":[["a",-1.5],["b",0,1],["c",1e-3]]}}`, "a b c"},
		{"unknown keys of any kind", `{"x":{"y":[1,"]}",{}]},"z":-1.5e3,"model":{"n":null,"vocab":{"a":0},"m":true}}`, "a"},
		{"an unused normalizer that is not known", `{"model":{"vocab":{"a":0}},"normalizer":{"type":"Nmt"},"added_tokens":[{"content":"x","normalized":false}]}`, "a x"},
		{"a normalizer that leaves ASCII alone", `{"model":{"vocab":{"a":0}},"normalizer":{"type":"NFKC"},"added_tokens":[{"content":"x","normalized":true}]}`, "a x"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tok, err := Parse([]byte(tc.in))
			require.NoError(t, err)
			assert.Equal(t, tc.want, tok.Decode([]int{0, 1, 2}, SkipNone))
		})
	}
}

func TestSpecialTokensVanishInWhateverFormTheyHave(t *testing.T) {
	tok, err := Parse([]byte(`{"model":{"vocab":{"a":0}},"decoder":{"type":"Fuse"},
		"normalizer":{"type":"Prepend","prepend":"_"},"added_tokens":[{"content":"</s>","special":true,"normalized":true}]}`))
	require.NoError(t, err)
	assert.Equal(t, "a_</s>", tok.Decode([]int{0, 1}, SkipNone))
	assert.Equal(t, "a", tok.Decode([]int{0, 1}, SkipSpecial))
	assert.Equal(t, "a_</s>", tok.Decode([]int{0, 1}, tok.SkipAllBut([]string{"</s>"})))
}

func TestLoadNamesTheFile(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "none"))
	assert.ErrorIs(t, err, os.ErrNotExist)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte(`{}`), 0o600))
	_, err = Load(dir)
	assert.ErrorContains(t, err, filepath.Join(dir, "tokenizer.json"))
}

// FuzzParse: no input breaks it, and whatever it accepts decodes to valid UTF-8.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/small/*/tokenizer.json")
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Add([]byte(`{"model":{"vocab":{"\ud83d\ude42":0}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		tok, err := Parse(b)
		if err != nil {
			return
		}
		ids := []int{-1, 0, 1, 2, tok.Size() - 1, tok.Size(), 0}
		d := tok.NewDetokenizer(SkipSpecial)
		var got []byte
		for _, id := range ids {
			got = d.Append(got, id)
		}
		got = d.Flush(got)
		require.Equal(t, tok.Decode(ids, SkipSpecial), string(got))
		require.True(t, utf8.Valid(got))
	})
}

func BenchmarkParse(b *testing.B) {
	raw := realTokenizer(b)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	var tok *Tokenizer
	for b.Loop() {
		var err error
		if tok, err = Parse(raw); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(cap(tok.arena)+4*cap(tok.offsets)+cap(tok.flags)), "kept-B")
	b.ReportMetric(float64(tok.Size()), "tokens")
}

func BenchmarkAppend(b *testing.B) {
	for _, bc := range []struct{ name, tokenizer string }{{"byte-level", "byte-level"}, {"llama", "llama"}, {"metaspace", "metaspace"}} {
		b.Run(bc.name, func(b *testing.B) {
			tok := smallTokenizers(b)[bc.tokenizer]
			benchmarkAppend(b, tok, tok.Size())
		})
	}
	b.Run("large", func(b *testing.B) {
		tok, err := Parse(realTokenizer(b))
		require.NoError(b, err)
		benchmarkAppend(b, tok, tok.Size())
	})
}

func benchmarkAppend(b *testing.B, tok *Tokenizer, size int) {
	d := tok.NewDetokenizer(SkipSpecial)
	buf := make([]byte, 0, 1<<10)
	b.ReportAllocs()
	id := 1
	for b.Loop() {
		id = (id*48271 + 11) % size
		buf = d.Append(buf[:0], id)
	}
}
