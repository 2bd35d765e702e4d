package engine

import (
	"strconv"

	"pd-router/internal/openai"
)

// TileRT is the connector of a vLLM prefill node, whose plug-in pushes the KV cache, and TileRT decode nodes.
type TileRT struct{}

// Leg is one request to a node.
type Leg struct {
	Path   string
	Header []byte   // further header lines
	Body   [][]byte // segments, see openai.View.Edit
}

// ownedByRouter are the members of a client's body that the prefill leg does not inherit (spec 4.1): lengths and
// streaming, as prefill makes one token; stop strings, which the router matches itself; log-probs and
// sampling, which are written anew; and what names a request or a handoff.
var ownedByRouter = []string{
	"max_tokens", "max_completion_tokens", "min_tokens", "stream", "stream_options",
	"stop", "include_stop_str_in_output",
	"logprobs", "top_logprobs",
	"temperature", "top_p", "top_k", "repetition_penalty", "min_p",
	"kv_transfer_params", "request_id", "return_tokens_as_token_ids",
}

// Prefill is the first leg of r under the request id, with the KV to be pushed to the control port ctrl of
// host. The id goes out as header and as field: vLLM takes the header where it knows it.
func (TileRT) Prefill(r *openai.Request, id, host string, ctrl int) Leg {
	set := make([]byte, 0, 512)
	set = append(set, `"max_tokens":1,"stream":false,"return_tokens_as_token_ids":true,"request_id":"`...)
	set = append(set, id...)
	set = append(set, `","logprobs":`...)
	if r.Endpoint == openai.Chat {
		set = append(set, `true,"top_logprobs":`...)
		set = strconv.AppendInt(set, int64(max(1, r.TopLogProbs)), 10)
	} else {
		set = append(set, '1')
	}
	set = r.Sampling.AppendMembers(append(set, ','))
	set = append(set, `,"kv_transfer_params":{"tilert_host":`...)
	set = openai.AppendString(set, host)
	set = append(set, `,"tilert_ctrl_port":`...)
	set = strconv.AppendInt(set, int64(ctrl), 10)
	set = append(set, '}')
	header := make([]byte, 0, 64)
	header = append(header, "X-Request-Id: "...)
	header = append(header, id...)
	header = append(header, "\r\n"...)
	return Leg{Path: r.Endpoint.Path(), Header: header, Body: r.View.Edit(ownedByRouter, set)}
}

// Decode is the second leg (spec 4.2). It streams always: dropping the connection then stops the node, and a stop
// string can end it early. maxTokens counts the first token.
func (TileRT) Decode(r *openai.Request, p *Prefilled, maxTokens int) Leg {
	body := make([]byte, 0, 256+len(r.DecodeSampling)+len(r.Grammar))
	body = append(body, `{"rid":`...)
	body = openai.AppendString(body, p.RID)
	body = append(body, `,"first_token_id":`...)
	body = strconv.AppendInt(body, int64(p.FirstToken), 10)
	body = append(body, `,"max_tokens":`...)
	body = strconv.AppendInt(body, int64(maxTokens), 10)
	body = append(body, `,"sampling":`...)
	body = append(body, r.DecodeSampling...)
	body = append(body, `,"stream":true`...)
	if r.Grammar != nil {
		body = append(body, `,"grammar_spec":`...)
		body = append(body, r.Grammar...)
		body = append(body, `,"enable_thinking":`...)
		body = strconv.AppendBool(body, r.EnableThinking)
	}
	if r.LogProbs {
		body = append(body, `,"top_logprobs":`...)
		body = strconv.AppendInt(body, int64(r.TopLogProbs), 10)
	}
	return Leg{Path: "/pd/decode", Body: [][]byte{append(body, '}')}}
}
