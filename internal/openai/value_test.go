package openai

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// What pydantic 2.13 in lax mode makes of these strings for an integer and for a float; "" is a refusal. Where it gives nan or an
// infinity, a refusal is right here.
func TestNumbersInStrings(t *testing.T) {
	for _, tc := range []struct{ text, integer, float string }{
		{"20", "20", "20"}, {"20.0", "20", "20.0"}, {" 20 ", "20", "20"}, {"\t20\n", "20", "20"}, {"\u00a020\u00a0", "20", "20"},
		{"1_000", "1000", "1000"}, {"1_000.0", "1000", "1000.0"}, {"20.00", "20", "20.00"}, {"0.0", "0", "0.0"}, {"00020", "20", "20"},
		{"+20", "20", "20"}, {"-20", "-20", "-20"}, {"-0", "0", "-0"}, {"+0", "0", "0"}, {"00", "0", "0"}, {"-01", "-1", "-1"},
		{"0_1", "1", "1"}, {"1.9", "", "1.9"}, {"20.", "", "20"}, {".0", "", "0.0"}, {".5", "", "0.5"}, {"-.5e-1", "", "-0.5e-1"},
		{"1e2", "", "1e2"}, {"1E+3", "", "1E+3"}, {"1e-400", "", "1e-400"}, {"1_0.5", "", "10.5"}, {"1e1_0", "", "1e10"},
		{"abc", "", ""}, {"", "", ""}, {"  ", "", ""}, {"0x10", "", ""}, {"+-2", "", ""}, {"-+2", "", ""}, {"--1", "", ""}, {"- 1", "", ""},
		{"0-5", "", ""}, {"1-2", "", ""}, {"1 0", "", ""}, {"1,000", "", ""}, {"_1", "", ""}, {"1_", "", ""}, {"1__0", "", ""},
		{"20.0_", "", ""}, {"1._0", "", ""}, {"1.0.0", "", ""}, {"\u200b20", "", ""}, {"２０", "", ""}, {"1e", "", ""}, {"e1", "", ""}, {".", "", ""},
		{"nan", "", ""}, {"inf", "", ""}, {"-Infinity", "", ""}, {"1e400", "", ""}, {"9223372036854775808", "", "9223372036854775808"},
	} {
		t.Run(tc.text, func(t *testing.T) {
			raw := AppendString(nil, tc.text)
			n, ok := laxInt(raw)
			require.Equal(t, tc.integer != "", ok)
			if ok {
				require.Equal(t, tc.integer, string(appendInt(nil, n)))
			}
			number, _, ok := numeric(raw)
			require.Equal(t, tc.float != "", ok)
			if ok {
				require.Equal(t, tc.float, string(number))
			}
		})
	}
}

func TestNumericGivesTheSameNumber(t *testing.T) { // invariant 5
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(` ?[+-]?[0-9]{0,3}(_[0-9])?\.?[0-9]{0,3}([eE][+-]?[0-9]{1,3})? ?`).Draw(t, "text")
		number, f, ok := numeric(AppendString(nil, text))
		if !ok {
			return
		}
		var back float64
		require.NoError(t, json.Unmarshal(number, &back))
		require.Equal(t, f, back)
	})
}

func TestUnquoteIsJSONs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		escape := rapid.OneOf(rapid.StringMatching(`\\u[0-9a-fA-F]{4}`), rapid.StringMatching(`\\ud[89a-f][0-9a-f]{2}`), rapid.StringMatching(`\\["\\/bfnrt]`),
			rapid.SampledFrom([]string{"a", "世", "🙂", `\ud83d\ude42`, `\ud83d`}))
		raw, replacements := `"`, 0
		for _, piece := range rapid.SliceOf(escape).Draw(t, "pieces") {
			raw += piece
			if strings.EqualFold(piece, `\ufffd`) {
				replacements++
			}
		}
		raw += `"`
		var want string
		require.NoError(t, json.Unmarshal([]byte(raw), &want))
		got, whole := unquote([]byte(raw))
		require.Equal(t, want, got)
		require.Equal(t, strings.Count(got, "\uFFFD") == replacements, whole)
	})
}
