package engine

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"pd-router/internal/openai"
	"pd-router/internal/tilert"
)

// Prefilled is what the answer of the prefill node says (spec 4.1).
type Prefilled struct {
	ID            string // vLLM's response id, which the client sees
	RID           string // derived from it: the name of the KV on the decode node
	Model         []byte // raw JSON, null when absent
	FirstToken    int
	FirstLogProb  openai.FirstLogProb // of the first token
	PromptTokens  int
	PromptDetails []byte // raw usage.prompt_tokens_details, or nil
}

// Prefilled reads the 200 answer of the prefill node.
func (TileRT) Prefilled(answer []byte) (*Prefilled, error) {
	v, e := openai.Parse(answer)
	if e != nil {
		return nil, fmt.Errorf("the prefill node's answer cannot be read: %s", e.Message)
	}
	id, _ := v.Top("id").Text()
	if id == "" {
		return nil, fmt.Errorf("the prefill node's answer has no id")
	}
	p := &Prefilled{ID: id, RID: tilert.DeriveRID(id), Model: v.Top("model")}
	if p.RID == "" {
		return nil, fmt.Errorf("the prefill node's id %q leaves no request id", id)
	}
	if p.Model == nil {
		p.Model = []byte("null")
	}
	usage := v.Top("usage")
	p.PromptTokens = laxInt(usage.Member("prompt_tokens"))
	if d := usage.Member("prompt_tokens_details"); !d.Null() {
		p.PromptDetails = d
	}
	if err := p.first(v.Top("choices").First().Member("logprobs")); err != nil {
		return nil, err
	}
	return p, nil
}

// first finds the first token's id, which vLLM spells token_id:N when it is told to, in the log-probs of chat or of
// completions.
func (p *Prefilled) first(logprobs openai.Raw) error {
	row := logprobs.Member("content").First()
	text, _ := row.Member("token").Text()
	if row == nil {
		text, _ = logprobs.Member("tokens").First().Text()
	}
	id, ok := tokenID(text)
	if !ok {
		return fmt.Errorf("the prefill node did not tell the id of the first token (it said %q, want token_id:N): "+
			"start vLLM with --return-tokens-as-token-ids", text)
	}
	p.FirstToken = id
	p.FirstLogProb.LogProb = logProb(row)
	row.Member("top_logprobs").Each(func(c openai.Raw) bool {
		text, _ := c.Member("token").Text()
		if id, ok := tokenID(text); ok { // one that is given as text has no id to be named by
			p.FirstLogProb.Top = append(p.FirstLogProb.Top, openai.Candidate{ID: id, LogProb: logProb(c)})
		}
		return true
	})
	return nil
}

// logProb is that of a row, NaN when it tells none.
func logProb(row openai.Raw) float64 {
	if f, ok := row.Member("logprob").Number(); ok {
		return f
	}
	return math.NaN()
}

func tokenID(s string) (int, bool) {
	digits, ok := strings.CutPrefix(s, "token_id:")
	if !ok || digits == "" {
		return 0, false
	}
	id, err := strconv.ParseUint(digits, 10, 31)
	return int(id), err == nil
}

// laxInt is an integer that may be spelled as a string; anything else is 0.
func laxInt(raw []byte) int {
	n, err := strconv.Atoi(strings.Trim(string(raw), `"`))
	if err != nil {
		return 0
	}
	return n
}

// DecodeRefusal turns a node's answer other than 200 into what the client gets (spec 5): a typed error keeps
// its type, text and status; the KV time-out is a gateway time-out; anything else is a failed decode call.
func (TileRT) DecodeRefusal(status int, answer []byte) *openai.Error {
	var a struct {
		Error     json.RawMessage `json:"error"`
		ErrorType string          `json:"error_type"`
	}
	text := ""
	if json.Unmarshal(answer, &a) == nil {
		if json.Unmarshal(a.Error, &text) != nil {
			text = string(a.Error)
		}
	}
	if e := NodeError(a.ErrorType, text); e != nil {
		e.Status = status
		return e
	}
	if status == 504 && text == "kv_transfer_timeout" {
		return openai.Errorf(openai.TypeKVTransferTimeout,
			"the KV cache did not reach the decode node in time: check that prefill can reach the node's control port and that both have the same sender count and layout")
	}
	if text == "" {
		text = "without a reason"
	}
	return openai.Errorf(openai.TypeDecodeFailed, "decode call failed: the node answered %d %s", status, clip(text))
}

// nodeTypes are the error types that decode nodes use.
var nodeTypes = map[string]bool{
	openai.TypeInvalidGrammar: true, openai.TypeGrammarViolation: true, openai.TypeGrammarBackendUnavailable: true,
	openai.TypeGrammarUnsupported: true, openai.TypeLogprobsUnavailable: true, openai.TypeCapabilityUnavailable: true,
	openai.TypeInvalidParameter: true, openai.TypeRequestCancelled: true,
}

// NodeError is the error of a type that decode nodes use, nil for any other type.
func NodeError(errorType, text string) *openai.Error {
	if !nodeTypes[errorType] {
		return nil
	}
	if text == "" { // no refusal is without a message
		text = "the decode node refused the request and did not say why"
	}
	return openai.Errorf(errorType, "%s", text)
}

// StreamError is an error line of a token stream.
func (TileRT) StreamError(l *tilert.Line) *openai.Error {
	if e := NodeError(l.ErrorType, l.Error); e != nil {
		return e
	}
	return openai.Errorf(openai.TypeDecodeFailed, "decode error: %s", clip(l.Error))
}

// clip keeps a foreign text short: it goes into messages and logs.
func clip(s string) string {
	const limit = 500
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "…"
}
