package openai

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// sane checks what must hold for whatever the gate lets through (invariants 4 to 6).
func sane(t interface {
	Helper()
	Fatalf(string, ...any)
}, r *Request, err *Error) {
	t.Helper()
	if (r == nil) == (err == nil) {
		t.Fatalf("%v and %v: want one of them", r, err)
	}
	if err != nil {
		status, known := StatusOf(err.Type)
		if !known || status != err.Status || err.Param == "" || !strings.HasPrefix(err.Message, err.Param+"=") || !utf8.ValidString(err.Message) {
			t.Fatalf("a refusal of the wrong form: %+v", err)
		}
		if !json.Valid(err.JSON("")) {
			t.Fatalf("a refusal that is no JSON: %s", err.JSON(""))
		}
		return
	}
	var sampling map[string]any
	if err := json.Unmarshal(r.DecodeSampling, &sampling); err != nil {
		t.Fatalf("DecodeSampling %s: %v", r.DecodeSampling, err)
	}
	for _, key := range append(SamplingFields(), "presence_penalty") {
		f, isNumber := sampling[key].(float64)
		if key != "presence_penalty" && !isNumber || math.IsInf(f, 0) || math.IsNaN(f) {
			t.Fatalf("%s of %s", key, r.DecodeSampling)
		}
	}
	if k := sampling["top_k"].(float64); k != math.Trunc(k) || strings.ContainsAny(string(r.Sampling.TopK), ".eE") {
		t.Fatalf("top_k of %s", r.DecodeSampling)
	}
	if sampling["temperature"].(float64) < 0 || sampling["top_p"].(float64) < 0 || sampling["min_p"].(float64) != 0 {
		t.Fatalf("out of range: %s", r.DecodeSampling)
	}
	if !json.Valid([]byte("{" + string(r.Sampling.AppendMembers(nil)) + "}")) {
		t.Fatalf("prefill members: %s", r.Sampling.AppendMembers(nil))
	}
	if r.Grammar != nil && !json.Valid(r.Grammar) {
		t.Fatalf("Grammar %s", r.Grammar)
	}
	for _, stop := range r.Stops {
		if stop == "" || !utf8.ValidString(stop) {
			t.Fatalf("stop %q", stop)
		}
	}
	if r.MaxTokens < 0 || r.MaxTokens > math.MaxInt32 || r.TopLogProbs < 0 || r.TopLogProbs > MaxTopLogProbs {
		t.Fatalf("lengths: %d, %d", r.MaxTokens, r.TopLogProbs)
	}
	if refusal := r.Refusal(0); (refusal == nil) != (r.Needs == 0) || r.Refusal(r.Needs) != nil {
		t.Fatalf("needs %v, but %v", r.Needs, refusal)
	} else if refusal != nil {
		sane(t, nil, refusal)
	}
}

var gates = []*Gate{{}, {HasTokenizer: true}, {HasTokenizer: true, HasParser: true, ForceIncludeUsage: true,
	Defaults: Sampling{Temperature: []byte("0.6"), TopK: []byte("20"), RepetitionPenalty: []byte("1.05")}}}

func FuzzGate(f *testing.F) {
	for _, m := range append(live, `"stop":["a","\ud83d"]`, `"temperature":"1e400"`, `"top_k":" 2_0.0 "`, `"regex":"x","response_format":{"type":"json_schema","json_schema":{"schema":{"enum":[1]}}}`,
		`"logprobs":true,"top_logprobs":5,"stop":"x"`, `"stream":true,"stream_options":{"include_usage":true}`, `"prompt":[[1],[2]]`, `"max_tokens":"\u0031.0"`,
		`"tool_choice":{"type":"function"},"parallel_tool_calls":false`, `"ignore_eos":true,"presence_penalty":-2e-2`, `"chat_template_kwargs":{"enable_thinking":[]}`) {
		f.Add([]byte("{" + m + "}"))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		v, err := Parse(body)
		if err != nil {
			return
		}
		for _, g := range gates {
			for ep := range NumEndpoints {
				r, err := g.Check(ep, v)
				sane(t, r, err)
			}
		}
	})
}

var anyValue = rapid.Custom(func(t *rapid.T) string {
	number := func() string {
		return rapid.SampledFrom([]string{"0", "1", "-1", "2", "5", "20", "1.0", "0.5", "-0.0", "1e0", "1e-6", "1e400", "20.0", "4294967296", "9223372036854775808"}).Draw(t, "number")
	}
	text := func() string {
		s, _ := json.Marshal(rapid.OneOf(rapid.StringN(0, 6, -1), rapid.SampledFrom([]string{"", "true", "no", "nan", "inf", "1e400", " 20.0 ", "1_0", "auto", "required", "END"}),
			rapid.Custom(func(*rapid.T) string { return number() })).Draw(t, "text"))
		return string(s)
	}
	scalar := func() string {
		return rapid.SampledFrom([]func() string{number, text, func() string { return "null" }, func() string { return "true" }, func() string { return "false" }}).Draw(t, "kind")()
	}
	switch rapid.IntRange(0, 9).Draw(t, "shape") {
	case 0:
		return "[" + scalar() + "]"
	case 1:
		return "[ " + scalar() + " , " + scalar() + "]"
	case 2:
		return rapid.SampledFrom([]string{"[]", "{}", "[ ]", `{"type":"json_object"}`, `{"type":"json_schema","json_schema":{"schema":{}}}`, `{"type":"structural_tag"}`,
			`{"include_usage":true}`, `{"enable_thinking":false}`}).Draw(t, "object")
	case 3:
		return `{"type":` + scalar() + `}`
	}
	return scalar()
})

// The gate decides by what is in the body: neither the order of its members, nor their spelling, nor what it does not know matters.
func TestGateDecidesByContent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var names []string
		for _, f := range Fields() {
			names = append(names, f.Name)
		}
		names = rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 5, rapid.ID).Draw(t, "names")
		members := make([]string, len(names))
		for i, name := range names {
			members[i] = fmt.Sprintf("%q:%s", name, anyValue.Draw(t, name))
		}
		// The same once more: earlier values that later ones replace, and then all in another order and spelling.
		again, last := []string{`"unknown":[{"seed":1}]`}, []string{}
		for i, m := range members {
			if rapid.Bool().Draw(t, "twice") {
				again = append(again, fmt.Sprintf("%q:%s", names[i], anyValue.Draw(t, "earlier value")))
			}
			if rapid.Bool().Draw(t, "escaped") {
				m = fmt.Sprintf(`"\u%04x%s`, m[1], m[2:])
			}
			last = append(last, " "+m+"\n")
		}
		again = append(again, rapid.Permutation(last).Draw(t, "order")...)

		g := rapid.SampledFrom(gates).Draw(t, "gate")
		ep := rapid.SampledFrom([]Endpoint{Chat, Completions}).Draw(t, "endpoint")
		one, refusedOne := g.Check(ep, mustParseRapid(t, members))
		two, refusedTwo := g.Check(ep, mustParseRapid(t, again))
		sane(t, one, refusedOne)
		sane(t, two, refusedTwo)
		if !reflect.DeepEqual(refusedOne, refusedTwo) {
			t.Fatalf("%s: %v\n%s: %v", members, refusedOne, again, refusedTwo)
		}
		if one == nil {
			return
		}
		a, b := *one, *two
		a.View, b.View = View{}, View{}
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("%s: %+v\n%s: %+v", members, a, again, b)
		}
	})
}

func mustParseRapid(t *rapid.T, members []string) View {
	v, err := Parse([]byte("{" + strings.Join(members, ",") + "}"))
	if err != nil {
		t.Fatalf("%s: %v", members, err)
	}
	return v
}

// typical is what AIPerf sends.
const typical = `{"messages":[{"role":"user","content":"hi"}],"model":"glm5","stream":true,"max_completion_tokens":3000,"ignore_eos":true,"stream_options":{"include_usage":true}}`

func BenchmarkCheck(b *testing.B) {
	for _, bc := range []struct{ name, body string }{
		{"typical", typical},
		{"many fields", `{"messages":[],"model":"m","temperature":0,"top_p":"0.95","top_k":20,"stop":["</s>","<|im_end|>"],"seed":1234,"logprobs":true,"top_logprobs":3,"tools":[{}],"tool_choice":"auto"}`},
		{"refused", `{"messages":[],"seed":7}`},
	} {
		b.Run(bc.name, func(b *testing.B) {
			v := mustParse(b, bc.body)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = full.Check(Chat, v)
			}
		})
	}
}
