package engine

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"pd-router/internal/openai"
)

func request(t *testing.T, ep openai.Endpoint, body string) *openai.Request {
	v, e := openai.Parse([]byte(body))
	if e != nil {
		t.Fatal(e)
	}
	r, e := (&openai.Gate{HasTokenizer: true}).Check(ep, v)
	if e != nil {
		t.Fatal(e)
	}
	return r
}

func joined(l Leg) string { return string(bytes.Join(l.Body, nil)) }

const ownChat = `"max_tokens":1,"stream":false,"return_tokens_as_token_ids":true,"request_id":"ID","logprobs":true,"top_logprobs":1,` +
	`"temperature":1.0,"top_p":1.0,"top_k":0,"repetition_penalty":1.0,"min_p":0.0,` +
	`"kv_transfer_params":{"tilert_host":"10.0.0.2","tilert_ctrl_port":5556}}`

func TestPrefillLeg(t *testing.T) {
	for _, tc := range []struct {
		name     string
		endpoint openai.Endpoint
		in, want string
	}{
		{"what the router owns is set even when absent", openai.Chat, `{"messages":[]}`, `{"messages":[],` + ownChat},
		{"lengths and streaming are dropped wherever they stand", openai.Chat,
			`{"stream":true,"messages":[],"stream_options":{"include_usage":true},"max_completion_tokens":3000,"model":"m"}`,
			`{"messages":[],"model":"m",` + ownChat},
		{"stop strings stay with the router", openai.Chat, `{"messages":[],"stop":["END"],"include_stop_str_in_output":true}`, `{"messages":[],` + ownChat},
		{"a client cannot choose the handoff or the id", openai.Chat,
			`{"kv_transfer_params":{"tilert_host":"x"},"request_id":"same","return_tokens_as_token_ids":false,"messages":[]}`, `{"messages":[],` + ownChat},
		{"the client's bytes stay as they are", openai.Chat,
			`{ "messages" : [ {"content":"a\u00e9\/" , "n":1.0} ],"unknown":{"big":12345678901234567890}}`,
			`{ "messages" : [ {"content":"a\u00e9\/" , "n":1.0} ],"unknown":{"big":12345678901234567890},` + ownChat},
		{"completions ask for one log-prob row", openai.Completions, `{"prompt":"hi"}`,
			`{"prompt":"hi",` + strings.Replace(ownChat, `"logprobs":true,"top_logprobs":1`, `"logprobs":1`, 1)},
		{"candidates of the first token exist only here", openai.Chat, `{"messages":[],"logprobs":true,"top_logprobs":4}`,
			`{"messages":[],` + strings.Replace(ownChat, `"top_logprobs":1`, `"top_logprobs":4`, 1)},
		{"the client's sampling is written once, as spelled", openai.Chat, `{"messages":[],"temperature":0.70,"top_p":null}`,
			`{"messages":[],` + strings.Replace(ownChat, `"temperature":1.0`, `"temperature":0.70`, 1)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			leg := TileRT{}.Prefill(request(t, tc.endpoint, tc.in), "ID", "10.0.0.2", 5556)
			require.Equal(t, tc.want, joined(leg))
			require.Equal(t, tc.endpoint.Path(), leg.Path)
			require.Equal(t, "X-Request-Id: ID\r\n", string(leg.Header))
		})
	}
}

func TestDecodeLeg(t *testing.T) {
	p := &Prefilled{RID: "abc", FirstToken: 203}
	leg := TileRT{}.Decode(request(t, openai.Chat, `{"messages":[],"temperature":0}`), p, 3000)
	require.Equal(t, "/pd/decode", leg.Path)
	var body map[string]any
	require.NoError(t, json.Unmarshal([]byte(joined(leg)), &body))
	sampling := body["sampling"].(map[string]any)
	delete(body, "sampling")
	require.Equal(t, map[string]any{"rid": "abc", "first_token_id": 203.0, "max_tokens": 3000.0, "stream": true}, body)
	require.Equal(t, 0.0, sampling["temperature"])

	leg = TileRT{}.Decode(request(t, openai.Chat, `{"messages":[],"regex":"[0-9]{3}","logprobs":true,"top_logprobs":3}`), p, 7)
	require.Contains(t, joined(leg), `"grammar_spec":{"type":"regex","value":"[0-9]{3}"},"enable_thinking":true,"top_logprobs":3}`)
}

func TestPrefillAnswer(t *testing.T) {
	p, err := TileRT{}.Prefilled([]byte(`{"id":"chatcmpl-abc","model":"stub","choices":[{"logprobs":{"content":[{"token":"token_id:201","logprob":-0.125,
		"top_logprobs":[{"token":"token_id:201","logprob":-0.125},{"token":" text","logprob":-1},{"token":"token_id:7","logprob":null}]}]}}],
		"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":7}}}`))
	require.NoError(t, err)
	require.Equal(t, "chatcmpl-abc", p.ID)
	require.Equal(t, "abc", p.RID)
	require.Equal(t, `"stub"`, string(p.Model))
	require.Equal(t, 201, p.FirstToken)
	require.Equal(t, 9, p.PromptTokens)
	require.Equal(t, `{"cached_tokens":7}`, string(p.PromptDetails))
	require.Equal(t, -0.125, p.FirstLogProb.LogProb)
	require.Len(t, p.FirstLogProb.Top, 2, "a candidate given as text is dropped")
	require.Equal(t, 7, p.FirstLogProb.Top[1].ID)
	require.True(t, math.IsNaN(p.FirstLogProb.Top[1].LogProb))

	p, err = TileRT{}.Prefilled([]byte(`{"id":"cmpl-x","choices":[{"logprobs":{"tokens":["token_id:5"]}}],"usage":{"prompt_tokens":"5"}}`))
	require.NoError(t, err)
	require.Equal(t, 5, p.FirstToken)
	require.Equal(t, 5, p.PromptTokens, "a count in a string is a count")
	require.Equal(t, "null", string(p.Model))
}

func TestPrefillAnswersWithoutAFirstToken(t *testing.T) { // invariant 4
	for _, token := range []string{`"Hello"`, `null`, `"token_id:"`, `"token_id:x"`, `"token_id:-1"`, `"token_id:99999999999"`} {
		_, err := TileRT{}.Prefilled([]byte(`{"id":"cmpl-x","choices":[{"logprobs":{"tokens":[` + token + `]}}]}`))
		require.ErrorContains(t, err, "--return-tokens-as-token-ids", token)
	}
	for _, answer := range []string{``, `[]`, `{"id":"x"}`, `{"id":"x","choices":[]}`, `{"id":"x","choices":[{"logprobs":null}]}`, `{"id":"chatcmpl-","choices":[{}]}`} {
		_, err := TileRT{}.Prefilled([]byte(answer))
		require.Error(t, err, answer)
	}
}

func TestDecodeRefusals(t *testing.T) {
	for _, tc := range []struct {
		name   string
		status int
		body   string
		want   int
		kind   string
	}{
		{"a known type keeps its status", 400, `{"error":"bad","error_type":"invalid_grammar"}`, 400, openai.TypeInvalidGrammar},
		{"also when it is unusual", 422, `{"error":"bad","error_type":"grammar_violation"}`, 422, openai.TypeGrammarViolation},
		{"an untyped 500 is a failed call", 500, `{"error":"boom"}`, 502, openai.TypeDecodeFailed},
		{"an unknown type too", 503, `{"error":"boom","error_type":"who_knows"}`, 502, openai.TypeDecodeFailed},
		{"no JSON at all", 500, `Internal Server Error`, 502, openai.TypeDecodeFailed},
		{"a KV time-out is a gateway time-out", 504, `{"error":"kv_transfer_timeout","rid":"x"}`, 504, openai.TypeKVTransferTimeout},
		{"a type alone", 400, `{"error_type":"invalid_grammar"}`, 400, openai.TypeInvalidGrammar},
		{"nothing at all", 500, ``, 502, openai.TypeDecodeFailed},
		{"wrong field types are our mistake, told as a failure", 422, `{"detail":[]}`, 502, openai.TypeDecodeFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := TileRT{}.DecodeRefusal(tc.status, []byte(tc.body))
			require.Equal(t, tc.want, e.Status)
			require.Equal(t, tc.kind, e.Type)
			require.NotEmpty(t, e.Message)
			require.Equal(t, strings.TrimSpace(e.Message), e.Message)
		})
	}
}

func FuzzPrefilled(f *testing.F) {
	f.Add([]byte(`{"id":"cmpl-x","choices":[{"logprobs":{"tokens":["token_id:5"]}}]}`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		p, err := TileRT{}.Prefilled(answer)
		if err == nil && (p.RID == "" || p.FirstToken < 0) {
			t.Fatalf("%q gives %+v", answer, p)
		}
	})
}

func BenchmarkLegs(b *testing.B) {
	for _, size := range []int{1 << 10, 1 << 20, 4 << 20} {
		body := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("x", size) + `"}],"stream":true,"max_completion_tokens":5,"ignore_eos":true}`
		b.Run(openai.Chat.String()+"-"+sizeName(size), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			raw := []byte(body)
			gate := &openai.Gate{HasTokenizer: true}
			p := &Prefilled{RID: "9f3c1d2e4b5a69788796a5b4c3d2e1f0", FirstToken: 203}
			for b.Loop() {
				v, _ := openai.Parse(raw)
				r, _ := gate.Check(openai.Chat, v)
				TileRT{}.Prefill(r, p.RID, "10.0.0.2", 5556)
				TileRT{}.Decode(r, p, 5)
			}
		})
	}
}

func sizeName(n int) string {
	if n >= 1<<20 {
		return string(rune('0'+n>>20)) + "MB"
	}
	return string(rune('0'+n>>10)) + "KB"
}
