package openai

import "strconv"

// Endpoint is the OpenAI endpoint of a request.
type Endpoint uint8

const (
	Chat        Endpoint = iota // POST /v1/chat/completions
	Completions                 // POST /v1/completions
	NumEndpoints
)

// Path is the endpoint's path, at the router as at the prefill node.
func (e Endpoint) Path() string {
	switch e {
	case Chat:
		return "/v1/chat/completions"
	case Completions:
		return "/v1/completions"
	}
	panic("BUG: endpoint " + strconv.Itoa(int(e)))
}

// String is the endpoint's short name, as metric label and in logs.
func (e Endpoint) String() string {
	switch e {
	case Chat:
		return "chat"
	case Completions:
		return "completions"
	}
	return "endpoint " + strconv.Itoa(int(e))
}

// Request is what the gate understood of a body that it let through. All fields are resolved: a caller needs no field of the body
// again to serve it. It is read only; its raw fields are slices of the client's body.
type Request struct {
	Endpoint Endpoint
	View     View // the client's body, as it came

	Stream          bool // SSE is wanted
	IncludeUsage    bool // the stream ends in a usage chunk (asked for, or forced by the deployment)
	ContinuousUsage bool // stream_options.continuous_usage_stats: usage on each chunk

	// MaxTokens is the completion budget, counting the first token (spec 4.4). 0: the client named none, the deployment decides.
	MaxTokens int

	Sampling       Sampling // the values that both legs must use alike
	DecodeSampling []byte   // the JSON object "sampling" of the decode leg (spec 4.2)

	Stops       []string // stop strings, none empty; nil without
	IncludeStop bool     // include_stop_str_in_output

	LogProbs    bool // wanted
	TopLogProbs int  // candidates per token, 0 to MaxTopLogProbs

	Grammar []byte // the JSON object {"type":…,"value":…} of the decode leg, or nil

	EnableThinking bool   // whether the chat template lets the model think (goes with Grammar to the decode leg)
	TemplateKwargs []byte // raw chat_template_kwargs object, or nil
	Tools          []byte // raw "tools" value of a chat request, or nil
	ToolChoiceNone bool   // tool_choice "none": calls are not wanted
	ParallelCalls  bool   // false: only the first call is wanted

	Needs  Needs // what the nodes must be able to do
	wanted [numNeeds]want
}
