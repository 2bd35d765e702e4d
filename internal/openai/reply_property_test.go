package openai

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// split cuts ids into lines by the bits of cuts.
func split(ids []int, cuts []bool) (lines [][]int) {
	start := 0
	for i := range ids {
		if i+1 == len(ids) || cuts[i%len(cuts)] {
			lines = append(lines, ids[start:i+1])
			start = i + 1
		}
	}
	return lines
}

// drawScript draws a reply: any tokens of a vocabulary, often markers of its grammar, with any options that the gate lets
// through together.
func drawScript(t *rapid.T) script {
	s := script{vocab: vocabG, finish: rapid.SampledFrom([]string{"stop", "length", "cancelled"}).Draw(t, "finish")}
	s.opts.Parser = rapid.SampledFrom([]string{"none", "glm47", "dsv32"}).Draw(t, "parser")
	s.req.Endpoint = rapid.SampledFrom([]Endpoint{Chat, Completions}).Draw(t, "endpoint")
	s.req.LogProbs = rapid.Bool().Draw(t, "logprobs") && s.req.Endpoint == Chat
	s.req.ContinuousUsage = rapid.Bool().Draw(t, "usage")
	if !s.req.LogProbs || s.opts.Parser == "none" {
		s.req.Stops = rapid.SliceOfN(rapid.SampledFrom([]string{"lo", "a<b", " there a", "_call>", "\ufffd", "🙂!"}), 0, 2).Draw(t, "stops")
		s.req.IncludeStop = rapid.Bool().Draw(t, "include")
	}
	if rapid.Bool().Draw(t, "thinking") {
		s.req.TemplateKwargs = []byte(`{"enable_thinking":false,"thinking":true}`)
	}
	if s.req.LogProbs {
		s.req.TopLogProbs, s.rows = 1, lpRows
	}
	dsml := vocabG.spell(`<｜DSML｜function_calls><｜DSML｜invoke name="f"><｜DSML｜parameter name="k" string="true">`)
	id := rapid.OneOf(
		rapid.Just([]int{21}), rapid.Just([]int{22, 201}), rapid.Just([]int{24, 201, 25, 26}), rapid.Just([]int{27}), rapid.Just([]int{23}),
		rapid.Just([]int{203, 204}), rapid.Just(dsml), rapid.Just(vocabG.spell(`</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜function_calls>`)),
		rapid.Map(rapid.IntRange(-1, 520), func(i int) []int { return []int{i} }),
		rapid.Map(rapid.SampledFrom([]int{0, 1, 20, 201, 202, 203, 204, 205, 206, 207, 256 + '<', 256 + '\n'}), func(i int) []int { return []int{i} }),
	)
	var ids []int
	for _, group := range rapid.SliceOfN(id, 0, 25).Draw(t, "ids") {
		ids = append(ids, group...)
	}
	s.lines = split(ids, []bool{true})
	return s
}

// TestStreamsSayWhatBodiesSay: deltas merged are the message, for any reply and any split into lines.
func TestStreamsSayWhatBodiesSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScript(t)
		want := s.both(t)
		if len(s.lines) == 0 {
			return
		}
		var ids []int
		for _, line := range s.lines {
			ids = append(ids, line...)
		}
		s.lines = split(ids, rapid.SliceOfN(rapid.Bool(), 1, 8).Draw(t, "cuts"))
		got := s.both(t)
		require.Equal(t, want.Deltas, got.Deltas, "chunks depend on tokens, not on lines")
		same(t, want, got)
	})
}

// TestEveryCountedTokenHasItsEntry: without a parser, in order; with one, those of content, whose text is the content's.
func TestEveryCountedTokenHasItsEntry(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScript(t)
		if !s.req.LogProbs {
			return
		}
		a := s.both(t)
		if s.opts.Parser == "none" {
			require.Len(t, a.Entries, int(a.Usage["completion_tokens"].(float64)))
			return
		}
		// Of whole characters, each that is content is in some entry: no token of content has lost its entry.
		named := strings.Join(tokensOf(a.Entries), "")
		for _, r := range a.Content {
			if r != '\ufffd' && r < 0x80 {
				require.Contains(t, named, string(r), "content %q, entries %q", a.Content, named)
			}
		}
		require.LessOrEqual(t, len(a.Entries), int(a.Usage["completion_tokens"].(float64)))
	})
}

// TestFailedStreamsAreWellFormed: whatever came before, a failure ends in one error event and nothing else.
func TestFailedStreamsAreWellFormed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScript(t)
		r, at := s.reply(true), 0
		var out []byte
		for _, ids := range s.lines {
			var rows Rows
			if s.rows != nil {
				rows = s.rows(at, ids)
			}
			out, _, _ = r.Tokens(out, ids, rows)
			at += len(ids)
		}
		out = r.Fail(out, Errorf(TypeDecodeTruncated, "x"), "rid")
		a := readStream(t, out)
		require.NotNil(t, a.Error)
		require.Empty(t, a.Finish)
		require.False(t, a.Done)
	})
}

// FuzzReply: any bytes as ids, options and splits; both forms agree and every frame is valid JSON.
func FuzzReply(f *testing.F) {
	f.Add(byte(0), byte(3), []byte("\xc9\x15\xca"))
	f.Add(byte(1), byte(7), []byte("\x15\xca\x16\xc9\x18\xc9\x19\x1a\xca\x1b\x17"))
	f.Add(byte(0x12), byte(1), []byte("\xc9\x00\xce\xcf<<"))
	f.Add(byte(0x2d), byte(2), []byte("\xcb\xcc\xcd\xce\xcf"))
	f.Fuzz(func(t *testing.T, options, cut byte, raw []byte) {
		s := script{vocab: vocabG, opts: ReplyOptions{Parser: []string{"none", "glm47", "dsv32"}[int(options&3)%3]}}
		s.req.LogProbs = options&4 != 0
		if options&8 != 0 && (!s.req.LogProbs || s.opts.Parser == "none") {
			s.req.Stops, s.req.IncludeStop = []string{"lo", "<t", "\ufffd"}, options&16 != 0
		}
		s.req.ContinuousUsage = options&32 != 0
		if s.req.LogProbs {
			s.rows = lpRows
		}
		ids := make([]int, len(raw))
		for i, b := range raw {
			if ids[i] = int(b); b >= 32 && b < 128 {
				ids[i] += 256
			}
		}
		s.lines = split(ids, []bool{cut&1 != 0, cut&2 != 0, cut&4 != 0, cut&8 != 0})
		a := s.both(t)
		s.lines = split(ids, []bool{true})
		same(t, a, s.both(t))
	})
}

func BenchmarkReply(b *testing.B) {
	vocab := newVocabulary(map[int]string{201: " the", 202: " quick", 203: " brown", 204: "fox", 205: ".\n", 206: " said", 207: " \"no\"", 208: "世界"},
		nil, map[int]string{21: "</think>", 22: "<tool_call>"})
	ids := []int{201, 202, 203, 204, 205, 206, 207, 208}
	for _, bc := range []struct {
		name string
		req  Request
		opts ReplyOptions
		body bool
	}{
		{name: "stream"},
		{name: "stream completions", req: Request{Endpoint: Completions}},
		{name: "stream with usage on each chunk", req: Request{ContinuousUsage: true}},
		{name: "stream with stops", req: Request{Stops: []string{"</s>", "<|im_end|>"}}},
		{name: "stream with parser, reasoning", opts: ReplyOptions{Parser: "glm47"}},
		{name: "stream with parser, content", req: Request{TemplateKwargs: []byte(`{"enable_thinking":false}`)}, opts: ReplyOptions{Parser: "glm47"}},
		{name: "stream with logprobs", req: Request{LogProbs: true}},
		{name: "stream with 5 logprobs", req: Request{LogProbs: true, TopLogProbs: 5}},
		{name: "stream with logprobs and parser", req: Request{LogProbs: true, TemplateKwargs: []byte(`{"enable_thinking":false}`)},
			opts: ReplyOptions{Parser: "glm47"}},
		{name: "body", body: true},
	} {
		b.Run(bc.name, func(b *testing.B) {
			s := script{vocab: vocab, req: bc.req, opts: bc.opts}
			r := s.reply(!bc.body)
			buf := make([]byte, 0, 16<<10)
			var rows Rows
			if bc.req.LogProbs {
				for range ids {
					rows.LogProbs = append(rows.LogProbs, -0.25)
					rows.Top = append(rows.Top, []Candidate{{201, -0.5}, {202, -1.5}, {203, -2.5}, {204, -3.5}, {205, -4.5}})
				}
			}
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				buf, _, _ = r.Tokens(buf[:0], ids, rows)
				if n++; n%4096 == 0 && bc.body {
					r = s.reply(false) // a body grows for ever otherwise
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(ids)), "ns/token")
		})
	}
}

func BenchmarkNewReply(b *testing.B) {
	for _, stream := range []bool{true, false} {
		b.Run(fmt.Sprintf("stream %v", stream), func(b *testing.B) {
			b.ReportAllocs()
			buf := make([]byte, 0, 4096)
			for b.Loop() {
				r := script{vocab: vocabS}.reply(stream)
				buf, _, _ = r.Tokens(buf[:0], idsS, Rows{})
				buf = r.Close(buf, "stop", nil)
			}
		})
	}
}
