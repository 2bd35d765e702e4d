package parser

import (
	"fmt"
	"strings"
	"testing"
)

// glmCall writes a call as the model does.
func glmCall(name string, pairs ...string) string {
	var b strings.Builder
	b.WriteString("<tool_call>" + name)
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&b, "<arg_key>%s</arg_key><arg_value>%s</arg_value>", pairs[i], pairs[i+1])
	}
	return b.String() + "</tool_call>"
}

// glmPair is a reply with one call of one argument.
func glmPair(value string) string { return "</think>" + glmCall("f", "a", value) }

type textCase struct {
	name, text         string
	reasoning, content string
	calls              []string
}

func run(t *testing.T, parser string, o Options, cases []textCase) {
	t.Helper()
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			check(t, parser, o, tc.text, reply{tc.reasoning, tc.content, tc.calls})
		})
	}
}

var on = Options{Thinking: true, ParallelCalls: true}

func TestGLMProse(t *testing.T) {
	run(t, "glm47", on, []textCase{
		{name: "reasoning comes first", text: "plan</think>Hello", reasoning: "plan", content: "Hello"},
		{name: "a leading think marker is absorbed", text: "<think>plan</think>Hello", reasoning: "plan", content: "Hello"},
		{name: "reasoning that never ends is no content", text: "only thinking", reasoning: "only thinking"},
		{name: "no whitespace is stripped", text: "plan</think>\n\nHello \n", reasoning: "plan", content: "\n\nHello \n"},
		{name: "content may go back to reasoning", text: "plan</think>A<think>more</think>B", reasoning: "planmore", content: "AB"},
		{name: "a second closing marker is absorbed", text: "x</think>y</think>z", reasoning: "x", content: "yz"},
		{name: "a second opening marker is absorbed", text: "r<think>s</think>t", reasoning: "rs", content: "t"},
		{name: "call markers without a call are content", text: "</think>text </tool_call> more", content: "text </tool_call> more"},
		{name: "argument markers without a call are content", text: "</think>use <arg_key> literally", content: "use <arg_key> literally"},
		{name: "call markers without a call are reasoning", text: "thinking </tool_call> still", reasoning: "thinking </tool_call> still"},
		{name: "a piece of a marker at the end is content", text: "</think>a < b and <tool", content: "a < b and <tool"},
		{name: "a piece of a marker at the end is reasoning", text: "a </thin", reasoning: "a </thin"},
		{name: "a marker may begin inside a broken one", text: "</think>a<<tool_<tool_call>f</tool_call><", content: "a<<tool_<", calls: []string{"f {}"}},
		{name: "characters of many bytes survive", text: "思考</think>世界🙂", reasoning: "思考", content: "世界🙂"},
		{name: "bytes that are no UTF-8 pass through", text: "\xe4\xb8</think>a\xffb\xe4", reasoning: "\xe4\xb8", content: "a\xffb\xe4"},
		{name: "an empty reply is empty", text: ""},
	})
}

func TestGLMThinkingOff(t *testing.T) {
	run(t, "glm47", Options{ParallelCalls: true}, []textCase{
		{name: "the reply begins as content", text: "Hello", content: "Hello"},
		{name: "think markers are content", text: "<think>x</think>y", content: "<think>x</think>y"},
		{name: "calls are calls", text: "<tool_call>f</tool_call>", calls: []string{"f {}"}},
		{name: "no piece of a think marker is held", text: "a </thin", content: "a </thin"},
	})
}

func TestGLMCalls(t *testing.T) {
	run(t, "glm47", on, []textCase{
		{name: "a call ends reasoning", text: "need tool" + glmCall("get_weather", "city", "Beijing"),
			reasoning: "need tool", calls: []string{`get_weather {"city": "Beijing"}`}},
		{name: "a call without arguments has an empty object", text: "</think><tool_call>get_current_date</tool_call>",
			calls: []string{"get_current_date {}"}},
		{name: "a name is trimmed", text: "</think><tool_call>\nget_current_date\n</tool_call>", calls: []string{"get_current_date {}"}},
		{name: "line breaks between markers mean nothing",
			text:      "need tool<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Beijing</arg_value>\n</tool_call>",
			reasoning: "need tool", calls: []string{`get_weather {"city": "Beijing"}`}},
		{name: "text between and after calls is content", text: "</think>" + glmCall("f") + "\n" + glmCall("g") + "tail",
			content: "\ntail", calls: []string{"f {}", "g {}"}},
		{name: "a call goes back to content, not to reasoning", text: "r" + glmCall("f") + "c", reasoning: "r", content: "c", calls: []string{"f {}"}},
		{name: "without tools a number is a string", text: glmPair("42"), calls: []string{`f {"a": "42"}`}},
		{name: "a value is verbatim", text: glmPair(" x "), calls: []string{`f {"a": " x "}`}},
		{name: "an empty value is a value", text: glmPair(""), calls: []string{`f {"a": ""}`}},
		{name: "a key is trimmed", text: "</think>" + glmCall("f", " k ", "v"), calls: []string{`f {"k": "v"}`}},
		{name: "keys keep their order", text: "</think>" + glmCall("f", "b", "1", "a", "2"), calls: []string{`f {"b": "1", "a": "2"}`}},
		{name: "a repeated key is a repeated member", text: "</think>" + glmCall("f", "k", "1", "l", "2", "k", "3"),
			calls: []string{`f {"k": "1", "l": "2", "k": "3"}`}},
		{name: "a value is escaped as JSON wants", text: glmPair("line\n\"quoted\" back\\slash 世界\x00\t\x7f"),
			calls: []string{`f {"a": "line\n\"quoted\" back\\slash 世界\u0000\t` + "\x7f" + `"}`}},
		{name: "bytes that are no UTF-8 are replaced in arguments", text: glmPair("a\xffb\xe4\xb8"), calls: []string{`f {"a": "a` + "\uFFFD" + `b` + "\uFFFD" + `"}`}},
		{name: "a call without a name is none", text: "</think><tool_call></tool_call>ok", content: "ok"},
		{name: "a call without a name takes no index", text: "</think>" + glmCall(" ", "a", "1") + glmCall("g"), calls: []string{"g {}"}},
	})
}

func TestGLMMarkersInValues(t *testing.T) {
	run(t, "glm47", on, []textCase{
		{name: "think and call markers are data", text: glmPair("a</think>b<tool_call>c"), calls: []string{`f {"a": "a</think>b<tool_call>c"}`}},
		{name: "the end of a call is data", text: glmPair("a</tool_call>b"), calls: []string{`f {"a": "a</tool_call>b"}`}},
		{name: "the end of a value is data unless a key or the end of the call follows", text: glmPair("a</arg_value> b<arg_key"),
			calls: []string{`f {"a": "a</arg_value> b<arg_key"}`}},
		{name: "a doubled end of a value ends it at the second", text: glmPair("a</arg_value>\n"),
			calls: []string{`f {"a": "a</arg_value>\n"}`}},
		{name: "whitespace before the next key is no part of the value",
			text:  "</think><tool_call>f<arg_key>a</arg_key><arg_value>1 </arg_value> \n\t<arg_key>b</arg_key> <arg_value> 2</arg_value>\n</tool_call>",
			calls: []string{`f {"a": "1 ", "b": " 2"}`}},
		{name: "the opening marker of a value is data inside it", text: glmPair("<arg_value>x"), calls: []string{`f {"a": "<arg_value>x"}`}},
		{name: "a piece of a marker is data", text: glmPair("<arg_value</arg_val<"), calls: []string{`f {"a": "<arg_value</arg_val<"}`}},
	})
}

func TestGLMRepairs(t *testing.T) {
	run(t, "glm47", on, []textCase{
		{name: "the opening marker of a value may be missing",
			text: "</think><tool_call>search<arg_key>query</arg_key>how many</arg_value></tool_call>", calls: []string{`search {"query": "how many"}`}},
		{name: "one pair without the opening marker and one with it",
			text:  "</think><tool_call>s<arg_key>a</arg_key>\n1</arg_value><arg_key>b</arg_key><arg_value>2</arg_value></tool_call>",
			calls: []string{`s {"a": "1", "b": "2"}`}},
		{name: "both markers of a value missing drop the pair", text: "</think><tool_call>s<arg_key>a</arg_key>1</tool_call>tail",
			content: "tail", calls: []string{"s {}"}},
		{name: "both markers of a value missing do not cost the next call",
			text: "</think><tool_call>s<arg_key>a</arg_key>1</tool_call>" + glmCall("g", "b", "2"), calls: []string{"s {}", `g {"b": "2"}`}},
		{name: "a key without a value is dropped", text: "</think><tool_call>s<arg_key>a</arg_key><arg_key>b</arg_key><arg_value>2</arg_value></tool_call>",
			calls: []string{`s {"b": "2"}`}},
		{name: "a key without a value at the end is dropped", text: "</think><tool_call>s<arg_key>a</arg_key>\n</tool_call>", calls: []string{"s {}"}},
		{name: "a key that does not end is dropped", text: "</think><tool_call>s<arg_key>a</tool_call>tail", content: "tail", calls: []string{"s {}"}},
		{name: "doubled markers around a key are absorbed",
			text: "</think><tool_call>s<arg_key><arg_key>a</arg_key></arg_key><arg_value>1</arg_value></tool_call>", calls: []string{`s {"a": "1"}`}},
		{name: "a stray call marker begins the call anew", text: "</think>prose <tool_call><tool_call>get_weather</tool_call>",
			content: "prose ", calls: []string{"get_weather {}"}},
		{name: "a stray call marker with text begins the call anew", text: "</think>the <tool_call> tag: " + glmCall("f", "a", "1"),
			content: "the ", calls: []string{`f {"a": "1"}`}},
		{name: "without tools a fused name is a name", text: "</think><tool_call>fa</arg_key><arg_value>1</arg_value></tool_call>",
			calls: []string{`fa</arg_key><arg_value>1</arg_value> {}`}},
	})
}

func TestGLMTruncation(t *testing.T) {
	pair := "</think><tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value>"
	one := []string{`f {"a": "1"}`}
	run(t, "glm47", on, []textCase{
		{name: "an unfinished value is dropped", text: pair + "<arg_key>b</arg_key><arg_value>2", calls: one},
		{name: "a value with half a closing marker is dropped", text: pair + "<arg_key>b</arg_key><arg_value>2</arg_val", calls: one},
		{name: "a value before whose marker the reply ends is dropped", text: pair + "<arg_key>b</arg_key>", calls: one},
		{name: "an unfinished key is dropped", text: pair + "<arg_key>b", calls: one},
		{name: "a pair at the very end is complete", text: pair, calls: one},
		{name: "a pair before half a marker is complete", text: pair + "\n</tool_", calls: one},
		{name: "the end inside a name gives a call", text: "</think><tool_call>get", calls: []string{"get {}"}},
		{name: "half a marker is no part of a name", text: "</think><tool_call>get<arg_k", calls: []string{"get {}"}},
		{name: "the end before a name gives nothing", text: "</think><tool_call>"},
		{name: "a value that never ends costs its pair, not the rest of the reply",
			text:    "</think><tool_call>f<arg_key>a</arg_key><arg_value>1</tool_call>ok <tool_call>g<arg_key>a</arg_key><arg_value>2</tool_call>\nbye <tool",
			content: "ok \nbye <tool", calls: []string{"f {}", "g {}"}},
		{name: "a value that ends by the strict rule only is kept at the end of the reply", text: pair + " and <arg_value> so on", calls: one},
		{name: "the strict rule goes on to further pairs", text: pair + "junk<arg_key>b</arg_key>2</arg_value>junk</tool_call>c",
			content: "c", calls: []string{`f {"a": "1", "b": "2"}`}},
	})
}

func TestGLMNamesOfTools(t *testing.T) {
	o := on
	o.Tools = functions([2]string{"get", `{}`}, [2]string{"get_weather", property(`{"type":"string"}`)},
		[2]string{"browser_action", `{"properties":{"task":{}}}`}, [2]string{"run", `{"properties":{"_id":{}}}`}, [2]string{"run_", `{}`})
	run(t, "glm47", o, []textCase{
		{name: "a key fused to a name is split off", text: "</think><tool_call>get_weathera</arg_key><arg_value>1</arg_value></tool_call>",
			calls: []string{`get_weather {"a": "1"}`}},
		{name: "the longest name wins", text: "</think><tool_call>get_weathercity</arg_key><arg_value>1</arg_value></tool_call>",
			calls: []string{`get_weather {"city": "1"}`}},
		{name: "a name whose schema has the key wins over a longer one", text: "</think><tool_call>run_id</arg_key><arg_value>1</arg_value></tool_call>",
			calls: []string{`run {"_id": "1"}`}},
		{name: "space between a name and its key is dropped", text: "</think><tool_call>browser_action task</arg_key><arg_value>1</arg_value></tool_call>",
			calls: []string{`browser_action {"task": "1"}`}},
		{name: "a key fused to a name goes before further pairs",
			text:  "</think><tool_call>get_weathera</arg_key>1</arg_value><arg_key>b</arg_key><arg_value>2</arg_value></tool_call>",
			calls: []string{`get_weather {"a": "1", "b": "2"}`}},
		{name: "an unknown name is not split", text: "</think><tool_call>xget</arg_key>a</tool_call>", calls: []string{"xget</arg_key>a {}"}},
		{name: "a name without a key is not split, later text is no key",
			text: "</think><tool_call>get_weather</arg_key>a</arg_key></tool_call>", calls: []string{"get_weather</arg_key>a</arg_key> {}"}},
		{name: "an argument marker after a known name is dropped", text: "</think><tool_call>get</arg_value>\n</arg_key></tool_call>", calls: []string{"get {}"}},
		{name: "an argument marker after a known name is no key",
			text: "</think><tool_call>get</arg_value></arg_key><arg_value>1</arg_value></tool_call>", calls: []string{"get</arg_value></arg_key><arg_value>1</arg_value> {}"}},
		{name: "an argument marker after an unknown name stays", text: "</think><tool_call>x</arg_value></tool_call>", calls: []string{"x</arg_value> {}"}},
		{name: "a call of an unknown tool is a call", text: "</think>" + glmCall("other", "a", "1"), calls: []string{`other {"a": "1"}`}},
	})
}

func TestGLMOnlyFirstCall(t *testing.T) {
	run(t, "glm47", Options{Thinking: true}, []textCase{
		{name: "later calls are swallowed, text is not", text: "r" + glmCall("f", "a", "1") + "\n" + glmCall("g", "b", "2") + "c" + glmCall("h"),
			reasoning: "r", content: "\nc", calls: []string{`f {"a": "1"}`}},
		{name: "a call without a name is not the first", text: "</think><tool_call></tool_call>" + glmCall("g") + glmCall("h"), calls: []string{"g {}"}},
	})
}

// Pairs do not wait for the end of their call, and plain text waits for nothing (invariant 4).
func TestGLMGivesOutEarly(t *testing.T) {
	p, err := New("glm47", on)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		push string
		want string
	}{
		{"plan", "1 plan"},
		{" a <", "1  a "},
		{"b", "1 <b"},
		{"</think", ""},
		{">", ""},
		{"x <tool_", "0 x "},
		{"\xe4\xb8", "0 <tool_"},
		{"\x96!", "0 世!"},
		{"<tool_call>f", ""},
		{"<arg_key>", "2 f"},
		{"a</arg_key><arg_value>1", ""},
		{"</arg_value>", ""},
		{"\n<arg_", ""},
		{"key>", `3 {"a": "1"`},
		{"b</arg_key><arg_value>2</arg_value></tool_call>", `3 , "b": "2" 3 } 4 `},
		{"</arg_key>", "0 </arg_key>"},
	} {
		var got []string
		for _, e := range p.Push(nil, step.push) {
			got = append(got, fmt.Sprintf("%d %s", e.Kind, e.Text))
		}
		if s := strings.Join(got, " "); s != step.want {
			t.Errorf("after %q: %q, want %q", step.push, s, step.want)
		}
	}
}
