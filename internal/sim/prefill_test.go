package sim

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pd-router/internal/tilert"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// prefillOnly is a prefill node that sends no KV.
func prefillOnly(t *testing.T, po PrefillOptions) *rig {
	fill(&po.KV, KVNone)
	return newRig(t, po, DecodeOptions{})
}

func TestTheAnswerOfChat(t *testing.T) {
	r := prefillOnly(t, PrefillOptions{Models: []string{"glm5", "zai-org/GLM-5-FP8"}})
	status, b := r.post(r.p.URL()+"/v1/chat/completions", `{"model":"zai-org/GLM-5-FP8","messages":[{"role":"user","content":"say:Hello"}],"max_tokens":1,"logprobs":true,"top_logprobs":2,"x":{"y":[1]}}`, "X-Request-Id", "abc")
	require.Equal(t, 200, status, string(b))
	first := vocabulary().encode("Hello")[0]
	id := func(k int) string { b, _ := json.Marshal(first + k); return `"token_id:` + string(b) + `"` }
	var got object
	require.NoError(t, json.Unmarshal(b, &got))
	delete(got, "created")
	b, _ = json.Marshal(got)
	text, _ := json.Marshal(vocabulary().decode([]int{first}))
	assert.JSONEq(t, `{"id":"chatcmpl-abc","object":"chat.completion","model":"glm5","choices":[{"index":0,"finish_reason":"length","stop_reason":null,
		"message":{"role":"assistant","content":`+string(text)+`,"refusal":null,"tool_calls":[],"reasoning_content":null},
		"logprobs":{"content":[{"token":`+id(0)+`,"logprob":-0.125,"bytes":null,"top_logprobs":[
			{"token":`+id(0)+`,"logprob":-0.125,"bytes":null},{"token":`+id(1)+`,"logprob":-0.625,"bytes":null}]}]}}],
		"usage":{"prompt_tokens":10,"completion_tokens":1,"total_tokens":11,"prompt_tokens_details":{"cached_tokens":0}},
		"system_fingerprint":null,"prompt_logprobs":null,"kv_transfer_params":null}`, string(b))
	_, b = r.post(r.p.URL()+"/v1/chat/completions", `{"messages":[{"role":"user","content":"hi"}],"max_tokens":1}`)
	assert.Contains(t, string(b), `"logprobs":null`, "none were asked for")
}

func TestTheAnswerOfCompletions(t *testing.T) {
	r := prefillOnly(t, PrefillOptions{})
	url := r.p.URL() + "/v1/completions"
	answer := func(body string) (a struct {
		ID      string
		Object  string
		Choices []struct {
			Text     string
			LogProbs struct {
				Tokens []string
				Top    []map[string]float64 `json:"top_logprobs"`
			}
		}
		Usage struct {
			Prompt int `json:"prompt_tokens"`
		}
	}) {
		status, b := r.post(url, body)
		require.Equal(t, 200, status, string(b))
		require.NoError(t, json.Unmarshal(b, &a))
		return a
	}
	a := answer(`{"prompt":"say:Hello","max_tokens":1,"logprobs":1,"request_id":"xyz"}`)
	assert.Equal(t, []any{"cmpl-xyz", "text_completion", 3}, []any{a.ID, a.Object, a.Usage.Prompt})
	assert.Len(t, a.Choices[0].LogProbs.Top[0], 1)
	assert.Contains(t, a.Choices[0].LogProbs.Tokens[0], "token_id:")
	ids, _ := json.Marshal(vocabulary().encode("say:Hello"))
	b := answer(`{"prompt":` + string(ids) + `,"max_tokens":1,"logprobs":1}`)
	assert.Equal(t, a.Choices[0].LogProbs, b.Choices[0].LogProbs, "ids are read as their text")
	assert.Equal(t, len(vocabulary().encode("say:Hello")), b.Usage.Prompt)
	assert.Len(t, answer(`{"prompt":["a","b"],"max_tokens":1}`).Choices, 2)
	assert.Len(t, answer(`{"prompt":[[1,2],[3]],"max_tokens":1}`).Choices, 2)
	assert.Equal(t, "token_id:1", answer(`{"prompt":"x","max_tokens":1,"logprobs":0,"echo":true}`).Choices[0].LogProbs.Tokens[0])
	assert.NotContains(t, answer(`{"prompt":"x","max_tokens":1,"logprobs":0,"return_tokens_as_token_ids":false}`).Choices[0].LogProbs.Tokens[0], "token_id")
}

func TestRequestsThatPrefillRefuses(t *testing.T) {
	r := prefillOnly(t, PrefillOptions{MaxModelLen: 100})
	const ask = `"messages":[{"role":"user","content":"hi"}],"max_tokens":1`
	for _, tc := range []struct {
		name, path, body string
		status           int
		want             string
	}{
		{"not JSON", "chat/completions", `{bad`, 400, "JSON"},
		{"a list", "chat/completions", `[]`, 400, "JSON"},
		{"a stream", "chat/completions", `{` + ask + `,"stream":true}`, 400, "stream"},
		{"stream options without a stream", "chat/completions", `{` + ask + `,"stream_options":{"include_usage":true}}`, 400, "Stream options can only be defined when"},
		{"more than one token", "chat/completions", `{"messages":[{"role":"user","content":"hi"}],"max_tokens":2}`, 400, "max_tokens is 2"},
		{"no limit", "chat/completions", `{"messages":[{"role":"user","content":"hi"}]}`, 400, "max_tokens is absent"},
		{"the other limit", "chat/completions", `{` + ask + `,"max_completion_tokens":3000}`, 400, "max_completion_tokens is 3000"},
		{"no messages", "chat/completions", `{"max_tokens":1}`, 400, "messages"},
		{"an empty list of messages", "chat/completions", `{"messages":[],"max_tokens":1}`, 400, "messages"},
		{"messages that are no objects", "chat/completions", `{"messages":["hi"],"max_tokens":1}`, 400, "messages"},
		{"an unknown model", "chat/completions", `{` + ask + `,"model":"gpt"}`, 404, "The model `gpt` does not exist."},
		{"too many candidates", "chat/completions", `{` + ask + `,"logprobs":true,"top_logprobs":21}`, 400, "top_logprobs"},
		{"fewer than none", "chat/completions", `{` + ask + `,"logprobs":true,"top_logprobs":-1}`, 400, "top_logprobs"},
		{"too long", "chat/completions", `{"messages":[{"role":"user","content":"` + strings.Repeat("x", 400) + `"}],"max_tokens":1}`, 400, "maximum context length is 100 tokens"},
		{"no prompt", "completions", `{"max_tokens":1}`, 400, "prompt"},
		{"an empty prompt list", "completions", `{"prompt":[],"max_tokens":1}`, 400, "prompt"},
		{"a prompt that is a number", "completions", `{"prompt":5,"max_tokens":1}`, 400, "prompt"},
		{"log-probs beyond the limit", "completions", `{"prompt":"x","max_tokens":1,"logprobs":99}`, 400, "logprobs"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, b := r.post(r.p.URL()+"/v1/"+tc.path, tc.body)
			assert.Equal(t, tc.status, status)
			var e struct {
				Error struct {
					Message string
					Type    string
					Code    int
				}
			}
			require.NoError(t, json.Unmarshal(b, &e), string(b))
			assert.Contains(t, e.Error.Message, tc.want)
			assert.Equal(t, tc.status, e.Error.Code)
			assert.NotEmpty(t, e.Error.Type)
		})
	}
	status, _ := r.post(r.p.URL()+"/v1/chat/completions", `{`+ask+`,"max_completion_tokens":null,"stream":false,"stream_options":null}`)
	assert.Equal(t, 200, status, "null is absent")
	assert.Positive(t, r.p.Counters().Refused)
}

func TestIDsOfARequest(t *testing.T) {
	for _, tc := range []struct {
		header string
		q      prompt
		outer  string
		inner  string
	}{
		{"abc", prompt{chat: true, id: "x"}, "chatcmpl-abc", "chatcmpl-abc-"},
		{"", prompt{chat: true, id: "x"}, "chatcmpl-x", "chatcmpl-x-"},
		{"abc", prompt{}, "cmpl-abc", "cmpl-abc-0-"},
	} {
		outer, inner := requestIDs(tc.header, &tc.q)
		assert.Equal(t, tc.outer, outer)
		assert.Equal(t, tc.inner, inner[:len(inner)-8])
		assert.NotContains(t, inner[len(inner)-8:], "-")
	}
	outer, inner := requestIDs("", &prompt{chat: true})
	assert.Equal(t, tilert.DeriveRID(outer), tilert.DeriveRID(inner))
}

func TestPrefixesAreCached(t *testing.T) {
	r := prefillOnly(t, PrefillOptions{MaxModelLen: 100000})
	long := strings.Repeat("the quick brown fox jumps ", 200) // 1,300 tokens
	first := r.prefill(long, nil)
	assert.Zero(t, first.Cached)
	again := r.prefill(long, nil)
	assert.Equal(t, (first.Prompt-1)/64*64, again.Cached, "all but the last block")
	longer := r.prefill(long+"and more of another kind", nil)
	assert.InDelta(t, first.Prompt, longer.Cached, 64)
	other := r.prefill("no "+long, nil)
	assert.Zero(t, other.Cached)
	half := r.prefill(long[:len(long)/2]+strings.Repeat("different words ", 100), nil)
	assert.InDelta(t, first.Prompt/2, half.Cached, 64)
	assert.Zero(t, r.prefill(long, object{"tools": []object{{"function": object{"name": "f"}}}}).Cached, "tools stand before the messages")

	_, page := r.get(r.p.URL() + "/metrics")
	for _, family := range []string{"num_requests_running", "num_requests_waiting", "prompt_tokens_total", "prefix_cache_hits_total", "prefix_cache_queries_total", "generation_tokens_total", "kv_cache_usage_perc"} {
		assert.Contains(t, page, "\nvllm:"+family+`{engine="0",model_name="glm5"} `)
	}
	fixed := prefillOnly(t, PrefillOptions{MaxModelLen: 100000, CachedShare: 0.5})
	assert.InDelta(t, first.Prompt/2, fixed.prefill(long, nil).Cached, 64)
}

func TestTheLastTokenIsNeverCached(t *testing.T) {
	r := prefillOnly(t, PrefillOptions{})
	q := &prompt{parts: [][]byte{make([]byte, 3*blockBytes)}, tokens: 3 * blockTokens}
	assert.Zero(t, r.p.cachedTokens(q))
	assert.Equal(t, 2*blockTokens, r.p.cachedTokens(q))
}

func TestThePrefixCacheForgets(t *testing.T) {
	c := newPrefixCache()
	block := func(i int) []byte {
		return []byte(strings.Repeat(string(rune('a'+i%26)), blockBytes-8) + "12345678"[:8])
	}
	many := make([]byte, 0, cacheBlocks/2*blockBytes)
	for i := range cacheBlocks / 2 {
		many = append(many, block(i)...)
	}
	assert.Zero(t, c.visit(many))
	assert.Equal(t, cacheBlocks/2, c.visit(many))
	c.visit([]byte("x"), many)
	c.visit(append([]byte("y"), many...))
	c.visit(append([]byte("zz"), many...))
	assert.Zero(t, c.visit(many[:blockBytes]))
	assert.LessOrEqual(t, len(c.now)+len(c.old), cacheBlocks+1)
}

func TestTheClockOfPrefill(t *testing.T) {
	r := prefillOnly(t, PrefillOptions{TokensPerSecond: 1000, Latency: 20 * time.Millisecond, MaxModelLen: 100000})
	began := time.Now()
	p := r.prefill(strings.Repeat("word ", 100), nil)
	took := time.Since(began)
	assert.Greater(t, took, 20*time.Millisecond+time.Duration(p.Prompt)*time.Millisecond)

	r = prefillOnly(t, PrefillOptions{TokensPerSecond: 1000})
	from, to := r.p.schedule(100, false)
	next, end := r.p.schedule(100, true)
	assert.Equal(t, 100*time.Millisecond, to.Sub(from))
	assert.Equal(t, to.Add(time.Second), end, "one after the other, ten times as slow")
	assert.True(t, next.Equal(to))
}

func TestAClientThatLeavesPrefill(t *testing.T) {
	r := newRig(t, PrefillOptions{Latency: time.Minute, Pipeline: true}, DecodeOptions{})
	c := dial(t, r.p.Addr())
	body, _ := json.Marshal(object{"messages": []object{{"role": "user", "content": "hi"}}, "max_tokens": 1, "kv_transfer_params": r.kvParams()})
	_, err := c.Write([]byte("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " + string(mustJSON(len(body))) + "\r\n\r\n" + string(body)))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return r.p.waiting.Load() == 1 }, 5*time.Second, time.Millisecond)
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool { return r.p.Counters().Aborted == 1 && r.p.Counters().HandoffsFailed == 1 }, 5*time.Second, time.Millisecond)
	assert.Zero(t, r.p.waiting.Load())
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func TestPrefillFaults(t *testing.T) {
	const body = `{"messages":[{"role":"user","content":"hi"}],"max_tokens":1}`
	one := func(fault string) (int, string) {
		r := prefillOnly(t, PrefillOptions{Faults: []string{fault}})
		status, b := r.post(r.p.URL()+"/v1/chat/completions", body)
		return status, string(b)
	}
	status, got := one(faultRefuse)
	assert.Equal(t, 503, status)
	assert.Contains(t, got, `"code":503`)
	status, got = one(faultReset)
	assert.Equal(t, 0, status)
	assert.Contains(t, got, "reset")
	status, _ = one(faultTruncate)
	assert.Equal(t, -200, status)
	status, got = one(faultGarbage)
	assert.Equal(t, 0, status)
	assert.Contains(t, got, "malformed HTTP")
	status, _ = one(faultSlow)
	assert.Equal(t, 200, status)

	r := prefillOnly(t, PrefillOptions{Faults: []string{faultHang}})
	c := dial(t, r.p.Addr())
	_, err := c.Write([]byte("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " + string(mustJSON(len(body))) + "\r\n\r\n" + body))
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = c.Read(make([]byte, 1))
	assert.ErrorContains(t, err, "timeout")
}

func TestSmallRoutesOfPrefill(t *testing.T) {
	r := prefillOnly(t, PrefillOptions{})
	status, body := r.get(r.p.URL() + "/health")
	assert.Equal(t, []any{200, ""}, []any{status, body})
	_, body = r.get(r.p.URL() + "/v1/models")
	assert.Contains(t, body, `"id":"glm5","max_model_len":4096`)
	status, b := r.post(r.p.URL()+"/tokenize", `{"prompt":"Hello the <tool_call>"}`)
	assert.Equal(t, 200, status)
	ids := vocabulary().encode("Hello the <tool_call>")
	assert.JSONEq(t, `{"count":`+string(mustJSON(len(ids)))+`,"max_model_len":4096,"tokens":`+string(mustJSON(ids))+`,"token_strs":null}`, string(b))
	_, b = r.post(r.p.URL()+"/tokenize", `{"messages":[{"role":"user","content":"hi"}]}`)
	assert.Contains(t, string(b), string(mustJSON(vocabulary().encode("[gMASK]<sop><|user|>hi<|assistant|>"))))
	_, b = r.post(r.p.URL()+"/tokenize", `{"messages":[{"role":"user","content":"hi"}],"add_generation_prompt":false}`)
	assert.Contains(t, string(b), string(mustJSON(vocabulary().encode("[gMASK]<sop><|user|>hi"))))
	_, b = r.post(r.p.URL()+"/detokenize", object{"tokens": ids})
	assert.JSONEq(t, `{"prompt":"Hello the <tool_call>"}`, string(b))
	for path, want := range map[string]int{"/nothing": 404, "/v1/chat/completions": 405, "/tokenize": 405} {
		status, _ := r.get(r.p.URL() + path)
		assert.Equal(t, want, status, path)
	}
	for _, path := range []string{"/tokenize", "/detokenize"} {
		status, _ := r.post(r.p.URL()+path, `{bad`)
		assert.Equal(t, 400, status)
	}
	_, body = r.get(r.p.URL() + "/sim/counters")
	assert.Contains(t, body, `"Handoffs":0`)
}
