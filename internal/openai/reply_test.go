package openai

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pd-router/internal/token"
)

var nan = math.NaN()

// The exact bytes are those of the TileRT 0.1.6 router, less its blanks in streams.
const chunkHead = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1796045746,"model":"stub","choices":[`

func TestStreamBytes(t *testing.T) {
	out, _ := script{vocab: vocabS, lines: [][]int{{201}, {202, 209}}, finish: "stop"}.run(t, true)
	want := chunkHead + `{"index":0,"delta":{"role":"assistant"},"finish_reason":null}]}` + "\n\n" +
		chunkHead + `{"index":0,"delta":{"content":"Hello"},"finish_reason":null}]}` + "\n\n" +
		chunkHead + `{"index":0,"delta":{"content":", world"},"finish_reason":null}]}` + "\n\n" +
		chunkHead + `{"index":0,"delta":{"content":"世"},"finish_reason":null}]}` + "\n\n" +
		chunkHead + `{"index":0,"delta":{},"finish_reason":"stop","stop_reason":null}]}` + "\n\n" +
		chunkHead + `],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}` + "\n\n" +
		"data: [DONE]\n\n"
	assert.Equal(t, want, string(out))
}

func TestBodyBytes(t *testing.T) {
	s := script{vocab: vocabS}
	r := s.reply(false)
	out, _, _ := r.Tokens(nil, []int{201, 208}, Rows{})
	assert.Empty(t, out, "nothing of a body is out before its end")
	out = r.Close(nil, "stop", []byte(`{"prefill":4.0}`))
	assert.Equal(t, `{"id":"chatcmpl-1","object":"chat.completion","created":1796045746,"model":"stub","choices":[{"index":0,`+
		`"finish_reason":"stop","logprobs":null,"stop_reason":null,"message":{"role":"assistant","content":"Hello!"}}],`+
		`"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9},"pd_timing_ms":{"prefill":4.0}}`, string(out))

	s.req.Endpoint = Completions
	r = s.reply(false)
	r.Tokens(nil, []int{201, 208}, Rows{})
	assert.Equal(t, `{"id":"chatcmpl-1","object":"text_completion","created":1796045746,"model":"stub","choices":[{"index":0,`+
		`"finish_reason":"length","logprobs":null,"stop_reason":null,"text":"Hello!","token_ids":[201,208]}],`+
		`"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}`, string(r.Close(nil, "length", nil)))
}

func TestCompletionsStreamBytes(t *testing.T) {
	out, _ := script{vocab: vocabS, req: Request{Endpoint: Completions}, lines: [][]int{{201}, {202}}}.run(t, true)
	head := strings.Replace(chunkHead, "chat.completion.chunk", "text_completion", 1)
	assert.Equal(t, head+`{"index":0,"text":"Hello","logprobs":null,"finish_reason":null}]}`+"\n\n"+
		head+`{"index":0,"text":", world","logprobs":null,"finish_reason":null}]}`+"\n\n"+
		head+`{"index":0,"text":"","logprobs":null,"finish_reason":"length","stop_reason":null}]}`+"\n\n"+
		head+`],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}`+"\n\ndata: [DONE]\n\n", string(out))
}

func TestUsageOnEachChunk(t *testing.T) {
	s := script{vocab: vocabS, req: Request{ContinuousUsage: true}, opts: ReplyOptions{PromptDetails: []byte(`{"cached_tokens":3}`)},
		lines: [][]int{{201, 202}, {203}}}
	out, _ := s.run(t, true)
	data := frames(t, out)
	for i, tokens := range []int{1, 1, 2, 3, 3} { // role, three texts, closing
		assert.Contains(t, data[i], fmt.Sprintf(`],"usage":{"prompt_tokens":7,"completion_tokens":%d,"total_tokens":%d}}`, tokens, 7+tokens))
	}
	assert.Contains(t, data[5], `"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10,"prompt_tokens_details":{"cached_tokens":3}}}`)
	s.both(t)
}

func TestUsageOnlyWhenWanted(t *testing.T) {
	r := script{vocab: vocabS}.reply(true)
	r.req.IncludeUsage = false
	out, _, _ := r.Tokens(nil, []int{201}, Rows{})
	assert.NotContains(t, string(r.Close(out, "stop", nil)), "usage")
}

// fullText is the text of fixture S.
const fullText = "Hello, world. STOP tail more!"

var idsS = []int{201, 202, 203, 204, 205, 206, 207, 208}

func TestStopStringsInReplies(t *testing.T) {
	filler := append(append([]int{}, idsS...), make([]int, 25)...)
	for i := range 25 {
		filler[8+i] = 206
	}
	for _, tc := range []struct {
		name    string
		vocab   *vocabulary
		lines   [][]int
		stops   []string
		include bool
		content string
		stop    any
		finish  string
		tokens  int
	}{
		{"no stop", vocabS, one(idsS...), nil, false, fullText, nil, "length", 8},
		{"a stop", vocabS, one(idsS...), []string{"STOP"}, false, "Hello, world. ", "STOP", "stop", 5},
		{"a stop that is kept", vocabS, one(idsS...), []string{"STOP"}, true, "Hello, world. STOP", "STOP", "stop", 5},
		{"a stop that never comes", vocabS, one(idsS...), []string{"ZZZZ"}, false, fullText, nil, "length", 8},
		{"the first of two stops", vocabS, one(idsS...), []string{". ", "STOP"}, false, "Hello, world", ". ", "stop", 3},
		{"tokens of the same line do not count", vocabS, [][]int{filler}, []string{"STOP"}, false, "Hello, world. ", "STOP", "stop", 5},
		{"two tokens", vocabR, one(10, 12), nil, false, "alpha  beta", nil, "length", 2},
		{"a stop that is a token", vocabR, one(10, 11, 12), []string{"STOP"}, false, "alpha ", "STOP", "stop", 2},
		{"a stop over two tokens", vocabR, one(16, 13, 14), []string{"STOP"}, false, "abc", "STOP", "stop", 3},
		{"a stop inside a token", vocabR, one(17), []string{"STOP"}, false, " abc", "STOP", "stop", 1},
		{"a special token is counted", vocabR, one(16, 15, 11), []string{"STOP"}, false, "abc", "STOP", "stop", 3},
		{"a stop that begins inside a character's bytes", vocabR, one(16, 18, 19), []string{"。STOP"}, false, "abc", "。STOP", "stop", 3},
		{"a stop after such a character", vocabR, one(16, 18, 19), []string{"STOP"}, false, "abc。", "STOP", "stop", 3},
		{"an unfinished character", vocabR, one(16, 18), nil, false, "abc\ufffd", nil, "length", 2},
		{"an unfinished character that ends a stop", vocabR, one(16, 18), []string{"c\ufffd"}, false, "ab", "c\ufffd", "stop", 2},
		{"held text comes out at the end", vocabR, one(16, 13), []string{"STOP"}, false, "abcST", nil, "length", 2},
		{"only a special token", vocabR, one(15), nil, false, "", nil, "length", 1},
		{"nothing", vocabR, nil, nil, false, "", nil, "length", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, ep := range []Endpoint{Chat, Completions} {
				s := script{vocab: tc.vocab, lines: tc.lines, req: Request{Endpoint: ep, Stops: tc.stops, IncludeStop: tc.include}}
				a := s.both(t)
				assert.Equal(t, tc.content, a.Content)
				assert.Equal(t, tc.stop, a.Stop)
				assert.Equal(t, tc.finish, a.Finish)
				assert.EqualValues(t, tc.tokens, a.Usage["completion_tokens"])
				body, _ := s.run(t, false)
				if ids := readBody(t, body).IDs; ep == Completions {
					assert.Len(t, ids, tc.tokens)
				} else {
					assert.Nil(t, ids)
				}
			}
		})
	}
}

// TestOneChunkPerToken: the text of a token is out with it, less what may begin a stop string.
func TestOneChunkPerToken(t *testing.T) {
	s := script{vocab: vocabS, lines: [][]int{idsS}}
	assert.Equal(t, []string{"Hello", ", world", ". ", "ST", "OP", " tail", " more", "!"}, s.both(t).Deltas)
	s.req.Stops = []string{"STOP"}
	assert.Equal(t, []string{"Hello", ", world", ". "}, s.both(t).Deltas)
	s.req.Stops = []string{"ST-"}
	assert.Equal(t, []string{"Hello", ", world", ". ", "STOP", " tail", " more", "!"}, s.both(t).Deltas)
}

func TestStopInAnyBatch(t *testing.T) {
	ids := vocabS.spell("今天天气很好。所以我们出去散步了。")
	for _, size := range []int{1, 2, 3, 5, 8, 64} {
		for stop, want := range map[string]string{"。所以": "今天天气很好", "散步": "今天天气很好。所以我们出去"} {
			var lines [][]int
			for rest := ids; len(rest) > 0; rest = rest[min(size, len(rest)):] {
				lines = append(lines, rest[:min(size, len(rest))])
			}
			a := script{vocab: vocabS, lines: lines, req: Request{Stops: []string{stop}}}.both(t)
			assert.Equal(t, want, a.Content, "lines of %d", size)
		}
	}
}

func TestFinishReasons(t *testing.T) {
	call := vocabG.spell("</think><tool_call>f</tool_call>")
	for _, tc := range []struct {
		name, node, want string
		ids              []int
		stops            []string
	}{
		{"the node's own", "length", "length", []int{201}, nil},
		{"none", "", "stop", []int{201}, nil},
		{"cancelled", "cancelled", "stop", []int{201}, nil},
		{"a stop string", "length", "stop", []int{201}, []string{"lo"}},
		{"a tool call", "length", "tool_calls", call, nil},
		{"a tool call and a stop string", "length", "tool_calls", append(call[:len(call):len(call)], 201), []string{"lo"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, stream := range []bool{true, false} {
				r := script{vocab: vocabG, req: Request{Stops: tc.stops}, opts: ReplyOptions{Parser: "glm47"}}.reply(stream)
				out, _, _ := r.Tokens(nil, tc.ids, Rows{})
				out = r.Close(out, tc.node, nil)
				assert.Contains(t, string(out), `"finish_reason":"`+tc.want+`"`)
			}
		})
	}
}

func TestRepliesWithAParser(t *testing.T) {
	for _, tc := range []struct {
		name, text         string
		req                Request
		reasoning, content string
		calls              []answerCall
		finish             string
	}{
		{"reasoning and content", "plan</think>Hello", Request{}, "plan", "Hello", nil, "length"},
		{"thinking off", "plan</think>Hello", Request{TemplateKwargs: []byte(`{"enable_thinking":false}`)}, "", "plan</think>Hello", nil, "length"},
		{"a call", "x</think>y<tool_call>f<arg_key>a</arg_key><arg_value>世 \"1\"</arg_value></tool_call>", Request{}, "x", "y",
			[]answerCall{{Name: "f", Arguments: `{"a": "世 \"1\""}`}}, "tool_calls"},
		{"two calls with text between", "</think><tool_call>f</tool_call>\n<tool_call>g</tool_call>.", Request{}, "", "\n.",
			[]answerCall{{Name: "f", Arguments: "{}"}, {Name: "g", Arguments: "{}"}}, "tool_calls"},
		{"a call that is cut off", "</think><tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value><arg_key>b</arg_key>", Request{}, "", "",
			[]answerCall{{Name: "f", Arguments: `{"a": "1"}`}}, "tool_calls"},
		{"calls that are not wanted", "</think>a<tool_call>f</tool_call>b", Request{ToolChoiceNone: true}, "", "ab", nil, "length"},
		{"the start of a marker at the end", "</think>a <tool", Request{}, "", "a <tool", nil, "length"},
		{"a special token", "</think>end<|user|>", Request{}, "", "end", nil, "length"},
		{"completions are not parsed", "plan</think>Hello<|user|>", Request{Endpoint: Completions}, "", "plan</think>Hello", nil, "length"},
		{"a stop in reasoning", "pl<think>anSTOP", Request{Stops: []string{"STOP"}}, "plan", "", nil, "stop"},
		{"a stop in a call's markup", "</think>a<tool_call>f<arg_key>", Request{Stops: []string{"<arg_key>"}}, "", "a",
			[]answerCall{{Name: "f", Arguments: "{}"}}, "tool_calls"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ids := vocabG.spell(tc.text)
			s := script{vocab: vocabG, req: tc.req, opts: ReplyOptions{Parser: "glm47", ReasoningAlias: true}, lines: [][]int{ids}}
			a := s.both(t)
			assert.Equal(t, tc.reasoning, a.Reasoning)
			assert.Equal(t, tc.content, a.Content)
			assert.Equal(t, tc.finish, a.Finish)
			require.Len(t, a.Calls, len(tc.calls))
			for i, c := range tc.calls {
				assert.Equal(t, c.Name, a.Calls[i].Name)
				assert.Equal(t, c.Arguments, a.Calls[i].Arguments)
			}
		})
	}
}

func TestCallIDsDiffer(t *testing.T) {
	a := script{vocab: vocabG, opts: ReplyOptions{Parser: "glm47"},
		lines: one(vocabG.spell("</think><tool_call>f</tool_call><tool_call>g</tool_call>")...)}.both(t)
	require.Len(t, a.Calls, 2)
	assert.NotEqual(t, a.Calls[0].ID, a.Calls[1].ID)
}

func TestTextIsAlwaysValidJSON(t *testing.T) {
	text := "\x00\x01\x1f\"\\/\b\f\n\r\t\x7f\u2028\u2029<>&世🙂data: [DONE]\n\n"
	a := script{vocab: vocabS, lines: [][]int{vocabS.spell(text)}}.both(t)
	assert.Equal(t, text, a.Content)
	out, _ := script{vocab: vocabS, lines: [][]int{vocabS.spell("<>&世\u2028")}}.run(t, false)
	assert.Contains(t, string(out), "\"content\":\"<>&世\u2028\"", "only what JSON forbids is escaped")
}

// Spec 9.1: the end of the text as first token, which the node does not count.
func TestUncount(t *testing.T) {
	for _, stream := range []bool{true, false} {
		r := script{vocab: vocabS, req: Request{LogProbs: true}}.reply(stream)
		out, _, err := r.Tokens(nil, []int{0}, Rows{LogProbs: []float64{nan}})
		require.Nil(t, err)
		r.Uncount()
		assert.Zero(t, r.CompletionTokens())
		out = r.Close(out, "stop", nil)
		a := answer{}
		if stream {
			a = readStream(t, out)
		} else {
			a = readBody(t, out)
		}
		assert.Empty(t, a.Content)
		assert.Empty(t, a.Entries)
		assert.Equal(t, "stop", a.Finish)
		assert.EqualValues(t, 0, a.Usage["completion_tokens"])
	}
	assert.Panics(t, func() { script{vocab: vocabS}.reply(true).Uncount() })
}

func TestWithoutATokenizerThereAreIDsOnly(t *testing.T) {
	for ep, want := range map[Endpoint]string{
		Chat:        `"message":{"role":"assistant","content":null},"token_ids":[5,6]}]`,
		Completions: `"text":null,"token_ids":[5,6]}]`,
	} {
		r := NewReply(&Request{Endpoint: ep}, ReplyOptions{ID: "x", Parser: "glm47"})
		r.Tokens(nil, []int{5}, Rows{})
		r.Tokens(nil, []int{6}, Rows{})
		out := r.Close(nil, "length", nil)
		assert.Contains(t, string(out), want)
		assert.Contains(t, string(out), `"model":null`)
	}
}

func TestAnEndIsAnEnd(t *testing.T) {
	for _, stream := range []bool{true, false} {
		r := script{vocab: vocabS}.reply(stream)
		r.Tokens(nil, []int{201}, Rows{})
		assert.NotEmpty(t, r.Close(nil, "stop", nil))
		assert.Empty(t, r.Close(nil, "stop", nil))
		assert.Empty(t, r.Fail(nil, Errorf(TypeInternalError, "x"), ""))
		out, stopped, err := r.Tokens(nil, []int{202}, Rows{})
		assert.Empty(t, out)
		assert.False(t, stopped)
		assert.Nil(t, err)
		assert.Equal(t, 1, r.CompletionTokens())
	}
	r := script{vocab: vocabS}.reply(true)
	assert.NotEmpty(t, r.Fail(nil, Errorf(TypeInternalError, "x"), ""))
	assert.Empty(t, r.Close(nil, "stop", nil))
}

func TestAnUnknownParserIsOurMistake(t *testing.T) {
	assert.Panics(t, func() { NewReply(&Request{}, ReplyOptions{Tokenizer: vocabS.tok, Parser: "nonesuch"}) })
	assert.NotPanics(t, func() { NewReply(&Request{}, ReplyOptions{Tokenizer: vocabS.tok, Parser: "none"}) })
}

func TestFailedStreams(t *testing.T) {
	e := Errorf(TypeGrammarViolation, "no \"such\" word\n")
	for _, tc := range []struct {
		name    string
		vocab   *vocabulary
		req     Request
		parser  string
		ids     []int
		content string
	}{
		{"held text comes out", vocabS, Request{Stops: []string{"STOP"}}, "", idsS[:4], "Hello, world. ST"},
		{"held text with log-probs", vocabS, Request{Stops: []string{"STOP"}, LogProbs: true}, "", idsS[:4], "Hello, world. ST"},
		{"an unfinished character is no text", vocabR, Request{}, "", []int{16, 18}, "abc"},
		{"the start of a marker comes out", vocabG, Request{}, "glm47", vocabG.spell("</think>a<tool"), "a<tool"},
		{"before any text", vocabS, Request{}, "", nil, ""},
		{"after a stop", vocabS, Request{Stops: []string{"STOP"}}, "", idsS, "Hello, world. "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := script{vocab: tc.vocab, req: tc.req, opts: ReplyOptions{Parser: tc.parser}}
			r := s.reply(true)
			var rows Rows
			if tc.req.LogProbs {
				rows = lpRows(0, tc.ids)
			}
			out, _, err := r.Tokens(nil, tc.ids, rows)
			require.Nil(t, err)
			out = r.Fail(out, e, "abc")
			assert.True(t, strings.HasSuffix(string(out), "event: error\ndata: "+string(e.JSON("abc"))+"\n\n"), "%s", out)
			a := readStream(t, out)
			assert.Equal(t, tc.content, a.Content)
			assert.Empty(t, a.Finish)
			assert.False(t, a.Done)
			assert.Equal(t, "grammar_violation", a.Error["type"])
		})
	}
}

// A call that breaks off must not look whole: its arguments stay open.
func TestAFailedStreamDoesNotCloseACall(t *testing.T) {
	r := script{vocab: vocabG, opts: ReplyOptions{Parser: "glm47"}}.reply(true)
	out, _, _ := r.Tokens(nil, vocabG.spell("</think><tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value><arg_key>b"), Rows{})
	a := readStream(t, r.Fail(out, Errorf(TypeDecodeTruncated, "x"), ""))
	require.Len(t, a.Calls, 1)
	assert.Equal(t, `{"a": "1"`, a.Calls[0].Arguments)
}

func TestReplyEqualsDecode(t *testing.T) {
	for _, ids := range [][]int{{18}, {16, 18}, {18, 18, 19}, {256 + 0xF0, 16, 256 + 0x9F}, {19, 19}} {
		a := script{vocab: vocabR, lines: one(ids...)}.both(t)
		assert.Equal(t, vocabR.tok.Decode(ids, token.SkipSpecial), a.Content)
	}
}

func TestThinkingIsTheGatesToSay(t *testing.T) {
	for _, thinking := range []bool{true, false} {
		r := NewReply(&Request{Endpoint: Chat, EnableThinking: thinking}, ReplyOptions{ID: "x", Tokenizer: vocabS.tok, Parser: "glm47"})
		_, _, err := r.Tokens(nil, []int{201}, Rows{})
		if err != nil {
			t.Fatal(err)
		}
		body := string(r.Close(nil, "stop", nil))
		assert.Equal(t, thinking, strings.Contains(body, `"reasoning_content":"Hello"`), body)
		assert.Equal(t, !thinking, strings.Contains(body, `"content":"Hello"`) && !thinking, body)
	}
}
