package sim

import (
	"encoding/json"
	"strings"
	"testing"

	"pd-router/internal/parser"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestCompose(t *testing.T) {
	weather := &tool{}
	weather.Function.Name = "get_weather"
	weather.Function.Parameters = json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city"]}`)
	for _, tc := range []struct {
		name     string
		p        prompt
		thinking bool
		want     string
	}{
		{"what follows the mark is the reply", prompt{text: "please say:one\ntwo"}, false, "one\ntwo"},
		{"a word that ends like the mark is none", prompt{text: "an essay: x say:y"}, false, "y"},
		{"nor is there another", prompt{text: "an essay:x"}, false, "You said: an essay:x\n" + closing},
		{"the mark stands above everything", prompt{text: "say:x", tool: weather}, true, "x"},
		{"a prompt comes back", prompt{text: "alpha beta"}, false, "You said: alpha beta\n" + closing},
		{"its end only", prompt{text: strings.Repeat("x ", 100) + "end"}, false, "You said: " + strings.Repeat("x ", 47) + "end\n" + closing},
		{"nothing was said", prompt{}, false, "You said nothing. " + closing},
		{"reasoning comes first", prompt{text: "hi"}, true, thoughts + "</think>You said: hi\n" + closing},
		{"unless it is turned off", prompt{text: "hi", noThinking: true}, true, "You said: hi\n" + closing},
		{"the tool is called", prompt{text: "what is the weather in Paris?", tool: weather}, false,
			"<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>"},
	} {
		t.Run(tc.name, func(t *testing.T) { assert.Equal(t, tc.want, compose(&tc.p, tc.thinking, 1<<20)) })
	}
	assert.Equal(t, "世", clip("世界", 5))
	assert.Empty(t, clip("x", -1))
	assert.Greater(t, len(vocabulary().encode(compose(&prompt{text: "hi"}, false, 1000))), 12, "a reply is long enough for the clients' checks")
}

// Invariant 3: the reply is the prompt's, whatever the request's id.
func TestTheSamePromptHasTheSameReply(t *testing.T) {
	r := newRig(t, PrefillOptions{}, DecodeOptions{})
	a, b := r.ask("alpha beta gamma", nil, nil), r.ask("alpha beta gamma", nil, nil)
	assert.Equal(t, a.IDs, b.IDs)
	assert.Contains(t, a.text(), "alpha beta gamma")
}

func TestWhichToolIsCalled(t *testing.T) {
	tools := json.RawMessage(`[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"b"}}]`)
	for choice, want := range map[string]string{``: "a", `"auto"`: "a", `"none"`: "", `{"type":"function","function":{"name":"b"}}`: "b", `{"type":"function","function":{"name":"c"}}`: "a"} {
		got := ""
		if picked := pickTool(tools, json.RawMessage(choice)); picked != nil {
			got = picked.Function.Name
		}
		assert.Equal(t, want, got, choice)
	}
	for _, tools := range []string{``, `null`, `[]`, `5`} {
		assert.Nil(t, pickTool(json.RawMessage(tools), nil))
	}
}

// The call that the node's tokens spell is read by the router's parser with the types of the schema.
func TestToolCallsAreUnderstood(t *testing.T) {
	const tools = `[{"type":"function","function":{"name":"search","parameters":{"type":"object","properties":{
		"q":{"type":"string"},"kind":{"enum":["web","news"]},"n":{"type":"integer","minimum":10},"x":{"type":"number","maximum":0.5},"on":{"type":"boolean"},
		"tags":{"type":"array","items":{"type":"string"},"minItems":2},"at":{"type":"object","properties":{"lat":{"type":"number"}},"required":["lat"]},
		"opt":{"type":["null","integer"]},"any":{"anyOf":[{"type":"null"},{"type":"string","minLength":8}]},"c":{"const":"k"},"d":{"type":"string","default":"dd"},"short":{"type":"string","maxLength":2}
	}}}}]`
	r := newRig(t, PrefillOptions{}, DecodeOptions{})
	got := r.ask("look for Paris", object{"tools": json.RawMessage(tools)}, nil)
	p, err := parser.New("glm47", parser.Options{Thinking: true, Tools: json.RawMessage(tools), ParallelCalls: true})
	require.NoError(t, err)
	events := p.Finish(p.Push(nil, got.text()))
	name, args := "", ""
	for _, e := range events {
		switch e.Kind {
		case parser.CallStart:
			name = e.Text
		case parser.CallArgs:
			args += e.Text
		}
	}
	assert.Equal(t, "search", name)
	assert.JSONEq(t, `{"q":"Paris","kind":"web","n":10,"x":0.5,"on":true,"tags":["Paris","Paris"],"at":{"lat":1.5},"opt":7,"any":"Parisxxx","c":"k","d":"dd","short":"Pa"}`, args)

	after := r.prefill("x", object{"tools": json.RawMessage(tools), "messages": []object{{"role": "user", "content": "q"}, {"role": "tool", "content": "sunny in Paris"}}})
	assert.Contains(t, r.decode(after.RID, after.First, nil).text(), "sunny in Paris", "the tool's answer is answered with text")
}

func TestContentInParts(t *testing.T) {
	r := newRig(t, PrefillOptions{}, DecodeOptions{})
	p := r.prefill("", object{"messages": []object{{"role": "user", "content": []object{{"type": "text", "text": "say:from"}, {"type": "text", "text": " parts"}}}}})
	assert.Equal(t, "from parts", r.decode(p.RID, p.First, nil).text())
}

func TestALongPromptIsAnsweredWithItsEnd(t *testing.T) {
	const end = "the very end"
	r := newRig(t, PrefillOptions{MaxModelLen: 1 << 20}, DecodeOptions{MaxSeqLen: 1 << 17})
	got := r.ask(strings.Repeat(`word \" 世 `, 1000)+end, nil, nil)
	assert.Equal(t, 200, got.Status, got.Body)
	assert.Contains(t, got.text(), end)
	q, refused := r.p.readPrompt([]byte(`{"messages":[{"role":"user","content":"`+strings.Repeat(`word \" \u4e16 `, 30000)+end+`"}],"max_tokens":1}`), true)
	require.Nil(t, refused)
	assert.Contains(t, compose(q, false, 1000), end)
}

// Walking through a body finds the same members as the library.
func TestMembers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.SampledFrom([]string{`1`, `-1.5e3`, `true`, `null`, `""`, `"a\"b"`, `"\\"`, `"\\\""`, `"{[,:]}"`, `[]`, `{}`, `[1,[2,"]"],{"a":"}"}]`, `{"a":{"b":[]}}`})
		blank := rapid.SampledFrom([]string{"", " ", "\n\t", "  "})
		var b strings.Builder
		b.WriteString(blank.Draw(t, "blank") + "{")
		want := map[string]string{}
		n := rapid.IntRange(0, 5).Draw(t, "members")
		for i := range n {
			name, v := rapid.SampledFrom([]string{"a", "b", "c", "x y", "é"}).Draw(t, "name"), value.Draw(t, "value")
			want[name] = v
			b.WriteString(blank.Draw(t, "blank") + `"` + name + `"` + blank.Draw(t, "blank") + ":" + blank.Draw(t, "blank") + v + blank.Draw(t, "blank"))
			if i+1 < n {
				b.WriteByte(',')
			}
		}
		b.WriteString("}" + blank.Draw(t, "blank"))
		got, err := members([]byte(b.String()))
		require.NoError(t, err)
		require.Len(t, got, len(want))
		for name, v := range want {
			require.Equal(t, v, string(got[name]))
		}
	})
}

func FuzzMembers(f *testing.F) {
	for _, s := range []string{`{"a":1}`, `{"a":[1,{"b":"]"}],"c":"\\\""}`, `{`, `{"a"`, `{"a":`, `{"a":"`, `[1]`, `{"a":1}}`, `{"a":]}`, `{"messages":[{"role":"user","content":"x"},5]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := members(b)
		var want map[string]json.RawMessage
		if ok := json.Unmarshal(b, &want) == nil && want != nil; ok != (err == nil) {
			t.Fatalf("%q: %v", b, err)
		}
		// a body that is too long to be checked must not hang or panic either
		big := append(append([]byte{}, b...), make([]byte, fullCheck)...)
		if m, err := members(big); err == nil {
			for _, v := range m {
				lastElement(v)
				tailText(v)
			}
		}
		for _, v := range got {
			lastElement(v)
			tailText(v)
		}
	})
}

func BenchmarkReadPrompt(b *testing.B) {
	p, err := NewPrefill(PrefillOptions{MaxModelLen: 1 << 30})
	require.NoError(b, err)
	for _, size := range []int{1 << 10, 1 << 20, 4 << 20} {
		body := []byte(`{"model":"glm5","messages":[{"role":"user","content":"` + strings.Repeat("hello ", size/6) + `"}],"max_tokens":1,"logprobs":true}`)
		b.Run(map[int]string{1 << 10: "1KB", 1 << 20: "1MB", 4 << 20: "4MB"}[size], func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				q, refused := p.readPrompt(body, true)
				if refused != nil {
					b.Fatal(refused.message)
				}
				p.cachedTokens(q)
			}
		})
	}
}
