package router

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
)

// fakePrefill is vLLM as the router can see it. Its reply announces the KV to the node that the request names, and it takes
// note of an id that comes twice: two transfers of one name would meet at the node.
type fakePrefill struct {
	fake
	nodes  []*fakeNode
	window int // max_model_len, 0: not told

	state   sync.Mutex
	calls   []prefillCall
	scripts []prefillScript
	always  prefillScript
	token   int // first token of every reply
	sick    bool
	silent  bool // requests for /v1/models get no answer
	misuse  []string
	pages   int // requests for /v1/models
	passed  []string
}

// prefillCall is what came.
type prefillCall struct {
	id      string
	path    string
	raw     []byte
	body    map[string]any
	forward http.Header
}

// prefillScript answers one request in place of the usual answer.
type prefillScript func(p *fakePrefill, x *exchange)

func newFakePrefill(t *testing.T, nodes []*fakeNode, window int) *fakePrefill {
	p := &fakePrefill{nodes: nodes, window: window, token: hello}
	p.fake = fake{t: t, handler: http.HandlerFunc(p.serve)}
	return p
}

func (p *fakePrefill) serve(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/health":
		p.state.Lock()
		sick := p.sick
		p.state.Unlock()
		if sick {
			w.WriteHeader(503)
		}
	case "/v1/models":
		p.state.Lock()
		p.pages++
		silent := p.silent
		p.state.Unlock()
		if silent {
			<-r.Context().Done()
			return
		}
		fmt.Fprint(w, p.models())
	case "/v1/chat/completions", "/v1/completions":
		p.work(w, r, p.complete)
	case "/tokenize":
		p.work(w, r, func(x *exchange) {
			p.state.Lock()
			p.passed = append(p.passed, string(x.raw))
			p.state.Unlock()
			x.answer(200, `{"count":3}`)
		})
	default:
		http.NotFound(w, r)
	}
}

func (p *fakePrefill) complete(x *exchange) {
	id := x.r.Header.Get("X-Request-Id")
	p.state.Lock()
	for _, c := range p.calls {
		if c.id == id {
			p.misuse = append(p.misuse, "two prefills under the id "+id)
		}
	}
	p.calls = append(p.calls, prefillCall{id, x.r.URL.Path, x.raw, x.body, x.r.Header})
	script := p.always
	if len(p.scripts) > 0 {
		script, p.scripts = p.scripts[0], p.scripts[1:]
	}
	p.state.Unlock()
	if script == nil {
		script = (*fakePrefill).good
	}
	script(p, x)
}

// models is the model list. Nobody who read it and wrote it again would write it so.
func (p *fakePrefill) models() string {
	if p.window == 0 {
		return `{"object":"list","data":[{"id":"m"}]}`
	}
	return fmt.Sprintf(`{"object": "list","data":[{"id":"m", "parent":null,"root":"/\u006d","new_in_vllm":1.0,"max_model_len":%d}]}`+"\n", p.window)
}

// good prefills the prompt: its KV goes to the node, its first token back. The prompt has as many tokens as the
// field "prompt_length" says, else four.
func (p *fakePrefill) good(x *exchange) {
	id := x.r.Header.Get("X-Request-Id")
	kv, _ := x.body["kv_transfer_params"].(map[string]any)
	for _, n := range p.nodes {
		if float64(n.ctrlPort()) == kv["tilert_ctrl_port"] {
			n.announce(id)
		}
	}
	length, ok := x.body["prompt_length"].(float64)
	if !ok {
		length = 4
	}
	p.state.Lock()
	token := fmt.Sprintf("token_id:%d", p.token)
	p.state.Unlock()
	choice := map[string]any{"index": 0, "finish_reason": "length"}
	outer := "chatcmpl-" + id
	if x.r.URL.Path == "/v1/completions" {
		outer = "cmpl-" + id
		choice["text"], choice["logprobs"] = "", map[string]any{"tokens": []any{token}, "token_logprobs": []any{-0.25}}
	} else {
		choice["message"] = map[string]any{"role": "assistant", "content": ""}
		choice["logprobs"] = map[string]any{"content": []any{map[string]any{"token": token, "logprob": -0.25, "top_logprobs": []any{}}}}
	}
	reply, err := json.Marshal(map[string]any{
		"id": outer, "model": "m", "choices": []any{choice},
		"usage": map[string]any{"prompt_tokens": length, "completion_tokens": 1},
	})
	if err != nil {
		panic(err)
	}
	x.answer(200, string(reply))
}

// script plays s for the next requests, one each.
func (p *fakePrefill) script(s ...prefillScript) {
	p.state.Lock()
	defer p.state.Unlock()
	p.scripts = append(p.scripts, s...)
}

// came lists what has come so far.
func (p *fakePrefill) came() []prefillCall {
	p.state.Lock()
	defer p.state.Unlock()
	return append([]prefillCall(nil), p.calls...)
}

// prompts are the texts of what came, in order.
func (p *fakePrefill) prompts() (out []string) {
	for _, c := range p.came() {
		out = append(out, fmt.Sprint(c.body["prompt"]))
	}
	return out
}

// refuses answers with a status and a body as they are.
func refuses(status int, body string) prefillScript {
	return func(_ *fakePrefill, x *exchange) { x.answer(status, body) }
}

// breaks closes the connection before any byte of a reply.
func breaks(_ *fakePrefill, x *exchange) { x.cut() }

// waitsAt is the usual answer after a gate.
func waitsAt(g *gate) prefillScript {
	return func(p *fakePrefill, x *exchange) {
		if x.at(g) {
			p.good(x)
		}
	}
}
