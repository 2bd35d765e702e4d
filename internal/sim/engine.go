package sim

import (
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"time"
)

// script is what travels in the KV: all that the decode node has to know of the prompt.
type script struct {
	Say string `json:"say"` // the reply's text, after which the model ends
}

// reply is the output of one decode: which tokens, how fast, and how it ends. It is fixed when decoding begins; only a
// cancellation cuts it short.
type reply struct {
	tokens  []int // the natural text
	n       int   // how many tokens come; beyond the natural ones they begin again
	finish  string
	silent  bool          // the engine never calls back: no token line, though n is 1
	eos     bool          // the first token ends the reply: its line comes, and n is 0
	each    time.Duration // between two tokens
	topN    int           // candidates a token, -1 for no log-probs
	stub    bool
	timings timings
}

// timings are the parts of timing_ms, in seconds.
type timings struct{ wait, convert, inject, decode time.Duration }

// stubTokens are what the stub engine of the real node says after the first token.
var stubTokens = []int{11, 22, 33}

// stubReply is the answer of the real node's stub engine: its finish reason is always stop.
func stubReply(q *decodeRequest) *reply {
	r := &reply{tokens: append([]int{q.FirstToken}, stubTokens...), finish: "stop", topN: q.TopLogProbs, stub: true}
	r.n = max(1, min(len(r.tokens), q.MaxTokens))
	return r
}

// textReply says the tokens of the script within the budget of spec 1.4: max_tokens and what the window leaves.
func textReply(q *decodeRequest, tokens []int, seqLen, window int) *reply {
	r := &reply{tokens: tokens, topN: q.TopLogProbs}
	ignoreEOS := string(q.Sampling["ignore_eos"]) == "true"
	limit := min(q.MaxTokens, window-seqLen-1)
	switch {
	case limit <= 0:
		r.silent, r.n, r.finish, r.tokens = true, 1, "length", []int{q.FirstToken}
	case len(tokens) == 0 || tokens[0] == vocabulary().eos:
		if ignoreEOS { // nothing else to say: it says that again and again
			r.tokens, r.n, r.finish = []int{q.FirstToken}, limit, "length"
		} else {
			r.eos, r.finish, r.tokens = true, "stop", []int{q.FirstToken}
		}
	case ignoreEOS || limit <= len(tokens):
		r.n, r.finish = limit, "length"
	default:
		r.n, r.finish = len(tokens), "stop"
	}
	return r
}

// token returns the ith token.
func (r *reply) token(i int) int { return r.tokens[i%len(r.tokens)] }

// due returns how many tokens there are so long after the first one.
func (r *reply) due(since time.Duration) int {
	if r.each <= 0 {
		return r.n
	}
	return min(r.n, 1+int(since/r.each))
}

// at returns when token i is there, counted from the first.
func (r *reply) at(i int) time.Duration { return time.Duration(i) * r.each }

// logProb is the stub engine's: it depends on the token alone.
func logProb(id int) float64 { return -(0.5 + 0.25*float64(id%4)) }

// appendTokens appends the members t, lp and tp for tokens from..to, without braces, with Python's separators.
func (r *reply) appendTokens(b []byte, from, to int) []byte {
	b = append(b, `"t": `...)
	b = appendList(b, from, to, func(b []byte, i int) []byte { return strconv.AppendInt(b, int64(r.token(i)), 10) })
	if r.topN < 0 {
		return b
	}
	b = append(b, `, "lp": `...)
	b = r.appendLP(b, from, to)
	b = append(b, `, "tp": `...)
	return r.appendTP(b, from, to)
}

// unknown reports a token whose log-prob the decode engine does not know: the first was sampled by the prefill node.
// The stub engine makes one up.
func (r *reply) unknown(i int) bool { return i == 0 && !r.stub }

func (r *reply) appendLP(b []byte, from, to int) []byte {
	return appendList(b, from, to, func(b []byte, i int) []byte {
		if r.unknown(i) {
			return append(b, "null"...)
		}
		return appendFloat(b, logProb(r.token(i)))
	})
}

func (r *reply) appendTP(b []byte, from, to int) []byte {
	return appendList(b, from, to, func(b []byte, i int) []byte {
		if r.unknown(i) {
			return append(b, "[]"...)
		}
		id := r.token(i)
		return appendList(b, 0, r.topN, func(b []byte, k int) []byte {
			b = append(b, '[')
			b = strconv.AppendInt(b, int64(id+k), 10)
			b = append(b, ", "...)
			b = appendFloat(b, logProb(id)-0.5*float64(k))
			return append(b, ']')
		})
	})
}

func appendList(b []byte, from, to int, item func(b []byte, i int) []byte) []byte {
	b = append(b, '[')
	for i := from; i < to; i++ {
		if i > from {
			b = append(b, ", "...)
		}
		b = item(b, i)
	}
	return append(b, ']')
}

// appendFloat writes a number as Python does: a whole one keeps its fraction.
func appendFloat(b []byte, x float64) []byte {
	n := len(b)
	b = strconv.AppendFloat(b, x, 'f', -1, 64)
	for _, c := range b[n:] {
		if c == '.' {
			return b
		}
	}
	return append(b, ".0"...)
}

// appendTiming writes the object of timing_ms: milliseconds to one decimal, and what the engine tells besides.
func (r *reply) appendTiming(b []byte, n int, finish string) []byte {
	ms := func(name string, d time.Duration) {
		b = append(b, '"')
		b = append(b, name...)
		b = append(b, `": `...)
		b = appendFloat(b, float64(d.Round(100*time.Microsecond))/1e6)
		b = append(b, ", "...)
	}
	b = append(b, '{')
	ms("wire_wait", r.timings.wait)
	ms("convert", r.timings.convert)
	ms("inject", r.timings.inject)
	ms("decode", r.timings.decode)
	b = append(b, `"finish_reason": "`...)
	b = append(b, finish...)
	b = append(b, '"')
	if !r.stub { // with multi-token prediction, 2.5 tokens a call
		calls := (2*n + 4) / 5
		b = append(b, `, "mtp_accept_mean": 2.5, "mtp_verify_calls": `...)
		b = strconv.AppendInt(b, int64(calls), 10)
	}
	return append(b, '}')
}

// appendDone writes the done line.
func (r *reply) appendDone(b []byte, n, seqLen int, finish string) []byte {
	b = append(b, `{"done": true, "n": `...)
	b = strconv.AppendInt(b, int64(n), 10)
	b = append(b, `, "seq_len": `...)
	b = strconv.AppendInt(b, int64(seqLen), 10)
	b = append(b, `, "finish_reason": "`...)
	b = append(b, finish...)
	b = append(b, `", "timing_ms": `...)
	b = r.appendTiming(b, n, finish)
	return append(b, "}\n"...)
}

// body is the reply in one piece, as a blocking request gets it.
func (r *reply) body(rid string, n, seqLen int, finish string) any {
	type logProbs struct {
		LP json.RawMessage `json:"lp"`
		TP json.RawMessage `json:"tp"`
	}
	out := struct {
		RID      string          `json:"rid"`
		Tokens   []int           `json:"token_ids"`
		SeqLen   int             `json:"seq_len"`
		Timing   json.RawMessage `json:"timing_ms"`
		LogProbs *logProbs       `json:"logprobs,omitempty"`
	}{RID: rid, Tokens: make([]int, 0, n), SeqLen: seqLen, Timing: r.appendTiming(nil, n, finish)}
	for i := range n {
		out.Tokens = append(out.Tokens, r.token(i))
	}
	if r.topN >= 0 {
		out.LogProbs = &logProbs{r.appendLP(nil, 0, n), r.appendTP(nil, 0, n)}
	}
	return out
}

// jittered varies a duration by up to the given part of it.
func jittered(d time.Duration, part float64) time.Duration {
	if part == 0 || d == 0 {
		return d
	}
	return time.Duration(float64(d) * (1 + part*(2*rand.Float64()-1)))
}
