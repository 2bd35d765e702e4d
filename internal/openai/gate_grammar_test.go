package openai

import (
	"strings"
	"testing"
)

func TestGateOnGrammars(t *testing.T) { // cases 34, 72 to 74
	const schema = `{"type":"object","properties":{"a":{"type":"string"}}}`
	format := func(schema string) string {
		return `"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":` + schema + `}}`
	}
	const tag = `{ "type":"structural_tag","structures":[],"triggers":["<a>"]}`
	for _, tc := range []struct{ name, members, want string }{
		{"73: json_schema outranks regex and ebnf", format(schema) + `,"regex":"a","ebnf":"b"`, `{"type":"json_schema","value":` + schema + `}`},
		{"73: regex outranks ebnf", `"ebnf":"b","regex":"a"`, `{"type":"regex","value":"a"}`},
		{"73: json_object outranks regex", `"response_format":{"type":"json_object"},"regex":"a"`, `{"type":"json_object","value":null}`},
		{"73: a structural tag is the whole object", `"response_format":` + tag, `{"type":"structural_tag","value":` + tag + `}`},
		{"73: regex outranks a structural tag", `"response_format":` + tag + `,"regex":"a"`, `{"type":"regex","value":"a"}`},
		{"73: ebnf", `"ebnf":"root ::= x"`, `{"type":"ebnf","value":"root ::= x"}`},
		{"73: nothing", ``, ``},
		{"73: text", `"response_format":{"type":"text"}`, ``},
		{"34: regex", `"regex":"[0-9]{3}"`, `{"type":"regex","value":"[0-9]{3}"}`},
		{"what is falsy is none", `"response_format":{},"regex":"","ebnf":false`, ``},
		{"a format without a type is none", `"response_format":{"json_schema":5}`, ``},
		{"a type that is no string is none", `"response_format":{"type":5}`, ``},
		{"a type with escapes", `"response_format":{"\u0074ype":"\u006ason_object"}`, `{"type":"json_object","value":null}`},
		{"an empty schema is one", format(`{}`), `{"type":"json_schema","value":{}}`},
		{"so is true", format(`true`), `{"type":"json_schema","value":true}`},
		{"the last schema counts", `"response_format":{"type":"text","json_schema":{"schema":5,"schema":{}},"type":"json_schema"}`, `{"type":"json_schema","value":{}}`},
		{"a schema keeps its bytes", format(`{ "b":1.0e1 , "a":"\u00e9" }`), `{"type":"json_schema","value":{ "b":1.0e1 , "a":"\u00e9" }}`},
		{"74: an enum of 900", format(`{"enum":[` + strings.Repeat(`"x",`, 899) + `"x"]}`), `{"type":"json_schema","value":{"enum":[` + strings.Repeat(`"x",`, 899) + `"x"]}}`},
		{"74: a long regex", `"regex":"` + strings.Repeat("a", 50000) + `"`, `{"type":"regex","value":"` + strings.Repeat("a", 50000) + `"}`},
		{"depth inside data does not count", format(`{"default":` + deep(200) + `,"const":` + deep(200) + `,"examples":` + deep(200) + `,"enum":[` + deep(200) + `]}`),
			`{"type":"json_schema","value":{"default":` + deep(200) + `,"const":` + deep(200) + `,"examples":` + deep(200) + `,"enum":[` + deep(200) + `]}}`},
		{"64 levels", format(deep(64)), `{"type":"json_schema","value":` + deep(64) + `}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for ep := range NumEndpoints {
				r, err := check(t, &full, ep, allNeeds, tc.members)
				if err != nil {
					t.Fatalf("%.200v", err)
				}
				if string(r.Grammar) != tc.want || (r.Needs&NeedGrammar != 0) != (tc.want != "") {
					t.Errorf("Grammar = %.200s (needs %v), want %.200s", r.Grammar, r.Needs, tc.want)
				}
			}
		})
	}
	for _, tc := range []struct{ name, says, members string }{
		{"67: no object", "response_format", `"response_format":"not an object"`},
		{"72: json_schema without a schema", "schema", `"response_format":{"type":"json_schema","json_schema":{}}`},
		{"json_schema without json_schema", "schema", `"response_format":{"type":"json_schema"}`},
		{"a null schema", "schema", format(`null`)},
		{"a schema that is a string", "schema", format(`"x"`)},
		{"json_schema that is a list", "schema", `"response_format":{"type":"json_schema","json_schema":[]}`},
		{"a regex that is no string", "regex", `"regex":5`},
		{"half of a surrogate pair", "regex", `"regex":"\ud800"`},
		{"an ebnf that is no string", "ebnf", `"ebnf":{"a":1}`},
		{"74: a schema 200 deep", "nested", format(deep(200))},
		{"74: a structural tag 200 deep", "nested", `"response_format":{"type":"structural_tag","x":` + deep(200) + `}`},
		{"65 levels", "nested", format(deep(65))},
		{"74: 5000 properties", "objects", format(`{"properties":{` + strings.Repeat(`"a":{},`, 4999) + `"a":{}}}`)},
		{"74: an enum of 50000", "enum", format(`{"enum":[` + strings.Repeat(`1,`, 49999) + `1]}`)},
		{"many enums of 5000", "enum", format(`[` + strings.Repeat(`{"enum":[`+strings.Repeat(`1,`, 4999)+`1]},`, 3) + `{}]`)[:0] + format(`{"a":[`+strings.Repeat(`{"enum":[`+strings.Repeat(`1,`, 4999)+`1]},`, 3)+`{}]}`)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			refused(t, &full, Chat, allNeeds, TypeInvalidGrammar, tc.says, tc.members)
		})
	}
	t.Run("nodes of protocol 1 know no grammar", func(t *testing.T) {
		refused(t, &full, Chat, allNeeds&^NeedGrammar, TypeCapabilityUnavailable, "", `"regex":"a"`, `"response_format":{"type":"json_object"}`)
	})
}

// deep is an object nested n deep, arrays included.
func deep(n int) string {
	return strings.Repeat(`{"a":[`, n/2) + strings.Repeat(`{"b":`, n%2) + `1` + strings.Repeat(`}`, n%2) + strings.Repeat(`]}`, n/2)
}
