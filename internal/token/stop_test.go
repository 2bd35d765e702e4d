package token

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// match feeds pieces and returns what is shown after each, what Flush adds, and the stop.
func match(m *StopMatcher, pieces ...string) (shown []string, rest, stop string) {
	for _, p := range pieces {
		out, s, stopped := m.Append(nil, []byte(p))
		shown = append(shown, string(out))
		if s != "" {
			stop = s
		}
		if s != "" && !stopped {
			panic("a stop without stopped")
		}
	}
	return shown, string(m.Flush(nil)), stop
}

func TestStopStrings(t *testing.T) {
	for _, tc := range []struct {
		name    string
		stops   []string
		include bool
		pieces  []string
		shown   []string
		rest    string
		stop    string
	}{
		{"no stops let all through", nil, false, []string{"hello"}, []string{"hello"}, "", ""},
		{"a match is cut", []string{"STOP"}, false, []string{"hello STOP"}, []string{"hello "}, "", "STOP"},
		{"a match over pieces", []string{"STOP"}, false, []string{"hello STO", "P"}, []string{"hello ", ""}, "", "STOP"},
		{"a beginning that was none comes out", []string{"STOP"}, false, []string{"hello STO", "RY"}, []string{"hello ", "STORY"}, "", ""},
		{"a held beginning comes out at the end", []string{"STOP"}, false, []string{"hi ST"}, []string{"hi "}, "ST", ""},
		{"with include nothing is held", []string{"STOP"}, true, []string{"hi ST"}, []string{"hi ST"}, "", ""},
		{"with include the stop stays", []string{"STOP"}, true, []string{"hi STOP!"}, []string{"hi STOP"}, "", "STOP"},
		{"with include over pieces", []string{"STOP"}, true, []string{"hi S", "TOP!"}, []string{"hi S", "TOP"}, "", "STOP"},
		{"the one that ends first wins", []string{"Y", "X"}, false, []string{"aXbYc"}, []string{"a"}, "", "X"},
		{"a tie goes by list order", []string{"AB", "B"}, false, []string{"abAB"}, []string{"ab"}, "", "AB"},
		{"a tie goes by list order, the shorter first", []string{"B", "AB"}, false, []string{"abAB"}, []string{"abA"}, "", "B"},
		{"a stop inside a longer one ends first", []string{"abcd", "bc"}, false, []string{"xabcd"}, []string{"xa"}, "", "bc"},
		{"a longer one that fails after a shorter beginning", []string{"aab"}, false, []string{"aaab"}, []string{"a"}, "", "aab"},
		{"one failing on another", []string{"abcx", "bcd"}, false, []string{"abc", "d"}, []string{"", "a"}, "", "bcd"},
		{"only what may begin a stop is held", []string{"ababc"}, false, []string{"abab", "ab", "x"}, []string{"", "ab", "ababx"}, "", ""},
		{"pieces after a match are ignored", []string{"STOP"}, false, []string{"aSTOPb", "cSTOPd"}, []string{"a", ""}, "", "STOP"},
		{"the same stop twice", []string{"A", "A"}, false, []string{"xA"}, []string{"x"}, "", "A"},
		{"a stop of several bytes a character", []string{"。所以"}, false, []string{"很好。", "所", "以我"}, []string{"很好", "", ""}, "", "。所以"},
		{"an empty piece", []string{"STOP"}, false, []string{"ST", "", "X"}, []string{"", "", "STX"}, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			shown, rest, stop := match(NewStopMatcher(tc.stops, tc.include), tc.pieces...)
			assert.Equal(t, tc.shown, shown, "shown")
			assert.Equal(t, tc.rest, rest, "rest")
			assert.Equal(t, tc.stop, stop, "stop")
		})
	}
}

func TestAfterTheEndNothingComesOut(t *testing.T) {
	m := NewStopMatcher([]string{"STOP"}, false)
	m.Append(nil, []byte("ST"))
	assert.Equal(t, 2, m.Held())
	assert.Equal(t, "ST", string(m.Flush(nil)))
	assert.Empty(t, m.Flush(nil))
	out, stop, stopped := m.Append(nil, []byte("more"))
	assert.Empty(t, out)
	assert.Empty(t, stop)
	assert.True(t, stopped)
	assert.Empty(t, NewStopMatcher(nil, false).Flush(nil))
	assert.Zero(t, NewStopMatcher(nil, false).Held())
}

// TestStopsAgreeWithPlainSearch, invariant 5: any stops, any text, any split, against a search that sees the whole text.
func TestStopsAgreeWithPlainSearch(t *testing.T) {
	letter := rapid.SampledFrom([]string{"a", "b", "c", "世"})
	word := func(low, high int) *rapid.Generator[string] {
		return rapid.Map(rapid.SliceOfN(letter, low, high), func(s []string) string { return strings.Join(s, "") })
	}
	rapid.Check(t, func(t *rapid.T) {
		stops := rapid.SliceOfN(word(1, 5), 1, 5).Draw(t, "stops")
		pieces := rapid.SliceOfN(word(0, 4), 0, 12).Draw(t, "pieces")
		include := rapid.Bool().Draw(t, "include")
		m := NewStopMatcher(stops, include)
		var got []byte
		seen, stop := "", ""
		for _, p := range pieces {
			seen += p
			var s string
			if got, s, _ = m.Append(got, []byte(p)); s != "" {
				stop = s
			}
			if hold := longestHold(seen, stops); !include && stop == "" && len(got) != len(seen)-hold {
				t.Fatalf("after %q: %d bytes held, want %d", seen, len(seen)-len(got), hold)
			}
		}
		got = m.Flush(got)
		want, wantStop := search(strings.Join(pieces, ""), stops, include)
		if string(got) != want || stop != wantStop {
			t.Fatalf("got %q, stop %q; want %q, stop %q", got, stop, want, wantStop)
		}
	})
}

// search is the definition: the earliest end of any stop, ties by list order.
func search(text string, stops []string, include bool) (string, string) {
	for end := range len(text) + 1 {
		for _, s := range stops {
			if strings.HasSuffix(text[:end], s) {
				if include {
					return text[:end], s
				}
				return text[:end-len(s)], s
			}
		}
	}
	return text, ""
}

// longestHold is the length of the longest end of text that begins a stop.
func longestHold(text string, stops []string) int {
	for n := len(text); n > 0; n-- {
		for _, s := range stops {
			if len(s) > n && strings.HasSuffix(text, s[:n]) {
				return n
			}
		}
	}
	return 0
}

func TestMemoryStaysTheSameInALongText(t *testing.T) {
	stops := []string{strings.Repeat("x", 50) + "y", "STOP", "世界"}
	m := NewStopMatcher(stops, false)
	buf, shown := make([]byte, 0, 256), 0
	push := func(s string) (stopped bool) {
		buf, _, stopped = m.Append(buf[:0], []byte(s))
		shown += len(buf)
		return stopped
	}
	assert.Zero(t, testing.AllocsPerRun(1, func() {
		for range 200_000 {
			push("x")
		}
	}))
	assert.Equal(t, 400_000-50, shown) // AllocsPerRun runs once more, to warm up
	require.False(t, push("ST"))
	require.True(t, push("OP"))
	assert.Equal(t, 400_000, shown)
}

// TestThousandsOfStops: a request with very many stop strings builds fast enough and is matched right.
func TestThousandsOfStops(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	stops := make([]string, 5000)
	for i := range stops {
		b := make([]byte, 20)
		for j := range b {
			b[j] = "abcdefgh"[rnd.IntN(8)]
		}
		stops[i] = string(b)
	}
	m := NewStopMatcher(stops, false)
	out, stop, stopped := m.Append(nil, []byte("zz"+stops[4321][:19]+"z"+stops[1234]+"zz"))
	assert.True(t, stopped)
	assert.Equal(t, stops[1234], stop)
	assert.Equal(t, "zz"+stops[4321][:19]+"z", string(out))
}

func BenchmarkStops(b *testing.B) {
	pieces := [][]byte{[]byte(" the"), []byte(" quick"), []byte(" STory"), []byte("."), []byte("\n\n"), []byte("世界")}
	for _, bc := range []struct {
		name  string
		stops []string
	}{
		{"none", nil},
		{"one", []string{"STOP"}},
		{"four", []string{"</s>", "<|im_end|>", "\n\nUser:", "STOP"}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			m := NewStopMatcher(bc.stops, false)
			buf := make([]byte, 0, 256)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				buf, _, _ = m.Append(buf[:0], pieces[i])
				if i++; i == len(pieces) {
					i = 0
				}
			}
		})
	}
}
