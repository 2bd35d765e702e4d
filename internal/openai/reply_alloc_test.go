//go:build !race

package openai

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestATokenCostsNoAllocation holds the hot path of a stream: a token of a running reply, in every mode but tool calls.
func TestATokenCostsNoAllocation(t *testing.T) {
	off := []byte(`{"enable_thinking":false}`)
	for _, tc := range []struct {
		name string
		req  Request
		opts ReplyOptions
	}{
		{"plain", Request{}, ReplyOptions{}},
		{"completions", Request{Endpoint: Completions}, ReplyOptions{}},
		{"usage on each chunk", Request{ContinuousUsage: true}, ReplyOptions{}},
		{"stop strings", Request{Stops: []string{"STOPS", "</s>"}}, ReplyOptions{}},
		{"reasoning", Request{}, ReplyOptions{Parser: "glm47", ReasoningAlias: true}},
		{"content behind a parser", Request{TemplateKwargs: off}, ReplyOptions{Parser: "glm47"}},
		{"log-probs", Request{LogProbs: true}, ReplyOptions{}},
		{"log-probs behind a parser", Request{LogProbs: true, TemplateKwargs: off}, ReplyOptions{Parser: "glm47"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := script{vocab: vocabS, req: tc.req, opts: tc.opts}.reply(true)
			buf := make([]byte, 0, 64<<10)
			rows := Rows{}
			if tc.req.LogProbs {
				rows.LogProbs = make([]float64, len(idsS))
			}
			assert.Zero(t, testing.AllocsPerRun(100, func() {
				buf, _, _ = r.Tokens(buf[:0], idsS, rows)
			}))
		})
	}
}
