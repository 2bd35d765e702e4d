package scenario

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

const (
	chatPath        = "/v1/chat/completions"
	completionsPath = "/v1/completions"
)

// ask is one request, with what it wants.
type ask struct {
	path   string
	body   []byte
	stream bool
	want   want
}

// want is a whole reply: the only one that is right.
type want struct {
	text, reasoning string
	calls           []toolCall
	finish          string
	entries         bool // log-prob entries, whose texts are the content
	completion      int  // tokens, 0 for any number
	prefix          bool // text is cut after some tokens: any beginning of it is right
}

// say asks for a text; further members of the body are added as they are.
func say(i int, stream bool, text string, members ...string) *ask {
	body := fmt.Sprintf(`{"messages":[{"role":"system","content":"%s"},{"role":"user","content":%s}],"stream":%t%s}`,
		mark(i), quote("say:"+text), stream, strings.Join(append([]string{plain}, members...), ","))
	return &ask{path: chatPath, body: []byte(body), stream: stream, want: want{text: text, finish: "stop"}}
}

// plain keeps the model from thinking.
const plain = `,"chat_template_kwargs":{"enable_thinking":false}`

// wrong says how a whole reply differs from what was wanted, "" for not at all.
func (a *ask) wrong(r *reply) string {
	w := a.want
	text := r.text == w.text || w.prefix && r.text != "" && strings.HasPrefix(w.text, r.text)
	switch {
	case !text:
		return fmt.Sprintf("the text is %q, not %q", r.text, w.text)
	case r.reasoning != w.reasoning:
		return fmt.Sprintf("the reasoning is %q, not %q", r.reasoning, w.reasoning)
	case r.finish != w.finish:
		return fmt.Sprintf("it ends with %q, not %q", r.finish, w.finish)
	case w.completion > 0 && r.completion != w.completion:
		return fmt.Sprintf("%d tokens are counted, not %d", r.completion, w.completion)
	case w.entries && strings.Join(r.entries, "") != r.text:
		return fmt.Sprintf("the log-probs are of %q, the text is %q", strings.Join(r.entries, ""), r.text)
	case !sameCalls(r.calls, w.calls):
		return fmt.Sprintf("the calls are %v, not %v", r.calls, w.calls)
	}
	return ""
}

// sameCalls compares calls; their arguments are the same JSON however it is written.
func sameCalls(a, b []toolCall) bool {
	return slices.EqualFunc(a, b, func(x, y toolCall) bool {
		var p, q any
		return x.name == y.name && json.Unmarshal([]byte(x.arguments), &p) == nil && json.Unmarshal([]byte(y.arguments), &q) == nil &&
			reflect.DeepEqual(p, q)
	})
}

// quote writes a text as JSON.
func quote(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string
	}
	return string(b)
}

func itoa(n int) string { return strconv.Itoa(n) }

// atoi reads a number that was written by these tests.
func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}
