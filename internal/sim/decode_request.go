package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// decodeRequest is the body of POST /pd/decode (spec 1.1).
type decodeRequest struct {
	RID         string
	FirstToken  int
	MaxTokens   int
	Sampling    map[string]json.RawMessage // nil if absent
	Timeout     time.Duration
	Stream      bool
	Grammar     map[string]json.RawMessage // nil if absent
	TopLogProbs int                        // -1 if absent
}

// wrongType is one entry of a 422's detail, as the framework of the real node writes it.
type wrongType struct {
	Type  string          `json:"type"`
	Loc   []any           `json:"loc"`
	Msg   string          `json:"msg"`
	Input json.RawMessage `json:"input"`
}

// fields reads the members of a body and collects what is wrong with them.
type fields struct {
	body   json.RawMessage
	of     map[string]json.RawMessage
	wrongs []wrongType
}

// parseDecode reads the body, or returns the detail of a 422. Types are taken as loosely as the real node takes them: a
// number may be a string of digits.
func parseDecode(body []byte, gen string) (*decodeRequest, []wrongType) {
	f, wrongs := parseFields(body)
	if wrongs != nil {
		return nil, wrongs
	}
	q := &decodeRequest{
		RID: f.text("rid"), FirstToken: f.integer("first_token_id", nil), MaxTokens: f.integer("max_tokens", 256), Sampling: f.object("sampling"),
		Timeout: time.Duration(f.number("timeout_s", 120) * float64(time.Second)), Stream: f.boolean("stream"), TopLogProbs: -1,
	}
	if gen != "V5" {
		q.Grammar, q.TopLogProbs = f.object("grammar_spec"), f.integer("top_logprobs", -1)
		f.boolean("enable_thinking")
	}
	if f.wrongs != nil {
		return nil, f.wrongs
	}
	return q, nil
}

func parseFields(body []byte) (*fields, []wrongType) {
	f := &fields{body: bytes.TrimSpace(body)}
	if !json.Valid(body) {
		return nil, []wrongType{{"json_invalid", []any{"body", 1}, "JSON decode error", json.RawMessage(`{}`)}}
	}
	if err := json.Unmarshal(body, &f.of); err != nil || f.of == nil {
		return nil, []wrongType{{"model_attributes_type", []any{"body"}, "Input should be a valid dictionary or object to extract fields from", f.body}}
	}
	return f, nil
}

// get returns a member; ok is false for an absent one. null counts as absent where null has a meaning.
func (f *fields) get(name string, nullable bool) (raw json.RawMessage, ok bool) {
	raw, ok = f.of[name]
	return raw, ok && !(nullable && string(raw) == "null")
}

func (f *fields) wrong(name, kind, msg string, input json.RawMessage) {
	f.wrongs = append(f.wrongs, wrongType{kind, []any{"body", name}, msg, input})
}

func (f *fields) text(name string) (s string) {
	raw, ok := f.get(name, false)
	if !ok {
		f.wrong(name, "missing", "Field required", f.body)
	} else if raw[0] != '"' {
		f.wrong(name, "string_type", "Input should be a valid string", raw)
	}
	_ = json.Unmarshal(raw, &s) // its form was checked
	return s
}

// integer reads a whole number. def is its value when absent; nil makes it required.
func (f *fields) integer(name string, def any) int {
	raw, ok := f.get(name, def == -1)
	if !ok {
		if n, has := def.(int); has {
			return n
		}
		f.wrong(name, "missing", "Field required", f.body)
		return 0
	}
	n, kind := laxInteger(raw)
	switch kind {
	case "":
	case "int_parsing":
		f.wrong(name, kind, "Input should be a valid integer, unable to parse string as an integer", raw)
	case "int_from_float":
		f.wrong(name, kind, "Input should be a valid integer, got a number with a fractional part", raw)
	default:
		f.wrong(name, kind, "Input should be a valid integer", raw)
	}
	return n
}

func laxInteger(raw json.RawMessage) (n int, wrong string) {
	text := string(raw)
	switch text {
	case "true":
		return 1, ""
	case "false":
		return 0, ""
	}
	var s string
	if raw[0] == '"' {
		_ = json.Unmarshal(raw, &s)
		text = strings.TrimSpace(s)
	}
	if n, err := strconv.Atoi(text); err == nil {
		return n, ""
	}
	x, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil && raw[0] == '"':
		return 0, "int_parsing"
	case err != nil:
		return 0, "int_type"
	case x != math.Trunc(x):
		return 0, "int_from_float"
	}
	return int(x), ""
}

func (f *fields) number(name string, def float64) float64 {
	raw, ok := f.get(name, false)
	if !ok {
		return def
	}
	var s string
	if text := string(raw); json.Unmarshal(raw, &s) == nil && raw[0] == '"' {
		if x, err := strconv.ParseFloat(strings.TrimSpace(s), 64); err == nil {
			return x
		}
		f.wrong(name, "float_parsing", "Input should be a valid number, unable to parse string as a number", raw)
	} else if x, err := strconv.ParseFloat(text, 64); err == nil {
		return x
	} else {
		f.wrong(name, "float_type", "Input should be a valid number", raw)
	}
	return 0
}

func (f *fields) boolean(name string) bool {
	raw, ok := f.get(name, false)
	if !ok {
		return false
	}
	switch strings.ToLower(strings.Trim(string(raw), `"`)) {
	case "true", "1", "1.0", "yes", "y", "on", "t":
		return true
	case "false", "0", "0.0", "no", "n", "off", "f":
		return false
	}
	f.wrong(name, "bool_parsing", "Input should be a valid boolean, unable to interpret input", raw)
	return false
}

func (f *fields) object(name string) (m map[string]json.RawMessage) {
	raw, ok := f.get(name, true)
	if !ok {
		return nil
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		f.wrong(name, "dict_type", "Input should be a valid dictionary", raw)
	}
	return m
}

// refusal is a typed error of the node.
type refusal struct {
	status int
	kind   string // error_type
	text   string
}

// refuse runs the checks that a node of generation N makes after it took the slot: log-probs, sampling, grammar (spec
// 1.4). nil lets the request through.
func (q *decodeRequest) refuse(caps map[string]bool, engine string) *refusal {
	if q.TopLogProbs >= 0 && !caps["logprobs"] {
		return &refusal{501, "logprobs_unavailable", "this engine does not compute log-probs"}
	}
	if r := refuseSampling(q.Sampling, caps); r != nil || q.Grammar == nil {
		return r
	}
	var kind string
	_ = json.Unmarshal(q.Grammar["type"], &kind) // another type is an unknown kind
	switch kind {
	case "json_schema", "json_object", "regex", "ebnf", "structural_tag":
	default:
		return &refusal{400, "invalid_grammar", fmt.Sprintf("unknown grammar type %q", kind)}
	}
	if engine == EngineStub {
		return nil
	}
	return &refusal{501, "grammar_unsupported", "this engine does not decode under a grammar"}
}

// violates reports the grammar that the stub engine cannot satisfy.
func (q *decodeRequest) violates() bool { return string(q.Grammar["value"]) == `"__violate__"` }

// The sampling gate of spec 4.5, as the node repeats it against its own engine.
func refuseSampling(s map[string]json.RawMessage, caps map[string]bool) *refusal {
	wrong := func(name, want string) *refusal {
		return &refusal{400, "invalid_parameter", fmt.Sprintf("%s must be %s, got %s", name, want, s[name])}
	}
	refused := func(name string) *refusal {
		return &refusal{501, "capability_unavailable", name + " is not supported by the decode node"}
	}
	set := func(name string) bool { raw, ok := s[name]; return ok && string(raw) != "null" }
	for _, name := range []string{"temperature", "top_p"} {
		if x, ok := gateNumber(s[name], true); set(name) && (!ok || x < 0 || math.IsNaN(x)) {
			return wrong(name, "a number of at least 0")
		}
	}
	if x, ok := gateNumber(s["top_k"], true); set("top_k") && (!ok || x != math.Trunc(x)) {
		return wrong("top_k", "an integer")
	}
	for _, name := range []string{"stop_token_ids", "logit_bias", "bad_words", "allowed_token_ids", "structured_outputs", "logprob_token_ids"} {
		if set(name) && !isFalsy(s[name]) {
			return refused(name)
		}
	}
	for _, name := range []string{"seed", "prompt_logprobs"} {
		if set(name) {
			return refused(name)
		}
	}
	for _, g := range []struct {
		name    string
		neutral float64
		needs   string // capability, "" for none that any engine has
	}{
		{"min_tokens", 0, ""}, {"frequency_penalty", 0, ""}, {"min_p", 0, ""}, {"n", 1, ""}, {"best_of", 1, ""},
		{"repetition_penalty", 1, "penalties"}, {"presence_penalty", 0, "penalties"},
	} {
		if !set(g.name) {
			continue
		}
		if x, ok := gateNumber(s[g.name], false); !ok {
			return wrong(g.name, "a number")
		} else if x != g.neutral && !caps[g.needs] {
			return refused(g.name)
		}
	}
	if raw := string(s["ignore_eos"]); set("ignore_eos") && raw != "true" && raw != "false" {
		return wrong("ignore_eos", "a boolean")
	} else if raw == "true" && !caps["ignore_eos"] {
		return refused("ignore_eos")
	}
	return nil
}

// gateNumber reads a number, or the digits of one in a string where that is allowed. Booleans are none.
func gateNumber(raw json.RawMessage, text bool) (float64, bool) {
	if len(raw) == 0 {
		return 0, false
	}
	s := string(raw)
	if raw[0] == '"' {
		if !text {
			return 0, false
		}
		_ = json.Unmarshal(raw, &s) // a string, by its first byte
	}
	x, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	return x, err == nil
}

func isFalsy(raw json.RawMessage) bool {
	switch string(raw) {
	case "null", "false", "0", "0.0", `""`, "[]", "{}":
		return true
	}
	return false
}
