package openai

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLogProbEntries(t *testing.T) {
	first := FirstLogProb{LogProb: -0.25, Top: []Candidate{{201, -0.25}, {202, -1.5}, {203, nan}}}
	s := script{vocab: vocabS, req: Request{LogProbs: true, TopLogProbs: 2}, opts: ReplyOptions{FirstLogProb: first}}
	rows := Rows{LogProbs: []float64{nan, math.Inf(-1)}, Top: [][]Candidate{nil, {{209, -1e-7}, {201, nan}, {202, -3}}}}
	r := s.reply(false)
	_, _, err := r.Tokens(nil, []int{201, 209}, rows)
	require.Nil(t, err)
	body := r.Close(nil, "stop", nil)
	assert.Contains(t, string(body), `"logprobs":{"content":[`+
		`{"token":"Hello","logprob":-0.25,"bytes":[72,101,108,108,111],"top_logprobs":[`+
		`{"token":"Hello","logprob":-0.25,"bytes":[72,101,108,108,111]},{"token":", world","logprob":-1.5,"bytes":[44,32,119,111,114,108,100]}]},`+
		`{"token":"世","logprob":-9999.0,"bytes":[228,184,150],"top_logprobs":[`+
		`{"token":"世","logprob":-1e-07,"bytes":[228,184,150]},{"token":"Hello","logprob":-9999.0,"bytes":[72,101,108,108,111]}]}`+
		`],"refusal":null}`)
	readBody(t, body)
}

func TestTokenOneHasItsEntryFromPrefill(t *testing.T) {
	top := []Candidate{{201, -0.25}, {202, -1.5}, {203, -2.5}}
	for _, tc := range []struct {
		name   string
		n      int
		first  FirstLogProb
		rows   Rows
		value  float64
		tokens []string // of candidates
	}{
		{"the node has null", 3, FirstLogProb{-0.25, top}, Rows{[]float64{nan}, [][]Candidate{nil}}, -0.25, []string{"Hello", ", world", ". "}},
		{"fewer candidates are wanted", 1, FirstLogProb{-0.25, top}, Rows{[]float64{nan}, [][]Candidate{nil}}, -0.25, []string{"Hello"}},
		{"none are wanted", 0, FirstLogProb{-0.25, top}, Rows{LogProbs: []float64{nan}}, -0.25, nil},
		{"prefill did not say either", 3, FirstLogProb{LogProb: nan}, Rows{[]float64{nan}, [][]Candidate{nil}}, -9999, nil},
		{"the node has its own", 1, FirstLogProb{-0.25, top}, Rows{[]float64{-7}, [][]Candidate{{{208, -7}}}}, -7, []string{"!"}},
		{"the token did not come from the node", 2, FirstLogProb{-0.25, top}, Rows{}, -0.25, []string{"Hello", ", world"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := script{vocab: vocabS, req: Request{LogProbs: true, TopLogProbs: tc.n}, opts: ReplyOptions{FirstLogProb: tc.first}}.reply(false)
			_, _, err := r.Tokens(nil, []int{201}, tc.rows)
			require.Nil(t, err)
			entries := readBody(t, r.Close(nil, "stop", nil)).Entries
			require.Len(t, entries, 1)
			assert.Equal(t, tc.value, entries[0]["logprob"])
			var tokens []string
			for _, c := range entries[0]["top_logprobs"].([]any) {
				tokens = append(tokens, c.(map[string]any)["token"].(string))
			}
			assert.Equal(t, tc.tokens, tokens)
		})
	}
}

func TestRowsThatCannotServe(t *testing.T) {
	one, two := []float64{-1}, []float64{-1, -1}
	top := func(n int) [][]Candidate { return make([][]Candidate, n) }
	for _, tc := range []struct {
		name string
		n    int
		ids  []int
		rows Rows
		ok   bool
	}{
		{"as asked for", 1, []int{201, 202}, Rows{two, top(2)}, true},
		{"candidates that nobody asked for", 0, []int{201, 202}, Rows{two, top(1)}, true},
		{"no candidates asked for, none sent", 0, []int{201, 202}, Rows{LogProbs: two}, true},
		{"no log-probs", 0, []int{201, 202}, Rows{}, false},
		{"too few", 0, []int{201, 202}, Rows{LogProbs: one}, false},
		{"too many", 0, []int{201}, Rows{LogProbs: two}, false},
		{"no candidates", 1, []int{201}, Rows{LogProbs: one}, false},
		{"too few rows of candidates", 1, []int{201, 202}, Rows{two, top(1)}, false},
		{"null", 0, []int{201, 202}, Rows{LogProbs: []float64{-1, nan}}, false},
		{"minus infinity is a value", 0, []int{201}, Rows{LogProbs: []float64{math.Inf(-1)}}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, later := range []bool{false, true} {
				r := script{vocab: vocabS, req: Request{LogProbs: true, TopLogProbs: tc.n}}.reply(true)
				tokens := 0
				if later {
					r.Tokens(nil, []int{201}, Rows{})
					tokens = 1
				}
				out, _, err := r.Tokens([]byte("before"), tc.ids, tc.rows)
				if tc.ok {
					require.Nil(t, err)
					continue
				}
				require.NotNil(t, err)
				assert.Equal(t, TypeLogprobsUnavailable, err.Type)
				assert.Equal(t, 501, err.Status)
				assert.Equal(t, "before", string(out))
				assert.Equal(t, tokens, r.CompletionTokens())
			}
		})
	}
}

// TestEntriesTravelWithTheirText: chunks as (content, number of entries).
func TestEntriesTravelWithTheirText(t *testing.T) {
	for _, tc := range []struct {
		name   string
		ids    []int
		stops  []string
		chunks []chunk // with entries
		tokens []string
	}{
		{"one each", []int{16, 10}, nil, []chunk{{"abc", 1}, {"alpha ", 1}}, []string{"abc", "alpha "}},
		{"tokens of one character go together", []int{16, 18, 19}, nil, []chunk{{"abc", 1}, {"。STOP", 2}}, []string{"abc", "\ufffd", "\ufffdSTOP"}},
		{"a token without text waits for the next", []int{15, 16}, nil, []chunk{{"abc", 2}}, []string{"<|s|>", "abc"}},
		{"and at the end has a chunk of its own", []int{16, 15}, nil, []chunk{{"abc", 1}, {"", 1}}, []string{"abc", "<|s|>"}},
		{"no text at all", []int{15, 11}, []string{"STOP"}, []chunk{{"", 2}}, []string{"<|s|>", "STOP"}},
		{"a token that is cut", []int{17}, []string{"STOP"}, []chunk{{" abc", 1}}, []string{" abcSTOP"}},
		{"text waits for the end of its token", []int{16, 10, 11}, []string{"ha S"}, []chunk{{"abc", 1}, {"alp", 2}}, []string{"abc", "alpha ", "STOP"}},
		{"an unfinished character", []int{16, 18}, nil, []chunk{{"abc", 1}, {"\ufffd", 1}}, []string{"abc", "\ufffd"}},
		{"text after a split character", []int{18, 19, 16}, nil, []chunk{{"。STOP", 2}, {"abc", 1}}, []string{"\ufffd", "\ufffdSTOP", "abc"}},
		{"a stop that was none", []int{16, 13, 12}, []string{"STOP"}, []chunk{{"abc", 1}, {"ST beta", 2}}, []string{"abc", "ST", " beta"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := script{vocab: vocabR, req: Request{LogProbs: true, TopLogProbs: 1, Stops: tc.stops}, lines: one(tc.ids...), rows: lpRows}
			a := s.both(t)
			assert.Equal(t, tc.tokens, tokensOf(a.Entries))
			assert.Equal(t, tc.chunks, chunksWithEntries(t, s))
		})
	}
}

func TestAnUnfinishedCharacterBehindAParserHasItsEntry(t *testing.T) {
	s := script{vocab: vocabG, req: Request{LogProbs: true}, opts: ReplyOptions{Parser: "glm47"}, lines: one(21, 202, 206), rows: lpRows}
	assert.Equal(t, []chunk{{" there", 1}, {"\ufffd", 1}}, chunksWithEntries(t, s))
}

// TestTheQueueOfEntriesStaysShort: entries that will never go out are not kept for the length of a reply.
func TestTheQueueOfEntriesStaysShort(t *testing.T) {
	for name, text := range map[string]string{
		"reasoning": "so then ", "calls": "<tool_call>f<arg_key>a</arg_key><arg_value>b</arg_value></tool_call>",
	} {
		t.Run(name, func(t *testing.T) {
			r := script{vocab: vocabG, req: Request{LogProbs: true}, opts: ReplyOptions{Parser: "glm47"}}.reply(true)
			ids := vocabG.spell(text)
			for i := range 500 {
				_, _, err := r.Tokens(nil, ids, lpRows(i*len(ids), ids))
				require.Nil(t, err)
				require.LessOrEqual(t, len(r.lp.queue), 1)
				require.LessOrEqual(t, len(r.lp.align.text), 1)
			}
		})
	}
}

type chunk struct {
	text    string
	entries int
}

// chunksWithEntries lists the chunks of a stream that have entries.
func chunksWithEntries(t *testing.T, s script) (chunks []chunk) {
	out, _ := s.run(t, true)
	for _, data := range frames(t, out) {
		if data == "[DONE]" {
			continue
		}
		var a answer
		var w wireReply
		require.NoError(t, unmarshal(data, &w))
		for i := range w.Choices {
			a.add(t, &w.Choices[i])
		}
		if a.Entries != nil {
			chunks = append(chunks, chunk{a.Content, len(a.Entries)})
		}
	}
	return chunks
}

// TestEntriesNeverRunAhead: at no chunk do the entries so far spell more than the text so far.
func TestEntriesNeverRunAhead(t *testing.T) {
	for _, stops := range [][]string{nil, {"ZZZZ"}, {"lo, w!"}} {
		s := script{vocab: vocabS, req: Request{LogProbs: true, Stops: stops}, lines: one(idsS...), rows: lpRows}
		out, _ := s.run(t, true)
		var a answer
		for _, data := range frames(t, out) {
			var w wireReply
			if data == "[DONE]" || unmarshal(data, &w) != nil || len(w.Choices) == 0 {
				continue
			}
			a.add(t, &w.Choices[0])
			named := ""
			for _, token := range tokensOf(a.Entries) {
				named += token
			}
			require.Equal(t, a.Content, named, "each token has its entry")
		}
		require.Equal(t, fullText, a.Content)
	}
}

func TestOnlyContentHasEntries(t *testing.T) {
	for _, tc := range []struct {
		name, parser string
		kwargs       string
		ids          []int
		content      string
		tokens       []string
	}{
		{"reasoning has none", "glm47", "", []int{201, 21, 202}, " there", []string{" there"}},
		{"a marker has none", "glm47", "", []int{201, 21, 202, 20, 201, 21, 202}, " there there", []string{" there", " there"}},
		{"markup of a call has none", "glm47", "", append(append([]int{21, 202}, vocabG.spell("<tool_call>f</tool_call>")...), 201),
			" thereHello", []string{" there", "Hello"}},
		{"a token that the parser held keeps its entry", "glm47", "", []int{21, 202, 203, 201}, " there<toolHello", []string{" there", "<tool", "Hello"}},
		{"and at the end too", "glm47", "", []int{21, 202, 203}, " there<tool", []string{" there", "<tool"}},
		{"a token that became markup has none", "glm47", "", []int{21, 202, 203, 204, 256 + 'f', 23, 202}, " there there", []string{" there", " there"}},
		{"the same text twice in a row", "glm47", "", []int{21, 256 + '<', 256 + '<', 256 + '<', 202}, "<<< there", []string{"<", "<", "<", " there"}},
		{"text like a part of the marker before it", "glm47", "", append(vocabG.spell("x</"), append([]int{256 + 't', 256 + 'h', 256 + 'i', 256 + 'n', 256 + 'k', 256 + '>'},
			vocabG.spell("think")...)...), "think", []string{"t", "h", "i", "n", "k"}},
		{"a special token inside content", "glm47", "", []int{21, 202, 0, 201}, " thereHello", []string{" there", "<|endoftext|>", "Hello"}},
		{"a special token at the end of content", "glm47", "", []int{21, 202, 0}, " there", []string{" there", "<|endoftext|>"}},
		{"a special token in reasoning", "glm47", "", []int{201, 0, 21, 202}, " there", []string{" there"}},
		{"a special token after reasoning only", "glm47", "", []int{201, 0}, "", nil},
		{"a split character", "glm47", "", []int{21, 206, 207}, "🙂!", []string{"\ufffd", "\ufffd\ufffd!"}},
		{"thinking off, a special token first", "glm47", `{"enable_thinking":false}`, []int{0, 201}, "Hello", []string{"<|endoftext|>", "Hello"}},
		{"markup of a call without a name", "glm47", "", []int{21, 202, 22, 23}, " there", []string{" there"}},
		{"and a special token behind it", "glm47", "", []int{21, 202, 22, 23, 0}, " there", []string{" there"}},
		{"DSML calls", "dsv32", "", append(append([]int{201}, vocabG.spell(`<｜DSML｜function_calls><｜DSML｜invoke name="f"></｜DSML｜invoke></｜DSML｜function_calls>`)...), 202),
			"Hello there", []string{"Hello", " there"}},
		{"no parser", "none", "", []int{201, 21, 202}, "Hello</think> there", []string{"Hello", "</think>", " there"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := script{vocab: vocabG, req: Request{LogProbs: true}, opts: ReplyOptions{Parser: tc.parser}, lines: one(tc.ids...), rows: lpRows}
			if tc.kwargs != "" {
				s.req.TemplateKwargs = []byte(tc.kwargs)
			}
			a := s.both(t)
			assert.Equal(t, tc.content, a.Content)
			assert.Equal(t, tc.tokens, tokensOf(a.Entries))
		})
	}
}

func TestValuesBelongToTheirTokens(t *testing.T) {
	rows := func(at int, ids []int) (r Rows) {
		for i := range ids {
			r.LogProbs = append(r.LogProbs, -float64(at+i))
		}
		return r
	}
	s := script{vocab: vocabG, req: Request{LogProbs: true}, opts: ReplyOptions{Parser: "glm47"}, lines: one(201, 21, 202), rows: rows}
	assert.Equal(t, []float64{-2}, valuesOf(s.both(t).Entries))
	s = script{vocab: vocabR, req: Request{LogProbs: true, Stops: []string{"STOP"}}, lines: [][]int{{16, 18}, {19}}, rows: rows}
	assert.Equal(t, []float64{0, -1, -2}, valuesOf(s.both(t).Entries))
}

func TestOnlyTokenOneMayHaveNoValue(t *testing.T) {
	r := script{vocab: vocabS, req: Request{LogProbs: true}}.reply(true)
	_, _, err := r.Tokens(nil, []int{201}, Rows{LogProbs: []float64{nan}})
	require.Nil(t, err)
	_, _, err = r.Tokens(nil, []int{202}, Rows{LogProbs: []float64{nan}})
	require.NotNil(t, err)
	_, _, err = r.Tokens(nil, []int{202}, Rows{})
	require.NotNil(t, err)
}

func TestRowsClone(t *testing.T) {
	a := Rows{LogProbs: []float64{1}, Top: [][]Candidate{{{1, 2}}}}
	b := a.Clone()
	a.LogProbs[0], a.Top[0][0].ID = 9, 9
	assert.Equal(t, Rows{LogProbs: []float64{1}, Top: [][]Candidate{{{1, 2}}}}, b)
	assert.Equal(t, Rows{}, Rows{}.Clone())
}
