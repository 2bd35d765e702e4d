package sim

import (
	"os"
	"path/filepath"
	"testing"

	"pd-router/internal/token"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestTextSurvivesEncoding(t *testing.T) {
	v := vocabulary()
	for _, text := range []string{
		"", "The quick brown fox jumps over the lazy dog.", "plan</think>Hello  \n\n world", "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>",
		"今天天气很好。所以我们出去散步了。😀", "it's we'll 'tis 12345 a1b2 \t x\r\n", "   ", " a", "a ", "[gMASK]<sop><|user|>hi<|assistant|>", "<<tool_call>>", "é\u00a0\u3000x",
	} {
		assert.Equal(t, text, v.decode(v.encode(text)), "%q", text)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune("abtheq '\n\t 1.,<>_é世😀"))).Draw(t, "text")
		require.Equal(t, text, v.decode(v.encode(text)))
	})
}

// Ids that the tokenizers library gives for the generated file.
func TestIDsAreThoseOfTheLibrary(t *testing.T) {
	v := vocabulary()
	for text, want := range libraryIDs {
		assert.Equal(t, want, v.encode(text), "%q", text)
	}
}

func TestWordsAreFewTokens(t *testing.T) {
	v := vocabulary()
	assert.Len(t, v.encode("The quick brown fox jumps over the lazy dog"), 9)
	assert.Len(t, v.encode("<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>")[:1], 1)
	assert.Less(t, len(v.encode("<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>")), 20)
}

// The router's own decoder reads the folder and gives the same text.
func TestTheFolderIsAModelPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	require.NoError(t, WriteTokenizer(dir))
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "generation_config.json"} {
		_, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
	}
	tok, err := token.Load(dir)
	require.NoError(t, err)
	v := vocabulary()
	assert.Equal(t, len(v.text), tok.Size())
	const text = "Hello, the weather in Paris is sunny. 今天 <tool_call>x</tool_call>"
	assert.Equal(t, text, tok.Decode(v.encode(text), token.SkipNone))
}

func BenchmarkEncode(b *testing.B) {
	v := vocabulary()
	const text = "The quick brown fox jumps over the lazy dog while seven wizards quietly box every big prize at dawn."
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		v.encode(text)
	}
}
