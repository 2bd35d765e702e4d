package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
)

func (p *Prefill) models(ctx *fasthttp.RequestCtx) {
	list := make([]any, 0, len(p.o.Models))
	for _, name := range p.o.Models {
		list = append(list, map[string]any{
			"id": name, "object": "model", "created": p.began.Unix(), "owned_by": "vllm", "root": p.o.Models[0], "parent": nil, "max_model_len": p.o.MaxModelLen,
		})
	}
	sayJSON(ctx, 200, map[string]any{"object": "list", "data": list})
}

// tokenize answers with the ids of a text, or of messages in the chat template of tokenizerConfig.
func (p *Prefill) tokenize(ctx *fasthttp.RequestCtx) {
	var q struct {
		Prompt   string `json:"prompt"`
		Messages []struct {
			Role    string `json:"role"`
			Content string `json:"content"`
		} `json:"messages"`
		Generate *bool `json:"add_generation_prompt"`
	}
	if err := json.Unmarshal(ctx.PostBody(), &q); err != nil {
		refused := badRequest("%s", err)
		sayJSON(ctx, refused.status, refused)
		return
	}
	text := q.Prompt
	if q.Messages != nil {
		var b strings.Builder
		b.WriteString("[gMASK]<sop>")
		for _, m := range q.Messages {
			b.WriteString("<|" + m.Role + "|>" + m.Content)
		}
		if q.Generate == nil || *q.Generate {
			b.WriteString("<|assistant|>")
		}
		text = b.String()
	}
	ids := append([]int{}, vocabulary().encode(text)...)
	sayJSON(ctx, 200, map[string]any{"count": len(ids), "max_model_len": p.o.MaxModelLen, "tokens": ids, "token_strs": nil})
}

func (p *Prefill) detokenize(ctx *fasthttp.RequestCtx) {
	var q struct {
		Tokens []int `json:"tokens"`
	}
	if err := json.Unmarshal(ctx.PostBody(), &q); err != nil {
		refused := badRequest("%s", err)
		sayJSON(ctx, refused.status, refused)
		return
	}
	sayJSON(ctx, 200, map[string]any{"prompt": vocabulary().decode(q.Tokens)})
}

// metrics writes the families of vLLM that routers and load tests read.
func (p *Prefill) metrics() []byte {
	var b bytes.Buffer
	c := p.Counters()
	model := p.o.Models[0]
	family := func(name, kind, help string, value any) {
		fmt.Fprintf(&b, "# HELP vllm:%s %s\n# TYPE vllm:%s %s\nvllm:%s{engine=\"0\",model_name=%q} %v\n", name, help, name, kind, name, model, value)
	}
	family("num_requests_running", "gauge", "Number of requests in model execution batches.", float64(p.running.Load()))
	family("num_requests_waiting", "gauge", "Number of requests waiting to be processed.", float64(p.waiting.Load()))
	family("kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.", min(1, float64(c.PromptTokens-c.CachedTokens)/float64(cacheBlocks*blockTokens)))
	family("prompt_tokens_total", "counter", "Number of prefill tokens processed.", float64(c.PromptTokens))
	family("generation_tokens_total", "counter", "Number of generation tokens processed.", float64(c.Requests))
	family("prefix_cache_queries_total", "counter", "Prefix cache queries, in terms of number of queried tokens.", float64(c.PromptTokens))
	family("prefix_cache_hits_total", "counter", "Prefix cache hits, in terms of number of cached tokens.", float64(c.CachedTokens))
	family("request_success_total", "counter", "Count of successfully processed requests.", float64(c.Requests))
	family("process_uptime_seconds", "gauge", "Time since the node began.", time.Since(p.began).Seconds())
	return b.Bytes()
}
