package probe

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"pd-router/internal/engine"
	"pd-router/internal/nodes"
	"pd-router/internal/tilert"
)

// prefillProbe looks at the vLLM node.
type prefillProbe struct {
	*list
	found PrefillNode
	model string // name of the first model, as vLLM has it; "" when it told none
	up    *nodes.Upstream
}

func newPrefill(s *session, url string) *prefillProbe {
	return &prefillProbe{list: &list{session: s, node: groupPrefill}, found: PrefillNode{URL: url, Models: []Model{}}}
}

func (p *prefillProbe) run(ctx context.Context) {
	up, err := nodes.NewUpstream(p.found.URL, nodes.Options{ConnectTimeout: 2 * p.opts.Limit})
	if err != nil {
		p.add(checkHealth, bad("correct --vllm-url", "%s", err), 0)
		p.skip("--vllm-url cannot be used", checkModels, checkToken, checkRequestID, checkTokenIDs)
		return
	}
	defer up.Close()
	p.up = up
	if !p.check(ctx, checkHealth, p.opts.Limit, p.health) {
		p.skip("vLLM is not well", checkModels, checkToken, checkRequestID, checkTokenIDs)
		return
	}
	p.check(ctx, checkModels, p.opts.Limit, p.models)
	id := tilert.NewRequestID()
	var answer []byte
	if !p.check(ctx, checkToken, p.opts.TokenLimit, func(ctx context.Context) (f finding) { answer, f = p.oneToken(ctx, id); return f }) {
		p.skip("there is no answer to look at", checkRequestID, checkTokenIDs)
		return
	}
	p.judge(answer, id)
}

func (p *prefillProbe) health(ctx context.Context) finding {
	status, _, err := get(ctx, p.up, "/health", nil)
	switch {
	case err != nil:
		return bad("start vLLM, open its port to this host, or correct --vllm-url", "GET %s/health: %s", p.found.URL, why(ctx, err))
	case status != http.StatusOK:
		return bad("wait until vLLM has loaded its model, and see its log", "GET %s/health answered %d", p.found.URL, status)
	}
	return good("200")
}

// key is the header line of --api-key, if there is one.
func (p *prefillProbe) key() []byte {
	if p.opts.APIKey == "" {
		return nil
	}
	return []byte("Authorization: Bearer " + p.opts.APIKey + "\r\n")
}

// keyNeeded is what can be said of a node that answers to nobody without a key: its clients have one, which the router passes on.
func keyNeeded(path string, status int) finding {
	return unchecked("%s answered %d: vLLM wants an API key; VLLM_API_KEY in the environment is used", path, status)
}

// models reads the model list, which clients see too.
func (p *prefillProbe) models(ctx context.Context) finding {
	const advice = "see that --vllm-url is vLLM's OpenAI server, and no proxy's page"
	status, page, err := get(ctx, p.up, "/v1/models", p.key())
	switch {
	case err != nil:
		return bad(advice, "GET /v1/models: %s", why(ctx, err))
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return keyNeeded("GET /v1/models", status)
	case status != http.StatusOK:
		return bad(advice, "GET /v1/models answered %d", status)
	}
	var list struct {
		Data []struct {
			ID          string `json:"id"`
			MaxModelLen int    `json:"max_model_len"`
		} `json:"data"`
	}
	if err := json.Unmarshal(page, &list); err != nil || len(list.Data) == 0 {
		return bad(advice, "GET /v1/models lists no model")
	}
	var names []string
	for _, m := range list.Data {
		p.found.Models = append(p.found.Models, Model{plain(m.ID), m.MaxModelLen})
		names = append(names, m.ID)
	}
	p.model = list.Data[0].ID
	text := strings.Join(names, ", ")
	if n := p.window(); n > 0 {
		return good("%s, max_model_len %d", text, n)
	}
	return doubt("", "%s, max_model_len is not told", text)
}

// window is the longest sequence of the first model, which the router goes by; 0 when it is not told.
func (p *prefillProbe) window() int {
	if len(p.found.Models) == 0 {
		return 0
	}
	return p.found.Models[0].MaxModelLen
}

// oneToken sends a request like the prefill leg's, without kv_transfer_params: the connector then leaves it alone (spec 2.5).
func (p *prefillProbe) oneToken(ctx context.Context, id string) (answer []byte, f finding) {
	const path = "/v1/chat/completions"
	body := map[string]any{
		"messages":   []any{map[string]any{"role": "user", "content": "Hello."}},
		"max_tokens": 1, "stream": false, "logprobs": true, "top_logprobs": 1, "return_tokens_as_token_ids": true, "request_id": id,
	}
	if p.model != "" {
		body["model"] = p.model
	}
	raw, err := json.Marshal(body)
	if err != nil {
		panic("BUG: a body that is no JSON: " + err.Error())
	}
	status, answer, err := ask(ctx, p.up, &nodes.Call{
		Method: "POST", Path: path, Header: append(p.key(), "X-Request-Id: "+id+"\r\n"...), Body: [][]byte{raw}, Once: true,
	})
	switch {
	case err != nil:
		return nil, bad("see vLLM's log and load: every request begins like this one", "POST %s: %s", path, why(ctx, err))
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return nil, keyNeeded("POST "+path, status)
	case status != http.StatusOK:
		return nil, bad("see vLLM's log: every request begins like this one", "POST %s answered %d: %s", path, status, errorText(answer))
	}
	return answer, good("vLLM answers with one token")
}

// errorText is the message of vLLM's error object, or the answer as it is.
func errorText(answer []byte) string {
	var e struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(answer, &e) == nil && e.Error.Message != "" {
		return e.Error.Message
	}
	return string(answer[:min(len(answer), longestDetail)])
}

// judge looks at the answer to one token as the router will.
func (p *prefillProbe) judge(answer []byte, id string) {
	var a struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(answer, &a) // what is no object has no id
	switch want := "chatcmpl-" + id; {
	case a.ID == want:
		p.add(checkRequestID, good("the answer has the id that the request had"), 0)
	case a.ID == "":
		p.add(checkRequestID, bad("see that --vllm-url is vLLM's OpenAI server", "the answer has no id"), 0)
	default:
		// The connector names the KV after vLLM's id of the request, the router after the answer's: both must be the router's own.
		p.add(checkRequestID, bad("see that nothing between the router and vLLM drops the header X-Request-Id or the field request_id: with another id the decode node waits for KV under the wrong name",
			"the answer's id is %q, want %q", a.ID, want), 0)
	}
	first, err := engine.TileRT{}.Prefilled(answer)
	switch {
	case a.ID == "":
		p.skip("the answer has no id", checkTokenIDs)
	case err != nil:
		p.add(checkTokenIDs, bad("start vLLM with --return-tokens-as-token-ids", "%s", shorter(err)), 0)
	default:
		p.add(checkTokenIDs, good("the first token is named by its id: token_id:%d", first.FirstToken), 0)
	}
}

// shorter cuts the advice from an error that the router writes for its log: it stands beside.
func shorter(err error) string {
	text, _, _ := strings.Cut(err.Error(), ": start vLLM")
	return text
}
