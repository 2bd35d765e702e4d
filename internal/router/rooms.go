package router

import (
	"slices"

	"pd-router/internal/queue"
	"pd-router/internal/staging"
)

// rooms are the slots of an open arena.
type rooms struct {
	*staging.Arena
	places map[*staging.Slot]*queue.Slot // in the line before the arena
	slots  map[*queue.Slot]*staging.Slot // and back
	sizes  []int                         // in tokens, ascending, each once
}

// Rooms of several sizes are one line: a trait for each size says that a room has at least that size. How long a prompt is only prefill
// tells; before that its body is a guess, and a request that was guessed too short asks once more for the room it needs.

// bytesPerToken guesses the length of a prompt from its body: fewer bytes a token than most texts have. A guess that is too short costs a
// prefill of which vLLM has most in its cache.
const bytesPerToken = 3

func sizesOf(slots []*staging.Slot) []int {
	var sizes []int
	for _, s := range slots {
		sizes = append(sizes, s.MaxSeqLen())
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// traits of a room for so many tokens: a bit for each size up to its own.
func (o *rooms) traits(tokens int) (t queue.Traits) {
	for i, size := range o.sizes {
		if size <= tokens {
			t |= 1 << i
		}
	}
	return t
}

// needs is the smallest size that takes so many tokens. Where none does, it is the largest.
func (o *rooms) needs(tokens int) queue.Traits {
	i, _ := slices.BinarySearch(o.sizes, tokens)
	return 1 << min(i, len(o.sizes)-1)
}

// takes says whether any room is for so many tokens.
func (o *rooms) takes(tokens int) bool { return tokens <= o.sizes[len(o.sizes)-1] }
