package openai

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// full is the gate of a deployment that has everything but a parser.
var full = Gate{HasTokenizer: true}

const allNeeds = NeedPenalties | NeedIgnoreEOS | NeedLogProbs | NeedGrammar

// check runs a gate on a request with the given members beside messages or prompt; nodes lack nothing but what `have` lacks.
func check(t testing.TB, g *Gate, ep Endpoint, have Needs, members string) (*Request, *Error) {
	t.Helper()
	body := `{"model":"m","messages":[{"role":"user","content":"hi"}]`
	if ep == Completions {
		body = `{"model":"m","prompt":"hi"`
	}
	if members != "" {
		body += "," + members
	}
	r, err := g.Check(ep, mustParse(t, body+"}"))
	if (r == nil) == (err == nil) {
		t.Fatalf("Check(%s) = %v, %v; want one of them", members, r, err)
	}
	if err == nil {
		if err = r.Refusal(have); err != nil {
			return nil, err
		}
	}
	return r, err
}

func served(t testing.TB, g *Gate, ep Endpoint, members ...string) {
	t.Helper()
	for _, m := range members {
		if _, err := check(t, g, ep, allNeeds, m); err != nil {
			t.Errorf("%s on %v: %v; want it served", m, ep, err)
		}
	}
}

// refused: each is refused with that type, and the message names the field: says, or the key of the last member.
func refused(t testing.TB, g *Gate, ep Endpoint, have Needs, errorType, says string, members ...string) {
	t.Helper()
	for _, m := range members {
		field := says
		if field == "" {
			for key := range lastObject(t, m) {
				field = key
			}
		}
		_, err := check(t, g, ep, have, m)
		if err == nil {
			t.Errorf("%s on %v is served; want %s", m, ep, errorType)
			continue
		}
		status, _ := StatusOf(errorType)
		if err.Type != errorType || err.Status != status || !strings.Contains(err.Message, field) {
			t.Errorf("%s on %v: %v; want %d %s that names %q", m, ep, err, status, errorType, field)
		}
		if !strings.HasPrefix(err.Message, err.Param+"=") || err.Param == "" {
			t.Errorf("%s on %v: message %q does not begin with the field %q", m, ep, err.Message, err.Param)
		}
	}
}

func lastObject(t testing.TB, members string) map[string]json.RawMessage {
	t.Helper()
	v := mustParse(t, "{"+members+"}")
	m := &v.members[len(v.members)-1]
	return map[string]json.RawMessage{string(v.body[m.key:m.keyEnd]): v.raw(m)}
}

// values makes members of one field.
func values(field string, raw ...string) (out []string) {
	for _, r := range raw {
		out = append(out, fmt.Sprintf("%q:%s", field, r))
	}
	return out
}

// live and neutralValues are the fields of cases 53 and 54, in the same order.
var (
	live = []string{`"stop_token_ids":[151643]`, `"min_tokens":16`, `"frequency_penalty":0.5`, `"min_p":0.05`, `"seed":42`,
		`"logit_bias":{"151643":-100}`, `"bad_words":["foo"]`, `"allowed_token_ids":[1,2,3]`,
		`"structured_outputs":{"json":{"type":"object"}}`, `"n":2`, `"best_of":4`, `"use_beam_search":true`, `"prompt_logprobs":1`,
		`"logprob_token_ids":[7]`, `"skip_special_tokens":false`}
	neutralValues = []string{`[]`, `0`, `0.0`, `0.0`, `null`, `{}`, `[]`, `[]`, `null`, `1`, `1`, `false`, `null`, `[]`, `true`}
)

func TestGateOnFieldsThatNodesCannotHonour(t *testing.T) { // cases 53 to 60, 63
	t.Run("53: live values are refused, on both endpoints", func(t *testing.T) {
		for ep := range NumEndpoints {
			refused(t, &full, ep, allNeeds, TypeCapabilityUnavailable, "", live...)
		}
	})
	for i, member := range live {
		field, _, _ := strings.Cut(member[1:], `"`)
		t.Run("54, 55: neutral values are served: "+field, func(t *testing.T) {
			for ep := range NumEndpoints {
				served(t, &full, ep, values(field, neutralValues[i], "null")...)
			}
		})
	}
	t.Run("other spellings of neutral values are served", func(t *testing.T) {
		for _, field := range []string{"stop_token_ids", "logit_bias", "bad_words", "allowed_token_ids", "structured_outputs", "logprob_token_ids",
			"guided_json", "guided_regex", "guided_choice", "guided_grammar", "logits_processors"} {
			served(t, &full, Chat, values(field, `[ ]`, `{ }`, `""`, `0`, `-0.0`, `0e5`, `false`, `1e-400`)...)
			refused(t, &full, Chat, allNeeds, TypeCapabilityUnavailable, "", values(field, `[0]`, `{"":0}`, `" "`, `1`, `true`, `1e400`)...)
		}
		served(t, &full, Chat, `"min_p":-0`, `"frequency_penalty":0`, `"min_tokens":-0`)
	})
	t.Run("56, 57: what is no such value is 400", func(t *testing.T) {
		refused(t, &full, Chat, allNeeds, TypeInvalidParameter, "", `"n":0`, `"n":-1`, `"n":1.0`, `"n":"1"`, `"n":true`, `"n":[]`, `"best_of":0`,
			`"frequency_penalty":"high"`, `"frequency_penalty":"0"`, `"frequency_penalty":[]`, `"frequency_penalty":1e400`, `"min_p":true`, `"min_p":"0.0"`,
			`"use_beam_search":1`, `"use_beam_search":"false"`, `"skip_special_tokens":1`, `"min_tokens":-1`, `"min_tokens":0.0`, `"min_tokens":"0"`,
			`"min_tokens":false`, `"min_tokens":99999999999999999999`)
	})
	t.Run("58: 0 is a live value of seed and prompt_logprobs", func(t *testing.T) {
		refused(t, &full, Chat, allNeeds, TypeCapabilityUnavailable, "", `"seed":0`, `"prompt_logprobs":0`, `"seed":"x"`)
	})
	t.Run("59: a seed is served where nothing is drawn", func(t *testing.T) {
		for ep := range NumEndpoints {
			served(t, &full, ep, `"seed":42,"temperature":0`, `"temperature":0.0,"seed":1234`, `"seed":42,"temperature":1e-6`, `"seed":42,"temperature":"0"`)
			refused(t, &full, ep, allNeeds, TypeCapabilityUnavailable, "seed", `"seed":42`, `"seed":42,"temperature":null`, `"seed":42,"temperature":1e-5`)
		}
		cold := Gate{HasTokenizer: true, Defaults: Sampling{Temperature: []byte("0")}}
		refused(t, &cold, Chat, allNeeds, TypeCapabilityUnavailable, "seed", `"seed":42`)
		served(t, &full, Chat, `"max_tokens":16,"temperature":0,"stop":["</s>","<|im_end|>"],"seed":1234,"top_p":1`) // lm-eval
	})
	t.Run("60: what needs a capability, on a node that has none", func(t *testing.T) {
		refused(t, &full, Chat, 0, TypeCapabilityUnavailable, "", `"repetition_penalty":1.2`, `"presence_penalty":0.4`, `"ignore_eos":true`)
		for _, m := range []string{`"repetition_penalty":1.0`, `"presence_penalty":0.0`, `"ignore_eos":false`, `"repetition_penalty":1`, `"presence_penalty":-0`,
			`"repetition_penalty":null,"presence_penalty":null,"ignore_eos":null`} {
			if _, err := check(t, &full, Chat, 0, m); err != nil {
				t.Errorf("%s: %v", m, err)
			}
		}
		refused(t, &full, Chat, allNeeds, TypeInvalidParameter, "", `"repetition_penalty":"1.0"`, `"repetition_penalty":true`, `"repetition_penalty":1e400`,
			`"presence_penalty":"0"`, `"presence_penalty":false`, `"presence_penalty":-1e400`, `"ignore_eos":1`, `"ignore_eos":"true"`)
	})
	t.Run("63: completions and streams are gated too", func(t *testing.T) {
		refused(t, &full, Completions, allNeeds, TypeCapabilityUnavailable, "", `"seed":1`)
		refused(t, &full, Chat, allNeeds, TypeCapabilityUnavailable, "", `"stream":true,"seed":7`)
	})
	t.Run("what the incumbent lets through and answers wrongly", func(t *testing.T) {
		refused(t, &full, Completions, allNeeds, TypeCapabilityUnavailable, "", `"echo":true`, `"echo":1`, `"prompt":["a","b"]`, `"prompt":[[1,2],[3]]`, `"prompt":["a",[1]]`)
		refused(t, &full, Completions, allNeeds, TypeInvalidParameter, "", `"echo":"maybe"`, `"echo":[]`)
		served(t, &full, Completions, `"echo":false`, `"echo":null`, `"echo":"no"`, `"prompt":"a"`, `"prompt":["a"]`, `"prompt":[[1,2]]`, `"prompt":[1,2,3]`,
			`"prompt":[]`, `"prompt":[ ]`, `"prompt":null`, `"prompt":5`, `"prompt":[1,"a","b"]`)
		served(t, &full, Chat, `"prompt":["a","b"]`) // no field of chat
	})
}

func TestGateOnTemplates(t *testing.T) { // cases 64, 65
	for ep := range NumEndpoints {
		served(t, &full, ep, values("chat_template_kwargs", `{}`, `{"enable_thinking":false}`, `null`)...)
	}
	refused(t, &full, Chat, allNeeds, TypeInvalidParameter, "", values("chat_template_kwargs", `"bad"`, `5`, `[1,2]`, `false`, `""`, `[]`)...)
	served(t, &full, Completions, `"chat_template_kwargs":"oops"`, `"chat_template_kwargs":"oops","response_format":{"type":"json_object"}`)

	for members, want := range map[string]bool{
		``:                          true,
		`"chat_template_kwargs":{}`: true,
		`"chat_template_kwargs":{"enable_thinking":false}`:                        false,
		`"chat_template_kwargs":{"enable_thinking":null}`:                         false,
		`"chat_template_kwargs":{"enable_thinking":0}`:                            false,
		`"chat_template_kwargs":{"enable_thinking":true}`:                         true,
		`"chat_template_kwargs":{"thinking":false}`:                               true,
		`"chat_template_kwargs":{"enable_thinking":false,"enable_thinking":true}`: true,
	} {
		r, err := check(t, &full, Chat, 0, members)
		if err != nil || r.EnableThinking != want {
			t.Errorf("%s: EnableThinking = %v, %v; want %v", members, r.EnableThinking, err, want)
		}
	}
	asked := "nothing"
	g := Gate{Thinking: func(kwargs json.RawMessage) bool { asked = string(kwargs); return false }}
	if r, _ := check(t, &g, Chat, 0, `"chat_template_kwargs":{"thinking":true}`); r.EnableThinking || asked != `{"thinking":true}` {
		t.Errorf("the parser's rule was asked about %s", asked)
	}
}

func TestGateOnCombinations(t *testing.T) { // cases 66, 67, 70, 71: order and parser
	parser := Gate{HasTokenizer: true, HasParser: true}
	refused(t, &parser, Chat, allNeeds, TypeCapabilityUnavailable, "logprobs", `"logprobs":true,"temperature":0.6,"stop":["END"]`)
	served(t, &full, Chat, `"logprobs":true,"temperature":0.6,"stop":["END"]`)
	served(t, &parser, Chat, `"stop":["END"]`, `"logprobs":true,"temperature":0.6`, `"logprobs":true,"stop":[]`)

	// Each pair: what comes earlier in the gate's order is what is refused, wherever it stands in the body.
	order := []struct{ members, errorType, field string }{
		{`"response_format":"x"`, TypeInvalidGrammar, "response_format"},
		{`"max_tokens":0`, TypeInvalidParameter, "max_tokens"},
		{`"logprobs":"x"`, TypeInvalidLogprobs, "logprobs"},
		{`"stop":[""]`, TypeInvalidParameter, "stop"},
		{`"include_stop_str_in_output":null`, TypeInvalidParameter, "include_stop_str_in_output"},
		{`"chat_template_kwargs":"oops"`, TypeInvalidParameter, "chat_template_kwargs"},
		{`"temperature":"hot"`, TypeInvalidParameter, "temperature"},
		{`"top_k":1.5`, TypeInvalidParameter, "top_k"},
		{`"min_tokens":5`, TypeCapabilityUnavailable, "min_tokens"},
		{`"n":0`, TypeInvalidParameter, "n"},
		{`"skip_special_tokens":false`, TypeCapabilityUnavailable, "skip_special_tokens"},
		{`"echo":true`, TypeCapabilityUnavailable, "echo"},
		{`"stream":"x"`, TypeInvalidParameter, "stream"},
		{`"tool_choice":"required"`, TypeCapabilityUnavailable, "tool_choice"},
		{`"repetition_penalty":"x"`, TypeInvalidParameter, "repetition_penalty"},
		{`"ignore_eos":1`, TypeInvalidParameter, "ignore_eos"},
	}
	for i, first := range order {
		for _, second := range order[i+1:] {
			for _, members := range []string{first.members + "," + second.members, second.members + "," + first.members} {
				_, err := check(t, &full, Chat, 0, members)
				if err == nil || err.Type != first.errorType || err.Param != first.field {
					t.Errorf("%s: %v; want %s about %s", members, err, first.errorType, first.field)
				}
			}
		}
	}
}

func TestGateOnReplies(t *testing.T) { // case 152
	type reply struct{ Stream, IncludeUsage, ContinuousUsage bool }
	for members, want := range map[string]reply{
		``:                                      {},
		`"stream":false`:                        {},
		`"stream":null`:                         {},
		`"stream":true`:                         {Stream: true},
		`"stream":1`:                            {Stream: true},
		`"stream":"true"`:                       {Stream: true},
		`"stream":"false"`:                      {},
		`"stream":true,"stream":false`:          {},
		`"stream":true,"stream_options":null`:   {Stream: true},
		`"stream":true,"stream_options":{}`:     {Stream: true},
		`"stream":true,"stream_options":false`:  {Stream: true},
		`"stream":true,"stream_options":"true"`: {Stream: true},
		`"stream":true,"stream_options":{"include_usage":false}`:                                          {Stream: true},
		`"stream":true,"stream_options":{"include_usage":true}`:                                           {Stream: true, IncludeUsage: true},
		`"stream":true,"stream_options":{"include_usage":true,"include_usage":null}`:                      {Stream: true},
		`"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`:             {Stream: true, IncludeUsage: true, ContinuousUsage: true},
		`"stream_options":{"include_usage":true,"continuous_usage_stats":true}`:                           {},
		`"stream":true,"stream_options":{"x":{"include_usage":true},"include_usag\u0065":1,"a":[{},"}"]}`: {Stream: true, IncludeUsage: true},
	} {
		r, err := check(t, &full, Chat, 0, members)
		if err != nil {
			t.Errorf("%s: %v", members, err)
			continue
		}
		if got := (reply{r.Stream, r.IncludeUsage, r.ContinuousUsage}); got != want {
			t.Errorf("%s = %+v, want %+v", members, got, want)
		}
	}
	force := Gate{HasTokenizer: true, ForceIncludeUsage: true}
	if r, _ := check(t, &force, Chat, 0, `"stream":true`); !r.IncludeUsage {
		t.Error("--force-include-usage is not heard")
	}
	if r, _ := check(t, &force, Chat, 0, ``); r.IncludeUsage {
		t.Error("a usage chunk without a stream")
	}
	refused(t, &full, Chat, allNeeds, TypeInvalidParameter, "", `"stream":"x"`, `"stream":2`, `"stream":[]`, `"stream":{}`)
	refused(t, &Gate{}, Chat, allNeeds, TypeCapabilityUnavailable, "", `"stream":true`)
	served(t, &Gate{}, Chat, `"stream":false`)
	served(t, &full, Completions, `"stream":true`)
}

func TestGateOnTools(t *testing.T) {
	r, err := check(t, &full, Chat, 0, `"tools":[ {"type":"function"} ],"tool_choice":"auto"`)
	if err != nil || string(r.Tools) != `[ {"type":"function"} ]` || r.ToolChoiceNone || !r.ParallelCalls {
		t.Errorf("got %+v, %v", r, err)
	}
	r, err = check(t, &full, Chat, 0, `"tool_choice":"none","parallel_tool_calls":false`)
	if err != nil || r.Tools != nil || !r.ToolChoiceNone || r.ParallelCalls {
		t.Errorf("got %+v, %v", r, err)
	}
	served(t, &full, Chat, `"tool_choice":null`, `"parallel_tool_calls":null`, `"parallel_tool_calls":true`, `"tools":null`, `"tools":5`)
	refused(t, &full, Chat, allNeeds, TypeCapabilityUnavailable, "first token", `"tool_choice":"required"`,
		`"tool_choice":{"type":"function","function":{"name":"f"}}`)
	refused(t, &full, Chat, allNeeds, TypeInvalidParameter, "", `"tool_choice":"any"`, `"tool_choice":5`, `"tool_choice":[]`, `"tool_choice":true`,
		`"parallel_tool_calls":"yes"`, `"parallel_tool_calls":1`)
	served(t, &full, Completions, `"tool_choice":"required","parallel_tool_calls":"yes"`) // no fields of completions
}

func TestGateLeavesTheRestToOthers(t *testing.T) {
	for _, body := range []string{`{}`, `{"model":5,"messages":"x"}`, `{"messages":[],"kv_transfer_params":{"tilert_host":"x"},"request_id":7,"return_tokens_as_token_ids":false}`,
		`{"unknown":{"big":12345678901234567890}}`, `{"user":"u","priority":-1,"cache_salt":"s","reasoning_effort":"high","add_generation_prompt":false}`} {
		for ep := range NumEndpoints {
			if _, err := full.Check(ep, mustParse(t, body)); err != nil {
				t.Errorf("%s: %v", body, err)
			}
		}
	}
}
