package sim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"pd-router/internal/tilert"

	"github.com/valyala/fasthttp"
)

// complete serves a chat or completions request: it computes the prompt, samples one token and sends the KV to the node
// that the request names.
func (p *Prefill) complete(ctx *fasthttp.RequestCtx, chat bool) {
	q, refused := p.readPrompt(ctx.PostBody(), chat)
	if refused != nil {
		p.refused.Add(1)
		sayJSON(ctx, refused.status, refused)
		return
	}
	outer, inner := requestIDs(string(ctx.Request.Header.Peek("X-Request-Id")), q)
	rid := tilert.DeriveRID(inner)
	fault := p.faults.draw(rid, p.tell)
	if p.misbehave(ctx, fault) {
		return
	}
	c, tokens, err := p.script(q, rid, fault)
	if err != nil {
		sayJSON(ctx, 500, &apiError{status: 500, kind: "InternalServerError", message: err.Error()})
		return
	}
	cached := p.cachedTokens(q)
	from, to := p.schedule(q.tokens-cached, fault == faultSlow)
	abort := p.handOff(q, rid, c, fault, from, to)
	if !p.compute(ctx, from, to) {
		abort()
		p.aborted.Add(1)
		drop(ctx)
		return
	}
	p.requests.Add(1)
	p.prompts.Add(uint64(q.tokens))
	p.cached.Add(uint64(cached))
	answer := p.answer(q, outer, firstOf(tokens), cached)
	switch fault {
	case faultTruncate:
		b, _ := json.Marshal(answer) // of plain values
		cutShort(ctx, b)
	case faultGarbage:
		writeRaw(ctx, []byte("\x00\xffthis is no HTTP\r\n\r\n"))
	default:
		sayJSON(ctx, 200, answer)
	}
}

// misbehave carries out the faults that come before any work, and reports whether it did.
func (p *Prefill) misbehave(ctx *fasthttp.RequestCtx, fault string) bool {
	switch fault {
	case faultRefuse:
		sayJSON(ctx, 503, &apiError{status: 503, kind: "ServiceUnavailable", message: "simulated failure"})
	case faultReset:
		resetConn(ctx)
	case faultHang:
		hang(p.life, ctx)
	default:
		return false
	}
	return true
}

// compute waits while the prompt is computed, and reports false if the client left meanwhile: vLLM aborts it then.
func (p *Prefill) compute(ctx *fasthttp.RequestCtx, from, to time.Time) bool {
	p.waiting.Add(1)
	end := p.life.wait(time.Until(from), ctx.Conn(), nil)
	p.waiting.Add(-1)
	if end != timeUp {
		return false
	}
	p.running.Add(1)
	defer p.running.Add(-1)
	return p.life.wait(time.Until(to), ctx.Conn(), nil) == timeUp
}

// requestIDs returns the id in the reply, and the one that the connector sees: with a prompt index on completions, and
// with eight random hex digits in any case.
func requestIDs(header string, q *prompt) (outer, inner string) {
	base, prefix, index := header, "chatcmpl-", ""
	if base == "" {
		base = q.id
	}
	if base == "" {
		base = tilert.NewRequestID()
	}
	if !q.chat {
		prefix, index = "cmpl-", "-0"
	}
	return prefix + base, fmt.Sprintf("%s%s%s-%08x", prefix, base, index, rand.Uint32())
}

// script composes the reply and makes the KV that carries it. KV that is not written has no content.
func (p *Prefill) script(q *prompt, rid, fault string) (c *content, tokens []int, err error) {
	whose := rid
	if fault == kvRID {
		whose = tilert.NewRequestID()
	}
	const most = 64 << 10
	room := (&content{layout: p.layout, tokens: q.tokens}).room()
	say := compose(q, p.o.Thinking, min(most, room))
	raw, err := json.Marshal(script{say})
	for ; err == nil && len(raw) > room; raw, err = json.Marshal(script{say}) {
		say = clip(say, len(say)-(len(raw)-room)) // by as much as is too much, or less where escapes are long
	}
	if err != nil {
		return nil, nil, err
	}
	c = &content{layout: p.layout, tokens: q.tokens}
	if p.o.KV == KVWrite {
		c, err = newContent(p.layout, whose, q.tokens, raw)
	}
	return c, vocabulary().encode(say), err
}

// firstLogProb is that of the first token.
const firstLogProb = -0.125

// answer is the reply in vLLM's form.
func (p *Prefill) answer(q *prompt, id string, first, cached int) any {
	object, choice := "text_completion", map[string]any{"text": vocabulary().decode([]int{first})}
	if q.chat {
		object = "chat.completion"
		choice = map[string]any{"message": map[string]any{
			"role": "assistant", "content": vocabulary().decode([]int{first}), "refusal": nil, "tool_calls": []any{}, "reasoning_content": nil}}
	}
	choice["finish_reason"], choice["stop_reason"], choice["logprobs"] = "length", nil, nil
	if q.logProbs {
		choice["logprobs"] = q.logProbsOf(first)
	}
	choices := make([]any, q.choices)
	for i := range choices {
		one := map[string]any{"index": i}
		for k, v := range choice {
			one[k] = v
		}
		choices[i] = one
	}
	return map[string]any{
		"id": id, "object": object, "created": time.Now().Unix(), "model": p.o.Models[0], "choices": choices,
		"usage": map[string]any{
			"prompt_tokens": q.tokens, "completion_tokens": 1, "total_tokens": q.tokens + 1,
			"prompt_tokens_details": map[string]any{"cached_tokens": cached},
		},
		"system_fingerprint": nil, "prompt_logprobs": nil, "kv_transfer_params": nil,
	}
}

// logProbsOf writes the first token's log-probs, as chat or as completions has them.
func (q *prompt) logProbsOf(first int) any {
	spell := func(id int) string {
		if q.asIDs {
			return "token_id:" + strconv.Itoa(id)
		}
		return vocabulary().decode([]int{id})
	}
	if !q.chat {
		tokens, probs, offsets := []string{}, []any{}, []int{}
		if q.echo { // the prompt's tokens come first then
			tokens, probs, offsets = append(tokens, spell(1)), append(probs, nil), append(offsets, 0)
		}
		top := map[string]float64{}
		for k := range max(1, q.topN) {
			top[spell(first+k)] = firstLogProb - 0.5*float64(k)
		}
		return map[string]any{"tokens": append(tokens, spell(first)), "token_logprobs": append(probs, firstLogProb),
			"top_logprobs": []any{top}, "text_offset": append(offsets, 0)}
	}
	entry := func(k int) map[string]any {
		return map[string]any{"token": spell(first + k), "logprob": firstLogProb - 0.5*float64(k), "bytes": nil}
	}
	top := make([]any, q.topN)
	for k := range top {
		top[k] = entry(k)
	}
	content := entry(0)
	content["top_logprobs"] = top
	return map[string]any{"content": []any{content}}
}
