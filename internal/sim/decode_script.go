package sim

import (
	"encoding/json"
	"fmt"
	"sync"

	"pd-router/internal/tilert"
)

// unscripted is what the text engine says when it does not look at the KV.
const unscripted = "I have not read the cache of this prompt, so I say the same to everybody: the quick brown fox jumps over the lazy dog."

var unscriptedTokens = sync.OnceValue(func() []int { return vocabulary().encode(unscripted) })

// script returns the tokens that the reply has by nature. When the KV is checked they come out of it, and the request's
// first token must be the one that the prefill node sampled.
func (d *Decode) script(q *decodeRequest, t *tilert.Transfer) ([]int, error) {
	if d.o.KV != KVCheck {
		tokens := append([]int{q.FirstToken}, unscriptedTokens()[1:]...)
		return tokens, nil
	}
	raw, err := verify(d.buffer, q.RID, t.SeqLen)
	if err != nil {
		return nil, err
	}
	var s script
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("KV check: the script cannot be read: %w", err)
	}
	tokens := vocabulary().encode(s.Say)
	if first := firstOf(tokens); first != q.FirstToken {
		return nil, fmt.Errorf("KV check: first_token_id is %d, the prefill node sampled %d", q.FirstToken, first)
	}
	return tokens, nil
}

// firstOf is the token that prefill samples: the first of the reply, or the end of it.
func firstOf(tokens []int) int {
	if len(tokens) == 0 {
		return vocabulary().eos
	}
	return tokens[0]
}
