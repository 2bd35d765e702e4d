package scenario

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// kinds of requests, each with the one reply that is right. They differ in what the router has to do for them.
var kinds = []struct {
	name string
	make func(i int, r *rand.Rand) *ask
}{
	{"plain", func(i int, r *rand.Rand) *ask { return say(i, coin(r), sentence(r, i, true)) }},
	{"thinking", func(i int, r *rand.Rand) *ask {
		thought, text := sentence(r, i, true), sentence(r, i, true)
		a := say(i, coin(r), thought+"</think>"+text)
		a.body = []byte(strings.Replace(string(a.body), plain, "", 1))
		a.want.reasoning, a.want.text = thought, text
		return a
	}},
	{"stop string", func(i int, r *rand.Rand) *ask {
		text := sentence(r, i, true)
		a := say(i, coin(r), text+" the END of it "+sentence(r, i, false), `"stop":["never","the END"]`)
		a.want.text = text + " "
		return a
	}},
	{"tool call", toolAsk},
	{"log-probs", func(i int, r *rand.Rand) *ask {
		a := say(i, coin(r), sentence(r, i, false), `"logprobs":true,"top_logprobs":2`)
		a.want.entries = true
		return a
	}},
	{"completion", func(i int, r *rand.Rand) *ask {
		text, stream := sentence(r, i, true), coin(r)
		body := fmt.Sprintf(`{"prompt":%s,"stream":%t}`, quote(mark(i)+" say:"+text), stream)
		return &ask{path: completionsPath, body: []byte(body), stream: stream, want: want{text: text, finish: "stop"}}
	}},
	{"few tokens", func(i int, r *rand.Rand) *ask {
		n := 1 + r.IntN(4) // fewer than the text has words
		a := say(i, coin(r), sentence(r, i, false), fmt.Sprintf(`"max_tokens":%d`, n))
		if a.stream {
			a.body = []byte(strings.Replace(string(a.body), plain, plain+`,"stream_options":{"include_usage":true}`, 1))
		}
		a.want.prefix, a.want.finish, a.want.completion = true, "length", n
		return a
	}},
}

func toolAsk(i int, r *rand.Rand) *ask {
	stream, town := coin(r), fmt.Sprintf("Town%d", i)
	body := fmt.Sprintf(`{"messages":[{"role":"system","content":"%s"},{"role":"user","content":"What is the weather in %s"}],"stream":%t%s,`+
		`"tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string"},`+
		`"days":{"type":"integer"}},"required":["city","days"]}}}]}`, mark(i), town, stream, plain)
	return &ask{path: chatPath, body: []byte(body), stream: stream, want: want{
		finish: "tool_calls", calls: []toolCall{{"get_weather", fmt.Sprintf(`{"city":%q,"days":7}`, town)}},
	}}
}

func coin(r *rand.Rand) bool { return r.IntN(2) == 0 }

// sentence is a text that no other request has.
func sentence(r *rand.Rand, i int, anyScript bool) string {
	vocabulary := []string{"the", "quick", "brown", "fox", "jumps", "over", "lazy", "dogs,", "and", "then", "sleeps.", "It", "is", "late\nnow:", "{\"a\":1}"}
	if anyScript {
		vocabulary = append(vocabulary, "größer", "naïve", "東京", "привет", "🙂", "e\u0301")
	}
	out := []string{fmt.Sprintf("%d.", i)}
	for range 5 + r.IntN(40) {
		out = append(out, vocabulary[r.IntN(len(vocabulary))])
	}
	return strings.Join(out, " ")
}
