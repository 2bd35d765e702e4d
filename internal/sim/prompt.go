package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"pd-router/internal/tilert"
)

// prompt is what the prefill node takes from a request.
type prompt struct {
	chat       bool
	id         string   // of the client's choice, "" for one of our own
	text       string   // end of the last message, or of the prompt
	tool       *tool    // that the model calls, nil for none
	noThinking bool     // the request turns thinking off
	parts      [][]byte // the prompt as it stands in the body, for the prefix cache
	tokens     int
	choices    int // prompts of one completions request
	echo       bool
	logProbs   bool
	topN       int  // candidates of the first token
	asIDs      bool // tokens are spelled token_id:N
	kv         *kvParams
}

// maxCandidates is how many candidates of a token vLLM gives.
const maxCandidates = 20

// kvParams are the kv_transfer_params that the TileRT connector reads.
type kvParams struct {
	Host string
	Port int
}

// apiError is a refusal in vLLM's form.
type apiError struct {
	status              int
	kind, message, para string
}

func badRequest(format string, a ...any) *apiError {
	return &apiError{status: 400, kind: "BadRequestError", message: fmt.Sprintf(format, a...)}
}

// MarshalJSON writes the error object.
func (e *apiError) MarshalJSON() ([]byte, error) {
	var param any
	if e.para != "" {
		param = e.para
	}
	return json.Marshal(map[string]any{"error": map[string]any{"message": e.message, "type": e.kind, "param": param, "code": e.status}})
}

// readPrompt reads the body of a chat or completions request, and refuses what vLLM refuses and what a prefill node is
// never asked for.
func (p *Prefill) readPrompt(body []byte, chat bool) (*prompt, *apiError) {
	m, err := members(body)
	if err != nil {
		return nil, badRequest("%s", err)
	}
	if refused := p.checkLimits(m); refused != nil {
		return nil, refused
	}
	q := &prompt{chat: chat, choices: 1, asIDs: true}
	_ = json.Unmarshal(m["request_id"], &q.id)                    // another type is no id
	_ = json.Unmarshal(m["return_tokens_as_token_ids"], &q.asIDs) // or no switch
	_ = json.Unmarshal(m["echo"], &q.echo)                        // likewise
	q.kv = readKVParams(m["kv_transfer_params"])
	if chat {
		if refused := q.readChat(m); refused != nil {
			return nil, refused
		}
	} else if refused := q.readCompletion(m); refused != nil {
		return nil, refused
	}
	if limit := p.o.MaxModelLen; q.tokens+1 > limit {
		return nil, badRequest("This model's maximum context length is %d tokens. However, you requested %d tokens (%d in the messages, 1 in the completion). "+
			"Please reduce the length of the messages or completion.", limit, q.tokens+1, q.tokens)
	}
	return q, nil
}

// checkLimits refuses a model that is not served, streams, and requests for more than the first token.
func (p *Prefill) checkLimits(m map[string]json.RawMessage) *apiError {
	var model string
	if raw, ok := m["model"]; ok && json.Unmarshal(raw, &model) == nil && model != "" && !slices.Contains(p.o.Models, model) {
		return &apiError{404, "NotFoundError", fmt.Sprintf("The model `%s` does not exist.", model), "model"}
	}
	if isTrue(m["stream"]) {
		return badRequest("this prefill node does not stream")
	}
	if raw, ok := m["stream_options"]; ok && string(raw) != "null" {
		return badRequest("Stream options can only be defined when `stream=True`.")
	}
	for _, name := range []string{"max_tokens", "max_completion_tokens"} {
		raw, ok := m[name]
		if ok = ok && string(raw) != "null"; ok && string(raw) != "1" || !ok && name == "max_tokens" {
			return badRequest("this prefill node makes one token, %s is %s", name, orNothing(raw))
		}
	}
	return nil
}

func orNothing(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "absent"
	}
	return string(raw)
}

func (q *prompt) readChat(m map[string]json.RawMessage) *apiError {
	last, n := lastElement(m["messages"])
	if n == 0 {
		return badRequest("messages: a list of at least one message is required")
	}
	var msg struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if fields, err := members(last); err == nil {
		_ = json.Unmarshal(fields["role"], &msg.Role)
		msg.Content = fields["content"]
	} else {
		return badRequest("messages: the last one is no object")
	}
	q.text = tailText(msg.Content)
	if msg.Role != "tool" {
		q.tool = pickTool(m["tools"], m["tool_choice"])
	}
	var kwargs struct {
		Thinking *bool `json:"enable_thinking"`
	}
	_ = json.Unmarshal(m["chat_template_kwargs"], &kwargs) // other values do not turn it off
	q.noThinking = kwargs.Thinking != nil && !*kwargs.Thinking
	q.logProbs = isTrue(m["logprobs"])
	_ = json.Unmarshal(m["top_logprobs"], &q.topN) // another type asks for none
	if q.topN < 0 || q.topN > maxCandidates {
		return badRequest("top_logprobs: want 0 to %d", maxCandidates)
	}
	q.parts = [][]byte{m["tools"], m["messages"]}
	q.tokens = max(1, (len(m["tools"])+len(m["messages"])+tokenBytes-1)/tokenBytes)
	return nil
}

func (q *prompt) readCompletion(m map[string]json.RawMessage) *apiError {
	raw := m["prompt"]
	if len(raw) == 0 || raw[0] != '"' && raw[0] != '[' {
		return badRequest("prompt: text or a list of token ids is required")
	}
	q.parts = [][]byte{raw}
	q.tokens = max(1, (len(raw)-2+tokenBytes-1)/tokenBytes)
	if raw[0] == '[' {
		last, n := lastElement(raw)
		switch {
		case n == 0:
			return badRequest("prompt: the list is empty")
		case last[0] == '"':
			q.choices, q.text = n, tailText(last)
		case last[0] == '[':
			q.choices = n
			_, q.tokens = lastElement(last)
		default:
			q.tokens = bytes.Count(raw, []byte{','}) + 1
			q.text = textOfIDs(raw)
		}
	} else {
		q.text = tailText(raw)
	}
	if lp, ok := m["logprobs"]; ok && string(lp) != "null" {
		q.logProbs = true
		if q.topN, _ = strconv.Atoi(string(lp)); q.topN < 0 || q.topN > maxCandidates {
			return badRequest("logprobs: want 0 to %d", maxCandidates)
		}
	}
	return nil
}

// textOfIDs decodes the last ids of a list.
func textOfIDs(raw json.RawMessage) string {
	const most = 16 << 10
	if len(raw) > most {
		cut := raw[len(raw)-most:]
		raw = append(json.RawMessage{'['}, cut[bytes.IndexByte(cut, ',')+1:]...)
	}
	var ids []int
	_ = json.Unmarshal(raw, &ids) // what are no ids have no text
	return vocabulary().decode(ids)
}

// readKVParams returns where the KV goes, or nil if the request is not for the connector: it claims those with a truthy
// tilert_host (spec 2.5).
func readKVParams(raw json.RawMessage) *kvParams {
	var v struct {
		Host string `json:"tilert_host"`
		Port int    `json:"tilert_ctrl_port"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &v) != nil || v.Host == "" {
		return nil
	}
	fill(&v.Port, tilert.DefaultCtrlPort)
	return &kvParams{v.Host, v.Port}
}

func isTrue(raw json.RawMessage) bool { return string(raw) == "true" }
