package tilert

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func parse(t *testing.T, text string) *Line {
	t.Helper()
	l := new(Line)
	require.NoError(t, l.Parse([]byte(text)))
	return l
}

func TestTokenLines(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		ids      []int
	}{
		{"one token", `{"t":[201]}`, []int{201}},
		{"as Python writes it, with a line feed", "{\"t\": [201, 202, 0]}\n", []int{201, 202, 0}},
		{"no token", `{"t":[]}`, []int{}},
		{"white space anywhere", " {\t\"t\" :\r\n[ 1 ,2 ] } ", []int{1, 2}},
		{"unknown members are skipped", `{"x":{"y":[1,-2.5e-3,"\u00e9",null,true]},"t":[7],"z":false}`, []int{7}},
		{"the largest id", `{"t":[2147483647]}`, []int{2147483647}},
		{"the last of two members counts", `{"t":[1],"t":[2]}`, []int{2}},
		{"neither done nor an error", `{"t":[7],"done":false,"error":null}`, []int{7}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := parse(t, tc.in)
			assert.Equal(t, TokenLine, l.Kind)
			assert.Equal(t, tc.ids, append([]int{}, l.IDs...))
			assert.False(t, l.HasLogProbs || l.HasTop)
		})
	}
}

func TestLogProbs(t *testing.T) {
	l := parse(t, `{"t":[7,8,9],"lp":[null,-0.5,-Infinity],"tp":[[],[[8,-0.5],[11,-1.25]],[[9,-Infinity],[1,null]]]}`)
	require.True(t, l.HasLogProbs && l.HasTop)
	assert.True(t, math.IsNaN(l.LogProbs[0]))
	assert.True(t, math.IsInf(l.LogProbs[2], -1), "it is no null, which would fail the reply")
	assert.Equal(t, -0.5, l.LogProbs[1])
	require.Len(t, l.Top, 3)
	assert.Empty(t, l.Top[0])
	assert.Equal(t, []Candidate{{8, -0.5, true}, {11, -1.25, true}}, l.Top[1])
	assert.False(t, l.Top[2][0].Valid || l.Top[2][1].Valid)
	assert.Equal(t, 9, l.Top[2][0].ID)

	l = parse(t, `{"t":[7],"lp":null,"tp":null}`)
	assert.False(t, l.HasLogProbs || l.HasTop, "null is absent")
	l = parse(t, `{"t":[7],"lp":[NaN],"tp":[null]}`)
	assert.True(t, math.IsNaN(l.LogProbs[0]))
	assert.Equal(t, 1, len(l.Top))
	assert.Empty(t, l.Top[0], "a null row is empty")
}

func TestDoneLine(t *testing.T) {
	l := parse(t, `{"done":true,"n":4,"seq_len":5,"finish_reason":"stop","timing_ms":{"wire_wait":543.4,"finish_reason":"stop"}}`)
	assert.Equal(t, DoneLine, l.Kind)
	assert.True(t, l.HasN)
	assert.Equal(t, []any{4, 5, "stop"}, []any{l.N, l.SeqLen, l.FinishReason})
	assert.Equal(t, `{"wire_wait":543.4,"finish_reason":"stop"}`, string(l.Timing))

	l = parse(t, `{"done":true,"n":null,"finish_reason":null,"timing_ms":null}`)
	assert.False(t, l.HasN)
	assert.Nil(t, l.Timing)
	assert.Empty(t, l.FinishReason)
	assert.Equal(t, "stop\n", parse(t, `{"done":true,"finish_reason": "st\u006fp\n"}`).FinishReason, "escapes are resolved")
}

func TestErrorLine(t *testing.T) {
	l := parse(t, `{"error": "engine \"exploded\" \u00e9\ud83d\ude00", "error_type": "grammar_violation"}`)
	assert.Equal(t, ErrorLine, l.Kind)
	assert.Equal(t, "engine \"exploded\" é😀", l.Error)
	assert.Equal(t, "grammar_violation", l.ErrorType)
	assert.Empty(t, parse(t, `{"error":"decode stalled","error_type":null}`).ErrorType)
}

// Invariant 2.
func TestLinesThatAreRefused(t *testing.T) {
	for _, tc := range []struct{ name, in string }{
		{"tokens as text", `{"t":"x"}`},
		{"a fraction", `{"t":[201.5]}`},
		{"a fraction that is whole", `{"t":[201.0]}`},
		{"an exponent", `{"t":[2e2]}`},
		{"null for an id", `{"t":[null]}`},
		{"null for the ids", `{"t":null}`},
		{"a negative id", `{"t":[-1]}`},
		{"an id beyond 31 bits", `{"t":[2147483648]}`},
		{"an id beyond 64 bits", `{"t":[99999999999999999999999]}`},
		{"a leading zero", `{"t":[007]}`},
		{"true for an id", `{"t":[true]}`},
		{"text for an id", `{"t":["7"]}`},
		{"a comma at the end of a list", `{"t":[7,]}`},
		{"a comma at the end of the object", `{"t":[7],}`},
		{"a missing comma", `{"t":[7 8]}`},
		{"a comma at the start", `{"t":[,7]}`},
		{"a log-prob as text", `{"t":[7],"lp":["-0.5"]}`},
		{"a log-prob beyond a double", `{"t":[7],"lp":[1e999]}`},
		{"a bad number", `{"t":[7],"lp":[-]}`},
		{"a bad fraction", `{"t":[7],"lp":[1.]}`},
		{"a candidate without a value", `{"t":[7],"tp":[[[7]]]}`},
		{"a candidate with three values", `{"t":[7],"tp":[[[7,-1,2]]]}`},
		{"a candidate with a fraction for an id", `{"t":[7],"tp":[[[7.5,-1]]]}`},
		{"invalid UTF-8", "{\"t\":[7],\"x\":\"\xff\"}"},
		{"invalid UTF-8 in a name", "{\"t\":[7],\"\xc3\":1}"},
		{"a raw control character", "{\"t\":[7],\"x\":\"\x01\"}"},
		{"a bad escape", `{"t":[7],"x":"\q"}`},
		{"a short escape", `{"t":[7],"x":"\u12g4"}`},
		{"not JSON", `hello`},
		{"nothing", ``},
		{"white space", " \n"},
		{"half a line", `{"t":[7`},
		{"half a name", `{"t`},
		{"something behind it", `{"t":[7]} x`},
		{"two objects", `{"t":[7]}{"t":[8]}`},
		{"a list", `[{"t":[7]}]`},
		{"an empty object", `{}`},
		{"an object of no kind", `{"x":1}`},
		{"two kinds in one line", `{"t":[7],"done":true}`},
		{"done is false", `{"done":false,"n":1}`},
		{"done is a number", `{"done":1}`},
		{"a longer word than true", `{"done":truely}`},
		{"a count with a fraction", `{"done":true,"n":1.5}`},
		{"timing is a list", `{"done":true,"timing_ms":[]}`},
		{"a finish reason that is no text", `{"done":true,"finish_reason":3}`},
		{"an error that is no text", `{"error":{"message":"x"}}`},
		{"an error type that is no text", `{"error":"x","error_type":5}`},
		{"nested too deep", `{"t":[7],"x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var l Line
			assert.Error(t, l.Parse([]byte(tc.in)))
		})
	}
}

func TestALineIsReused(t *testing.T) {
	var l Line
	require.NoError(t, l.Parse([]byte(`{"t":[1,2],"lp":[-1,-2],"tp":[[[1,-1],[3,-4]],[[2,-2]]]}`)))
	require.Error(t, l.Parse([]byte(`{"t":[9],"lp":[-1`)))
	require.NoError(t, l.Parse([]byte(`{"t":[5]}`)))
	assert.Equal(t, []int{5}, l.IDs)
	assert.Empty(t, l.LogProbs)
	assert.Empty(t, l.Top)
	assert.False(t, l.HasLogProbs || l.HasTop || l.HasN)
	require.NoError(t, l.Parse([]byte(`{"done":true,"n":2,"timing_ms":{"a":1}}`)))
	require.NoError(t, l.Parse([]byte(`{"done":true}`)))
	assert.Nil(t, l.Timing)
	assert.Zero(t, l.N)
}

func TestShortDecimalsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`-?(0|[1-9][0-9]{0,9})(\.[0-9]{1,9})?([eE][+-]?[0-9]{1,2})?`).Draw(t, "number")
		want, err := strconv.ParseFloat(text, 64)
		require.NoError(t, err)
		s := scanner{b: []byte(text)}
		got := s.logProb()
		s.end()
		if s.err != nil || math.Float64bits(got) != math.Float64bits(want) {
			t.Fatalf("%s: %v, %v; want %v", text, got, s.err, want)
		}
	})
}

// What Parse accepts is JSON with the same ids to the standard library, and the short way reads what the long way does.
func FuzzLine(f *testing.F) {
	for _, s := range []string{
		`{"t":[201]}`, `{"t": [7, 11], "lp": [null, -0.5], "tp": [[], [[11, -0.5]]]}`, `{"t":"x"}`, `{"t":[201.5]}`, `{"t":[null]}`,
		`{"done":true,"n":4,"seq_len":4,"finish_reason":"stop","timing_ms":{"decode":1.5}}`, `{"error":"x\u00e9","error_type":"y"}`,
		"{\"x\":\"\xff\"}", `{"t":[1]} {}`, `{"t":[1],"x":[[[{"a":-1.5e+3}]]]}`, `{"t":[1],"lp":[-Infinity,NaN]}`, "{\"t\": [0, 01]}\n",
	} {
		f.Add([]byte(s))
	}
	words := strings.NewReplacer("-Infinity", "null", "Infinity", "null", "NaN", "null") // Python's additions to JSON
	f.Fuzz(func(t *testing.T, b []byte) {
		var l, long Line
		err := l.Parse(b)
		if longErr := long.Parse(append([]byte{' '}, b...)); (err == nil) != (longErr == nil) {
			t.Fatalf("%q: %v the short way, %v the long way", b, err, longErr)
		}
		if err != nil {
			return
		}
		assert.Equal(t, append([]int{}, long.IDs...), append([]int{}, l.IDs...))
		var members map[string]json.RawMessage
		if err := json.Unmarshal([]byte(words.Replace(string(b))), &members); err != nil {
			t.Fatalf("accepted %q: %v", b, err)
		}
		var ids []int
		if l.Kind == TokenLine && json.Unmarshal(members["t"], &ids) == nil && !strings.Contains(string(b), `\`) {
			assert.Equal(t, append([]int{}, ids...), append([]int{}, l.IDs...))
		}
	})
}

func BenchmarkLine(b *testing.B) {
	for _, bc := range []struct{ name, in string }{
		{"one token", `{"t":[151337]}`},
		{"one token as Python writes it", "{\"t\": [151337]}\n"},
		{"one token with five candidates", `{"t":[151337],"lp":[-0.12345678901234567],"tp":[[[151337,-0.12345678901234567],[2,-1.5],[3,-2.25],[4,-3.125],[5,-4]]]}`},
		{"a hundred tokens", `{"t":[` + strings.Repeat("151337,", 99) + `151337]}`},
		{"done", `{"done":true,"n":4,"seq_len":5,"finish_reason":"stop","timing_ms":{"wire_wait":543.4,"convert":8.6,"inject":0.0,"decode":0.0,"finish_reason":"stop"}}`},
	} {
		b.Run(bc.name, func(b *testing.B) {
			var l Line
			in := []byte(bc.in)
			b.ReportAllocs()
			b.SetBytes(int64(len(in)))
			for b.Loop() {
				if err := l.Parse(in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
