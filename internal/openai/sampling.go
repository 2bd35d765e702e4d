package openai

// Sampling is what both legs must sample with alike: token 1 comes from the prefill node and the rest from the decode node, each
// with defaults of its own for what it is not told (spec 4.1 to 4.3). Each field is a finite JSON number, as it goes on the wire; an
// empty one stands for the neutral value. min_p is not among them: it is always 0.0, the only value that decode nodes have.
type Sampling struct {
	Temperature       []byte // 1.0 is neutral
	TopP              []byte // 1.0
	TopK              []byte // 0: no cut
	RepetitionPenalty []byte // 1.0
}

// Neutral is sampling from the model's own distribution.
func Neutral() Sampling {
	return Sampling{
		Temperature:       []byte("1.0"),
		TopP:              []byte("1.0"),
		TopK:              []byte("0"),
		RepetitionPenalty: []byte("1.0"),
	}
}

var neutral = Neutral()

// over gives s with each empty field taken from below.
func (s Sampling) over(below Sampling) Sampling {
	return Sampling{
		Temperature:       orElse(s.Temperature, below.Temperature),
		TopP:              orElse(s.TopP, below.TopP),
		TopK:              orElse(s.TopK, below.TopK),
		RepetitionPenalty: orElse(s.RepetitionPenalty, below.RepetitionPenalty),
	}
}

func orElse(a, b []byte) []byte {
	if len(a) > 0 {
		return a
	}
	return b
}

// AppendMembers appends the five members that pin the sampling of a leg, without braces:
//
//	"temperature":1.0,"top_p":1.0,"top_k":0,"repetition_penalty":1.0,"min_p":0.0
//
// The prefill leg has them at its top level, the decode leg in its object "sampling". SamplingFields names them.
func (s Sampling) AppendMembers(dst []byte) []byte {
	s = s.over(neutral)
	dst = append(append(dst, `"temperature":`...), s.Temperature...)
	dst = append(append(dst, `,"top_p":`...), s.TopP...)
	dst = append(append(dst, `,"top_k":`...), s.TopK...)
	dst = append(append(dst, `,"repetition_penalty":`...), s.RepetitionPenalty...)
	return append(dst, `,"min_p":0.0`...)
}

// SamplingFields are the names of the members that AppendMembers writes: a body that gets them must drop its own.
func SamplingFields() []string {
	return []string{"temperature", "top_p", "top_k", "repetition_penalty", "min_p"}
}
