package sim

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"pd-router/internal/nixl"
	"pd-router/internal/tilert"

	"github.com/stretchr/testify/require"
)

// benchRig runs both nodes for a benchmark and returns how to do both legs of one request.
func benchRig(b *testing.B, po PrefillOptions, do DecodeOptions) func(words int, maxTokens int) (kv int) {
	p, err := NewPrefill(po)
	require.NoError(b, err)
	d, err := NewDecode(do)
	require.NoError(b, err)
	require.NoError(b, p.Listen())
	require.NoError(b, d.Listen())
	go func() { _ = p.Serve(context.Background()) }()
	go func() { _ = d.Serve(context.Background()) }()
	hc := &http.Client{Transport: &http.Transport{}}
	b.Cleanup(func() {
		hc.CloseIdleConnections()
		require.NoError(b, p.Close())
		require.NoError(b, d.Close())
	})
	post := func(url, body string, v any) {
		resp, err := hc.Post(url, "application/json", strings.NewReader(body))
		require.NoError(b, err)
		defer resp.Body.Close()
		require.Equal(b, 200, resp.StatusCode)
		require.NoError(b, json.NewDecoder(resp.Body).Decode(v))
	}
	return func(words, maxTokens int) int {
		var pre struct {
			ID      string
			Choices []struct {
				LogProbs struct{ Content []struct{ Token string } }
			}
		}
		post(p.URL()+"/v1/chat/completions", `{"messages":[{"role":"user","content":"`+strings.Repeat("word ", words)+`"}],"max_tokens":1,"logprobs":true,`+
			`"kv_transfer_params":{"tilert_host":"127.0.0.1","tilert_ctrl_port":`+string(mustJSON(d.ctrl.port()))+`}}`, &pre)
		var dec struct {
			SeqLen int `json:"seq_len"`
		}
		post("http://"+d.HTTPAddr()+"/pd/decode", `{"rid":"`+tilert.DeriveRID(pre.ID)+`","max_tokens":`+string(mustJSON(maxTokens))+`,"first_token_id":`+
			strings.TrimPrefix(pre.Choices[0].LogProbs.Content[0].Token, "token_id:")+`}`, &dec)
		return dec.SeqLen
	}
}

func BenchmarkRequest(b *testing.B) {
	for _, bc := range []struct {
		name  string
		po    PrefillOptions
		do    DecodeOptions
		words int
	}{
		{"tiny, 10 words", PrefillOptions{Profile: "tiny"}, DecodeOptions{Profile: "tiny"}, 10},
		{"tiny, one sender, 10 words", PrefillOptions{Profile: "tiny", Senders: 1}, DecodeOptions{Profile: "tiny", Senders: 1}, 10},
		{"no KV, 10 words", PrefillOptions{KV: KVNone}, DecodeOptions{Profile: "tiny", KV: KVNone}, 10},
		{"glm5, 5000 words", PrefillOptions{Profile: "glm5"}, DecodeOptions{Profile: "glm5"}, 5000},
		{"nixl, tiny, 10 words", PrefillOptions{Profile: "tiny", Transport: TransportNIXL}, DecodeOptions{Profile: "tiny", Transport: TransportNIXL}, 10},
		{"nixl, glm5, 5000 words", PrefillOptions{Profile: "glm5", Transport: TransportNIXL}, DecodeOptions{Profile: "glm5", Transport: TransportNIXL}, 5000},
	} {
		b.Run(bc.name, func(b *testing.B) {
			if bc.po.Transport == TransportNIXL && os.Getenv(nixl.PathVariable) == "" {
				b.Skip("no NIXL library: run `make deps` or set " + nixl.PathVariable)
			}
			one := benchRig(b, bc.po, bc.do)
			seq := one(bc.words, 20)
			if bc.po.Profile == "glm5" {
				l, _ := tilert.LayoutOf("glm5", tilert.LayoutOptions{})
				b.SetBytes(l.Bytes(seq))
			}
			b.ReportAllocs()
			for b.Loop() {
				one(bc.words, 20)
			}
		})
	}
}

// BenchmarkLines is what a token costs the decode node, without a network.
func BenchmarkLines(b *testing.B) {
	d, err := NewDecode(DecodeOptions{PerToken: true})
	require.NoError(b, err)
	r := &reply{tokens: unscriptedTokens(), n: 1 << 60, topN: -1, finish: "length"}
	s := &lines{node: d, job: &job{cancel: make(chan struct{})}, r: r, begin: time.Now(), last: time.Now()}
	buf := make([]byte, 4096)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Read(buf); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(d.tokens.Load())/b.Elapsed().Seconds(), "tokens/s")
}
