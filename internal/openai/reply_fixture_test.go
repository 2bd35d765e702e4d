package openai

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pd-router/internal/parser"
	"pd-router/internal/token"
)

// vocabulary is a byte-level tokenizer for tests: pieces, special tokens and markers by id. Each byte b that is no piece has
// the id 256+b, so that any text can be spelled.
type vocabulary struct {
	pieces, special, markers map[int]string
	tok                      *token.Tokenizer
}

var (
	vocabS = newVocabulary(map[int]string{201: "Hello", 202: ", world", 203: ". ", 204: "ST", 205: "OP", 206: " tail",
		207: " more", 208: "!", 209: "世"}, map[int]string{0: "<|endoftext|>"}, nil)
	vocabR = newVocabulary(map[int]string{10: "alpha ", 11: "STOP", 12: " beta", 13: "ST", 14: "OP", 16: "abc", 17: " abcSTOP",
		18: "\xe3\x80", 19: "\x82STOP"}, map[int]string{15: "<|s|>"}, nil)
	vocabG = newVocabulary(map[int]string{201: "Hello", 202: " there", 203: "<tool", 204: "_call>", 205: "a<b", 206: "\xf0\x9f",
		207: "\x99\x82!"}, map[int]string{0: "<|endoftext|>", 1: "<|user|>"},
		map[int]string{20: "<think>", 21: "</think>", 22: "<tool_call>", 23: "</tool_call>", 24: "<arg_key>", 25: "</arg_key>",
			26: "<arg_value>", 27: "</arg_value>", 28: "｜DSML｜"})
)

func newVocabulary(pieces, special, markers map[int]string) *vocabulary {
	letters := make([]string, 256) // GPT-2's alphabet
	other := 256
	for b := range letters {
		if letters[b] = string(rune(b)); !('!' <= b && b <= '~' || '¡' <= b && b <= '¬' || '®' <= b) {
			letters[b] = string(rune(other))
			other++
		}
	}
	spell := func(s string) (out string) {
		for _, b := range []byte(s) {
			out += letters[b]
		}
		return out
	}
	vocab := map[string]int{}
	for b := range 256 {
		vocab[letters[b]] = 256 + b
	}
	for id, s := range pieces {
		vocab[spell(s)] = id
	}
	var added []map[string]any
	for _, group := range []struct {
		tokens  map[int]string
		special bool
	}{{special, true}, {markers, false}} {
		for _, id := range slices.Sorted(maps.Keys(group.tokens)) {
			vocab[group.tokens[id]] = id
			added = append(added, map[string]any{"id": id, "content": group.tokens[id], "special": group.special})
		}
	}
	raw, err := json.Marshal(map[string]any{
		"added_tokens": added, "decoder": map[string]any{"type": "ByteLevel"}, "model": map[string]any{"type": "BPE", "vocab": vocab},
	})
	if err != nil {
		panic(err)
	}
	tok, err := token.Parse(raw)
	if err != nil {
		panic(err)
	}
	return &vocabulary{pieces, special, markers, tok}
}

// spell gives ids of text: a marker or special token as itself, each other byte by its own token.
func (v *vocabulary) spell(text string) (ids []int) {
	for text != "" {
		n := 0
		for _, group := range []map[int]string{v.markers, v.special} {
			for id, s := range group {
				if strings.HasPrefix(text, s) {
					ids, n = append(ids, id), len(s)
				}
			}
		}
		if n == 0 {
			b := text[0]
			id := 256 + int(b)
			for i, p := range v.pieces {
				if p == string([]byte{b}) {
					id = i
				}
			}
			ids, n = append(ids, id), 1
		}
		text = text[n:]
	}
	return ids
}

// answer is what a client understands of a reply, streamed or not.
type answer struct {
	Content, Reasoning string
	Calls              []answerCall
	Finish             string
	Stop               any
	Usage              map[string]any
	Entries            []map[string]any // nil when there is no logprobs object
	IDs                []int
	Deltas             []string // of content
	Error              map[string]any
	Done               bool
}

type answerCall struct{ ID, Name, Arguments string }

type wireChoice struct {
	Index        *int     `json:"index"`
	Text         *string  `json:"text"`
	Delta        *wireMsg `json:"delta"`
	Message      *wireMsg `json:"message"`
	FinishReason *string  `json:"finish_reason"`
	StopReason   any      `json:"stop_reason"`
	Logprobs     *struct {
		Content []map[string]any `json:"content"`
		Refusal any              `json:"refusal"`
	} `json:"logprobs"`
	TokenIDs []int `json:"token_ids"`
}

type wireMsg struct {
	Role      string `json:"role"`
	Content   string `json:"content"`
	Reasoning string `json:"reasoning_content"`
	Alias     string `json:"reasoning"`
	ToolCalls []struct {
		Index    int    `json:"index"`
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

type wireReply struct {
	ID, Object string
	Created    int64
	Model      any
	Choices    []wireChoice
	Usage      map[string]any
	Timing     any `json:"pd_timing_ms"`
	Error      map[string]any
}

var callID = regexp.MustCompile(`^call_[0-9a-f]{24}$`)

func (a *answer) add(t require.TestingT, c *wireChoice) {
	require.Equal(t, 0, *c.Index)
	m := c.Message
	if m == nil {
		m = c.Delta
	}
	if c.Text != nil {
		m = &wireMsg{Content: *c.Text}
	}
	require.NotNil(t, m)
	if m.Content != "" {
		a.Content += m.Content
		a.Deltas = append(a.Deltas, m.Content)
	}
	if m.Alias != "" {
		require.Equal(t, m.Reasoning, m.Alias)
	}
	a.Reasoning += m.Reasoning
	for _, call := range m.ToolCalls {
		if call.Index == len(a.Calls) {
			require.Regexp(t, callID, call.ID)
			require.Equal(t, "function", call.Type)
			a.Calls = append(a.Calls, answerCall{ID: call.ID, Name: call.Function.Name})
		}
		require.Equal(t, len(a.Calls)-1, call.Index)
		a.Calls[call.Index].Arguments += call.Function.Arguments
	}
	if c.FinishReason != nil {
		require.Empty(t, a.Finish, "a second closing chunk")
		a.Finish = *c.FinishReason
	} else {
		require.Nil(t, c.StopReason, "stop_reason before the closing chunk")
	}
	a.Stop = c.StopReason
	if c.Logprobs != nil {
		require.Nil(t, c.Logprobs.Refusal)
		a.Entries = append(append([]map[string]any{}, a.Entries...), c.Logprobs.Content...)
	}
	a.IDs = c.TokenIDs
}

// readBody reads a blocking reply.
func readBody(t require.TestingT, body []byte) (a answer) {
	var w wireReply
	require.NoError(t, json.Unmarshal(body, &w), "%s", body)
	require.Len(t, w.Choices, 1)
	require.NotNil(t, w.Choices[0].FinishReason)
	a.add(t, &w.Choices[0])
	a.Usage = w.Usage
	return a
}

// frames cuts a stream into the data of its events and checks the form of each.
func frames(t require.TestingT, stream []byte) (out []string) {
	rest := string(stream)
	for rest != "" {
		event, after, found := strings.Cut(rest, "\n\n")
		require.True(t, found, "an event without its end: %q", rest)
		data, ok := strings.CutPrefix(strings.TrimPrefix(event, "event: error\n"), "data: ")
		require.True(t, ok, "an event without data: %q", event)
		require.NotContains(t, data, "\n")
		out, rest = append(out, data), after
	}
	return out
}

// readStream reads a stream and checks its order: one role chunk first, nothing after the closing chunk but usage and [DONE].
func readStream(t require.TestingT, stream []byte) (a answer) {
	roles := 0
	for _, data := range frames(t, stream) {
		require.False(t, a.Done, "data after [DONE]")
		require.Nil(t, a.Error, "data after an error")
		if data == "[DONE]" {
			a.Done = true
			continue
		}
		var w wireReply
		require.NoError(t, json.Unmarshal([]byte(data), &w), "%s", data)
		if w.Error != nil {
			a.Error = w.Error
			continue
		}
		if len(w.Choices) == 0 {
			require.NotEmpty(t, a.Finish, "usage before the closing chunk")
			require.NotNil(t, w.Usage)
			a.Usage = w.Usage
			continue
		}
		c := &w.Choices[0]
		require.Empty(t, a.Finish, "a choice after the closing chunk")
		if c.Delta != nil && c.Delta.Role != "" {
			roles++
			require.Equal(t, "assistant", c.Delta.Role)
		}
		require.True(t, c.Delta == nil || roles == 1, "%d role chunks before %s", roles, data)
		a.add(t, c)
	}
	return a
}

// script is one reply to be made.
type script struct {
	vocab  *vocabulary
	req    Request
	opts   ReplyOptions
	lines  [][]int
	rows   func(at int, ids []int) Rows // nil: none
	finish string
}

func (s script) reply(stream bool) *Reply {
	req, o := s.req, s.opts
	req.Stream, req.ParallelCalls = stream, true
	if stream {
		req.IncludeUsage = true
	}
	o.ID, o.Model, o.Created, o.PromptTokens, o.Tokenizer = "chatcmpl-1", []byte(`"stub"`), 1796045746, 7, s.vocab.tok
	req.EnableThinking = parser.ThinkingDefault(o.Parser, req.TemplateKwargs) // as the gate says it
	return NewReply(&req, o)
}

// run makes the reply and returns its bytes.
func (s script) run(t require.TestingT, stream bool) (out []byte, r *Reply) {
	r = s.reply(stream)
	at, stopped := 0, false
	for _, ids := range s.lines {
		var rows Rows
		if s.rows != nil {
			rows = s.rows(at, ids)
		}
		var err *Error
		out, stopped, err = r.Tokens(out, ids, rows)
		require.Nil(t, err)
		if stopped {
			break
		}
		at += len(ids)
	}
	finish := s.finish
	if finish == "" {
		finish = "length"
	}
	return r.Close(out, finish, nil), r
}

// both makes the reply in both forms, checks that they say the same, and returns the streamed answer (which has the deltas).
func (s script) both(t require.TestingT) answer {
	stream, r := s.run(t, true)
	body, _ := s.run(t, false)
	a, b := readStream(t, stream), readBody(t, body)
	require.True(t, a.Done)
	same(t, b, a)
	require.EqualValues(t, r.CompletionTokens(), a.Usage["completion_tokens"])
	return a
}

// same compares what two replies say, apart from what only one form has.
func same(t require.TestingT, want, got answer) {
	for _, a := range []*answer{&want, &got} {
		a.IDs, a.Deltas, a.Done = nil, nil, false
		a.Calls = slices.Clone(a.Calls)
		for i := range a.Calls {
			a.Calls[i].ID = ""
		}
		if len(a.Entries) == 0 {
			a.Entries = nil // a stream without entries has no logprobs object at all
		}
	}
	require.Equal(t, want, got)
}

// one is a line per id.
func one(ids ...int) (lines [][]int) {
	for _, id := range ids {
		lines = append(lines, []int{id})
	}
	return lines
}

// lpRows answers with -0.5 and null for the first token, and the token itself as candidate.
func lpRows(at int, ids []int) Rows {
	var rows Rows
	for i, id := range ids {
		p := -0.5
		if at+i == 0 {
			p = nan
		}
		rows.LogProbs = append(rows.LogProbs, p)
		rows.Top = append(rows.Top, []Candidate{{ID: id, LogProb: -0.5}})
	}
	return rows
}

func tokensOf(entries []map[string]any) (out []string) {
	for _, e := range entries {
		out = append(out, e["token"].(string))
	}
	return out
}

func valuesOf(entries []map[string]any) (out []float64) {
	for _, e := range entries {
		out = append(out, e["logprob"].(float64))
	}
	return out
}

func TestFixtureSpells(t *testing.T) {
	require.Equal(t, "a世<think>!", vocabG.tok.Decode(vocabG.spell("a世<think>!"), token.SkipSpecial))
	require.Equal(t, "Hello, world. STOP tail more!", vocabS.tok.Decode([]int{201, 202, 203, 204, 205, 206, 207, 208}, token.SkipNone))
	require.Equal(t, "。STOP", vocabR.tok.Decode([]int{18, 19}, token.SkipNone))
}

func unmarshal(data string, v any) error { return json.Unmarshal([]byte(data), v) }
