package openai

import (
	"fmt"
	"strings"
	"testing"
)

func TestGateOnLengths(t *testing.T) { // cases 28, 29, 35, 36
	for _, tc := range []struct {
		name, members string
		want          int
	}{
		{"28: max_completion_tokens outranks max_tokens", `"max_tokens":128,"max_completion_tokens":3000`, 3000},
		{"29: no length is 0", ``, 0},
		{"a null length is none", `"max_tokens":null,"max_completion_tokens":null`, 0},
		{"a null length does not outrank", `"max_tokens":128,"max_completion_tokens":null`, 128},
		{"35: a decimal in a string", `"max_tokens":"20.0"`, 20},
		{"35: true is 1", `"max_tokens":true`, 1},
		{"35: a decimal string outranks", `"max_completion_tokens":"7.0","max_tokens":3`, 7},
		{"35: what is outranked may be out of range", `"max_completion_tokens":5,"max_tokens":0`, 5},
		{"20", `"max_tokens":20`, 20},
		{"20.0", `"max_tokens":20.0`, 20},
		{"2e1", `"max_tokens":2e1`, 20},
		{"a string", `"max_tokens":"20"`, 20},
		{"white space around it", `"max_tokens":" 20 "`, 20},
		{"other white space around it", `"max_tokens":"\t\u00a020\n"`, 20},
		{"underscores between digits", `"max_tokens":"1_000"`, 1000},
		{"underscores and zeros", `"max_tokens":"1_000.00"`, 1000},
		{"leading zeros and a sign", `"max_tokens":"+0020"`, 20},
		{"escaped digits", `"max_tokens":"\u0032\u0030"`, 20},
		{"the last of two counts", `"max_tokens":5,"max_tokens":7`, 7},
		{"a key with escapes counts", `"max_tokens":5,"max\u005ftokens":7`, 7},
		{"more than any window is the most that is counted", `"max_tokens":9223372036854775807`, 1<<31 - 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for ep := range NumEndpoints {
				r, err := check(t, &full, ep, 0, tc.members)
				if err != nil {
					t.Fatal(err)
				}
				if r.MaxTokens != tc.want {
					t.Errorf("MaxTokens = %d, want %d", r.MaxTokens, tc.want)
				}
			}
		})
	}
	t.Run("36: what is no length", func(t *testing.T) {
		for _, field := range []string{"max_tokens", "max_completion_tokens"} {
			refused(t, &full, Chat, allNeeds, TypeInvalidParameter, "", values(field, `0`, `-5`, `1.9`, `"abc"`, `"1.9"`, `"1e2"`,
				`"0x10"`, `[]`, `[1]`, `{}`, `false`, `""`, `" "`, `"20."`, `".0"`, `"_1"`, `"1_"`, `"1__0"`, `"+-2"`, `"- 1"`, `"1 0"`, `"1,000"`, `"２０"`,
				`"\u200b20"`, `"1._0"`, `"nan"`, `"inf"`, `"\ud800"`, `1e400`, `-1e400`, `1e20`, `99999999999999999999`, `"99999999999999999999"`, strings.Repeat("9", 400),
				`"`+strings.Repeat("9", 5000)+`"`)...)
		}
		refused(t, &full, Chat, allNeeds, TypeInvalidParameter, "max_tokens", `"max_completion_tokens":5,"max_tokens":1.9`)
		refused(t, &full, Chat, allNeeds, TypeInvalidParameter, "max_completion_tokens", `"max_completion_tokens":0,"max_tokens":5`)
		refused(t, &full, Chat, allNeeds, TypeInvalidParameter, "max_tokens", `"max_completion_tokens":"x","max_tokens":"y"`)
	})
}

func TestGateOnSamplingValues(t *testing.T) { // cases 22, 23, 25, 26, 50, 61, 62; invariant 5
	for _, tc := range []struct{ name, members, want string }{
		{"neutral without any", ``, `"temperature":1.0,"top_p":1.0,"top_k":0,"repetition_penalty":1.0,"min_p":0.0`},
		{"22: an absent top_p is 1.0", `"temperature":0.7`, `"temperature":0.7,"top_p":1.0,"top_k":0,"repetition_penalty":1.0,"min_p":0.0`},
		{"25: greedy pins top_p too", `"temperature":0.0`, `"temperature":0.0,"top_p":1.0,"top_k":0,"repetition_penalty":1.0,"min_p":0.0`},
		{"26: a null min_p is 0.0", `"min_p":null`, `"temperature":1.0,"top_p":1.0,"top_k":0,"repetition_penalty":1.0,"min_p":0.0`},
		{"61: forms of top_k", `"top_k":20.0`, `"temperature":1.0,"top_p":1.0,"top_k":20,"repetition_penalty":1.0,"min_p":0.0`},
		{"61: top_k in a string", `"top_k":"20"`, `"temperature":1.0,"top_p":1.0,"top_k":20,"repetition_penalty":1.0,"min_p":0.0`},
		{"top_k as a decimal in a string", `"top_k":" 20.0 "`, `"temperature":1.0,"top_p":1.0,"top_k":20,"repetition_penalty":1.0,"min_p":0.0`},
		{"top_k with an exponent", `"top_k":2e1`, `"temperature":1.0,"top_p":1.0,"top_k":20,"repetition_penalty":1.0,"min_p":0.0`},
		{"a negative top_k is vLLM's", `"top_k":-1`, `"temperature":1.0,"top_p":1.0,"top_k":-1,"repetition_penalty":1.0,"min_p":0.0`},
		{"62: numbers in strings", `"temperature":"0.7","top_p":"0.95"`, `"temperature":0.7,"top_p":0.95,"top_k":0,"repetition_penalty":1.0,"min_p":0.0`},
		{"62: integers", `"temperature":0,"top_p":1`, `"temperature":0,"top_p":1,"top_k":0,"repetition_penalty":1.0,"min_p":0.0`},
		{"strings as Python reads them", `"temperature":" +.5 ","top_p":"00.90"`, `"temperature":0.5,"top_p":0.90,"top_k":0,"repetition_penalty":1.0,"min_p":0.0`},
		{"more of them", `"temperature":"1_0.5","top_p":"5.e-1"`, `"temperature":10.5,"top_p":5e-1,"top_k":0,"repetition_penalty":1.0,"min_p":0.0`},
		{"the client's digits stay", `"temperature":0.1000000000000000055511151231257827,"repetition_penalty":1.00000`,
			`"temperature":0.1000000000000000055511151231257827,"top_p":1.0,"top_k":0,"repetition_penalty":1.00000,"min_p":0.0`},
		{"the last of two counts", `"temperature":0.1,"temperature":0.7`, `"temperature":0.7,"top_p":1.0,"top_k":0,"repetition_penalty":1.0,"min_p":0.0`},
		{"the last of two is null", `"temperature":0.1,"temperature":null`, `"temperature":1.0,"top_p":1.0,"top_k":0,"repetition_penalty":1.0,"min_p":0.0`},
		{"what else the client sent", `"ignore_eos":true,"presence_penalty":0.50,"top_p":0.8`,
			`"temperature":1.0,"top_p":0.8,"top_k":0,"repetition_penalty":1.0,"min_p":0.0,"presence_penalty":0.50,"ignore_eos":true`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := check(t, &full, Chat, allNeeds, tc.members)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(r.DecodeSampling); got != "{"+tc.want+"}" {
				t.Errorf("DecodeSampling = %s, want {%s}", got, tc.want)
			}
			if prefill := string(r.Sampling.AppendMembers(nil)); !strings.HasPrefix(tc.want, prefill) {
				t.Errorf("the prefill leg gets %s", prefill)
			}
		})
	}
	t.Run("24, 50: deployment defaults fill in what is absent or null; 0 is a value", func(t *testing.T) {
		g := Gate{Defaults: Sampling{Temperature: []byte("0.6"), TopP: []byte("0.95"), TopK: []byte("20")}}
		for members, want := range map[string]string{
			``:                      `"temperature":0.6,"top_p":0.95,"top_k":20`,
			`"temperature":null`:    `"temperature":0.6,"top_p":0.95,"top_k":20`,
			`"temperature":0`:       `"temperature":0,"top_p":0.95,"top_k":20`,
			`"top_k":0`:             `"temperature":0.6,"top_p":0.95,"top_k":0`,
			`"top_p":"0.5"`:         `"temperature":0.6,"top_p":0.5,"top_k":20`,
			`"min_p":0.0,"top_k":1`: `"temperature":0.6,"top_p":0.95,"top_k":1`,
		} {
			r, err := check(t, &g, Chat, 0, members)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := string(r.Sampling.AppendMembers(nil)), want+`,"repetition_penalty":1.0,"min_p":0.0`; got != want {
				t.Errorf("%s: %s, want %s", members, got, want)
			}
		}
	})
	t.Run("61, 62: what is no such number", func(t *testing.T) {
		refused(t, &full, Chat, allNeeds, TypeInvalidParameter, "", values("top_k", `1.9`, `"1.9"`, `true`, `false`, `"x"`, `""`, `[]`, `{}`, `1e400`, `"1e400"`, `"nan"`, `"1e999"`,
			`"inf"`, `99999999999`, `"2e1"`, strings.Repeat("9", 400))...)
		for _, field := range []string{"temperature", "top_p"} {
			refused(t, &full, Chat, allNeeds, TypeInvalidParameter, "", values(field, `"hot"`, `true`, `false`, `-1`, `-0.5`, `"-1"`, `"nan"`, `"NaN"`, `"inf"`, `"-Infinity"`, `"infinity"`,
				`1e400`, `"1e400"`, `-1e400`, `""`, `" "`, `"."`, `"+"`, `"-"`, `"1e"`, `"e1"`, `"0x1p3"`, `"1 0"`, `"+-1"`, `"--1"`, `"0-5"`, `"1__0"`, `"_1"`, `"1.5.5"`, `"٣"`, `[]`, `[1]`, `{}`,
				strings.Repeat("9", 400), `"`+strings.Repeat("9", 400)+`"`, strings.Repeat("9", 5000))...)
		}
	})
}

func TestGateOnLogProbs(t *testing.T) { // cases 129 to 131, 69
	for _, tc := range []struct {
		name, members string
		logprobs      bool
		top           int
	}{
		{"129: absent", ``, false, 0},
		{"129: false", `"logprobs":false`, false, 0},
		{"129: null", `"logprobs":null,"top_logprobs":null`, false, 0},
		{"129: true is the chosen token only", `"logprobs":true`, true, 0},
		{"129: 0", `"logprobs":true,"top_logprobs":0`, true, 0},
		{"129: 1", `"logprobs":true,"top_logprobs":1`, true, 1},
		{"129: 5", `"top_logprobs":5,"logprobs":true`, true, 5},
		{"129: top_logprobs 0 alone", `"top_logprobs":0`, false, 0},
		{"top_logprobs 0 with logprobs false", `"top_logprobs":0,"logprobs":false`, false, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := check(t, &full, Chat, allNeeds, tc.members)
			if err != nil {
				t.Fatal(err)
			}
			if r.LogProbs != tc.logprobs || r.TopLogProbs != tc.top || (r.Needs&NeedLogProbs != 0) != tc.logprobs {
				t.Errorf("got %v, %d, needs %v", r.LogProbs, r.TopLogProbs, r.Needs)
			}
		})
	}
	t.Run("129: out of range mentions 5", func(t *testing.T) {
		refused(t, &full, Chat, allNeeds, TypeInvalidLogprobs, "5", `"logprobs":true,"top_logprobs":6`, `"logprobs":true,"top_logprobs":20`,
			`"logprobs":true,"top_logprobs":256`, `"logprobs":true,"top_logprobs":-1`)
	})
	t.Run("129: other types and top_logprobs without logprobs", func(t *testing.T) {
		refused(t, &full, Chat, allNeeds, TypeInvalidLogprobs, "", `"top_logprobs":3`, `"logprobs":false,"top_logprobs":1`, `"logprobs":true,"top_logprobs":true`,
			`"logprobs":true,"top_logprobs":"3"`, `"logprobs":true,"top_logprobs":3.5`, `"logprobs":true,"top_logprobs":3.0`, `"logprobs":true,"top_logprobs":[3]`,
			`"logprobs":"yes"`, `"logprobs":1`, `"logprobs":[]`)
	})
	t.Run("130: temperatures at which nodes have none", func(t *testing.T) {
		for _, temperature := range []string{`1e-5`, `0.05`, `0.1`, `0.19`, `"0.1"`} {
			refused(t, &full, Chat, allNeeds, TypeInvalidLogprobs, "temperature", `"logprobs":true,"temperature":`+temperature)
			served(t, &full, Chat, `"temperature":`+temperature)
		}
		for _, temperature := range []string{`0`, `0.0`, `1e-9`, `0.2`, `0.6`, `2.0`, `null`, `"0.6"`} {
			served(t, &full, Chat, `"logprobs":true,"temperature":`+temperature)
		}
		served(t, &full, Chat, `"logprobs":true`)
		cold := Gate{HasTokenizer: true, Defaults: Sampling{Temperature: []byte("0.1")}}
		refused(t, &cold, Chat, allNeeds, TypeInvalidLogprobs, "temperature", `"logprobs":true`)
		served(t, &cold, Chat, `"logprobs":true,"temperature":0.6`)
	})
	t.Run("131: completions have none", func(t *testing.T) {
		refused(t, &full, Completions, allNeeds, TypeInvalidLogprobs, "chat/completions", `"logprobs":2`, `"logprobs":0`, `"logprobs":false`, `"logprobs":true`)
		served(t, &full, Completions, `"logprobs":null`, `"top_logprobs":99`)
	})
	t.Run("69: without a tokenizer", func(t *testing.T) {
		refused(t, &Gate{}, Chat, allNeeds, TypeCapabilityUnavailable, "logprobs", `"logprobs":true,"temperature":0.6`)
		served(t, &Gate{}, Chat, ``, `"logprobs":false`)
	})
	t.Run("a node that declares none is not asked", func(t *testing.T) {
		refused(t, &full, Chat, allNeeds&^NeedLogProbs, TypeCapabilityUnavailable, "logprobs", `"logprobs":true`)
	})
}

func TestGateOnStops(t *testing.T) { // cases 108, 109, 68
	for _, tc := range []struct {
		name, members string
		want          []string
	}{
		{"108: null is none", `"stop":null`, nil},
		{"108: a string", `"stop":"END"`, []string{"END"}},
		{"108: a list", `"stop":["A","B"]`, []string{"A", "B"}},
		{"108: an empty list is none", `"stop":[ ]`, nil},
		{"108: the same twice", `"stop":["A","A"]`, []string{"A", "A"}},
		{"108: line breaks", `"stop":["\n\n"]`, []string{"\n\n"}},
		{"escapes are decoded", `"stop":["\u4e16\ud83d\ude42\"\/\\\b\f\r\t"]`, []string{"世🙂\"/\\\b\f\r\t"}},
		{"a single space is a stop", `"stop":" "`, []string{" "}},
		{"more than four", `"stop":["a","b","c","d","e","f"]`, []string{"a", "b", "c", "d", "e", "f"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for ep := range NumEndpoints {
				r, err := check(t, &full, ep, 0, tc.members)
				if err != nil {
					t.Fatal(err)
				}
				if fmt.Sprintf("%q", r.Stops) != fmt.Sprintf("%q", tc.want) || (r.Stops == nil) != (tc.want == nil) {
					t.Errorf("Stops = %q, want %q", r.Stops, tc.want)
				}
			}
		})
	}
	t.Run("108: what is no stop", func(t *testing.T) {
		refused(t, &full, Chat, allNeeds, TypeInvalidParameter, "", values("stop", `""`, `[""]`, `["","END"]`, `["END",""]`, `5`, `[1,2]`, `{"a":1}`, `["A",null]`, `true`, `false`, `0`, `[["A"]]`)...)
	})
	t.Run("half of a surrogate pair is no text", func(t *testing.T) {
		refused(t, &full, Chat, allNeeds, TypeInvalidParameter, "surrogate", values("stop", `"\udc00"`, `["\ud800"]`, `"a\ud83db"`, `"\ud83d\ud83d\ude42"`, `"\ude42\ud83d"`)...)
	})
	t.Run("the stop strings of one request are bounded in all", func(t *testing.T) {
		half := `"` + strings.Repeat("x", maxStopBytes/2) + `"`
		served(t, &full, Chat, `"stop":[`+half+`,`+half+`]`)
		refused(t, &full, Chat, allNeeds, TypeInvalidParameter, "65536", `"stop":[`+half+`,`+half+`,"y"]`)
	})
	t.Run("109: forms of include_stop_str_in_output", func(t *testing.T) {
		for raw, want := range map[string]bool{`true`: true, `false`: false, `1`: true, `0`: false, `1.0`: true, `-0.0`: false, `"true"`: true, `"False"`: false, `"yes"`: true,
			`"NO"`: false, `"y"`: true, `"n"`: false, `"T"`: true, `"f"`: false, `"On"`: true, `"off"`: false, `"1"`: true, `"0"`: false, `"\u0079es"`: true} {
			r, err := check(t, &full, Chat, 0, `"stop":"A","include_stop_str_in_output":`+raw)
			if err != nil || r.IncludeStop != want {
				t.Errorf("%s = %v, %v; want %v", raw, r, err, want)
			}
		}
		refused(t, &full, Chat, allNeeds, TypeInvalidParameter, "", values("include_stop_str_in_output", `null`, `2`, `"maybe"`, `[]`, `{}`, `-1`, `0.5`, `" true"`, `""`, `"1.0"`, `1e400`)...)
		served(t, &full, Chat, `"include_stop_str_in_output":true`)
	})
	t.Run("68: without a tokenizer", func(t *testing.T) {
		refused(t, &Gate{}, Chat, allNeeds, TypeCapabilityUnavailable, "", `"stop":["END"]`)
		refused(t, &Gate{}, Chat, allNeeds, TypeInvalidParameter, "", `"stop":5`)
		served(t, &Gate{}, Chat, `"stop":[]`, `"stop":null`)
	})
}
