package parser

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// typed is the JSON that a value becomes under a property's schema, by way of a whole reply.
func typed(t *testing.T, schema, value string) string {
	t.Helper()
	o := on
	o.Tools = functions([2]string{"f", property(schema)})
	r := parse(t, "glm47", o, glmPair(value))
	if len(r.calls) != 1 {
		t.Fatalf("got %v", r)
	}
	return strings.TrimSuffix(strings.TrimPrefix(r.calls[0], `f {"a": `), "}")
}

type valueCase struct{ name, schema, value, want string }

func runValues(t *testing.T, cases []valueCase) {
	t.Helper()
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if got := typed(t, tc.schema, tc.value); got != tc.want {
				t.Errorf("%s for %s: got %s, want %s", tc.value, tc.schema, got, tc.want)
			}
		})
	}
}

func TestNumbersAndBooleans(t *testing.T) {
	digits := strings.Repeat("9", 400)
	runValues(t, []valueCase{
		{"an integer", `{"type":"integer"}`, "42", "42"},
		{"an integer with space around it", `{"type":"integer"}`, " -42\n", "-42"},
		{"an integer with a plus", `{"type":"integer"}`, "+42", "42"},
		{"an integer with leading zeros", `{"type":"integer"}`, "-007", "-7"},
		{"minus zero is zero", `{"type":"integer"}`, "-0", "0"},
		{"an integer beyond 2^53 keeps its digits", `{"type":"integer"}`, "9007199254740993", "9007199254740993"},
		{"an integer beyond a float64 is a string", `{"type":"integer"}`, digits, `"` + digits + `"`},
		{"a fraction of many digits keeps them", `{"type":"number"}`, "0." + digits + digits, "0." + digits + digits},
		{"a fraction for an integer is the JSON it spells", `{"type":"integer"}`, "3.5", "3.5"},
		{"a whole fraction for an integer is the JSON it spells", `{"type":"integer"}`, "3.0", "3.0"},
		{"a word for an integer is a string", `{"type":"integer"}`, "abc", `"abc"`},
		{"nothing for an integer is an empty string", `{"type":"integer"}`, "", `""`},
		{"true for an integer is the JSON it spells", `{"type":"integer"}`, "true", "true"},
		{"null for an integer is the JSON it spells", `{"type":"integer"}`, "null", "null"},
		{"a quoted string for an integer is the JSON it spells", `{"type":"integer"}`, `"x"`, `"x"`},
		{"Python's underscores are no integer", `{"type":"integer"}`, "1_000", `"1_000"`},
		{"digits of other scripts are no integer", `{"type":"integer"}`, "４２", `"４２"`},
		{"hexadecimal is no integer", `{"type":"integer"}`, "0x10", `"0x10"`},
		{"a sign is no integer", `{"type":"integer"}`, "-", `"-"`},

		{"a number", `{"type":"number"}`, "3.25", "3.25"},
		{"a whole number loses its fraction", `{"type":"number"}`, "3.0", "3"},
		{"a whole number of many digits keeps them", `{"type":"number"}`, "-12345678901234567890.00", "-12345678901234567890"},
		{"a number keeps its digits", `{"type":"number"}`, "2.50", "2.50"},
		{"a number with a whole exponent is written out", `{"type":"number"}`, "1e3", "1000"},
		{"a fraction that the exponent makes whole is written out", `{"type":"number"}`, "1.5E+1", "15"},
		{"a large exponent stays", `{"type":"number"}`, "1e300", "1e300"},
		{"a small exponent stays", `{"type":"number"}`, "1e-7", "1e-7"},
		{"a number too small is zero", `{"type":"number"}`, "1e-999", "0"},
		{"minus zero with a fraction is zero", `{"type":"number"}`, "-0.0", "0"},
		{"a number that JSON would not allow is written as it does", `{"type":"number"}`, "+.5", "0.5"},
		{"a number with leading zeros", `{"type":"number"}`, "007.5", "7.5"},
		{"a number that ends in a point", `{"type":"number"}`, "5.", "5"},
		{"a number too large is a string", `{"type":"number"}`, "1e999", `"1e999"`},
		{"infinity is a string", `{"type":"number"}`, "inf", `"inf"`},
		{"NaN is a string", `{"type":"number"}`, "NaN", `"NaN"`},
		{"a point is a string", `{"type":"number"}`, ".", `"."`},
		{"half an exponent is a string", `{"type":"number"}`, "1e+", `"1e+"`},

		{"true", `{"type":"boolean"}`, "TRUE", "true"},
		{"true with space around it", `{"type":"boolean"}`, " True\n", "true"},
		{"one is true", `{"type":"boolean"}`, "1", "true"},
		{"zero is false", `{"type":"boolean"}`, "0", "false"},
		{"yes is no boolean", `{"type":"boolean"}`, "yes", `"yes"`},
		{"two is the JSON it spells", `{"type":"boolean"}`, "2", "2"},
	})
}

func TestValuesGetTheFirstTypeThatFits(t *testing.T) {
	runValues(t, []valueCase{
		{"null where the schema allows it", `{"type":["string","null"]}`, "null", "null"},
		{"Null in any case", `{"type":["string","null"]}`, "NULL", "null"},
		{"null with space around it is not null", `{"type":["string","null"]}`, " null", `" null"`},
		{"null where the schema does not allow it", `{"type":"string"}`, "null", `"null"`},

		{"an object", `{"type":"object"}`, ` {"a":1} `, `{"a":1}`},
		{"an array", `{"type":"array"}`, "[1, 2]", "[1, 2]"},
		{"an array for an object is the JSON it spells", `{"type":["object","string"]}`, "[1]", "[1]"},
		{"broken JSON is a string", `{"type":"object"}`, `{"a":`, `"{\"a\":"`},
		{"Python's dict is a string", `{"type":"object"}`, `{'a': 1}`, `"{'a': 1}"`},
		{"JSON with a number too large is a string", `{"type":"array"}`, "[1e999]", `"[1e999]"`},
		{"a number too large inside a string is no number", `{"type":"array"}`, `["1e999", "\"1e999"]`, `["1e999", "\"1e999"]`},

		{"a string is verbatim", `{"type":"string"}`, "42", `"42"`},
		{"an integer goes before a string", `{"type":["string","integer"]}`, "42", "42"},
		{"an integer goes before a number", `{"type":["number","integer"]}`, "9007199254740993", "9007199254740993"},
		{"an integer goes before a boolean", `{"type":["boolean","integer"]}`, "1", "1"},
		{"a word goes to the string", `{"type":["string","integer"]}`, "4 2", `"4 2"`},
		{"JSON for a string or an integer is a string", `{"type":["string","integer"]}`, "[1]", `"[1]"`},

		{"enum members are types", `{"enum":["a",1,true,null]}`, "1", "1"},
		{"enum members add to the type", `{"type":"string","enum":["a",null]}`, "null", "null"},
		{"a whole enum member with a fraction is a number", `{"enum":[1.0]}`, "3.0", "3"},
		{"an enum member that is an object", `{"enum":[{"a":1},[1]]}`, `{"a":1}`, `{"a":1}`},
		{"a branch of anyOf", `{"anyOf":[{"type":"integer"},{"type":"null"}]}`, "null", "null"},
		{"a branch of oneOf", `{"oneOf":[{"type":"integer"},{"type":"string"}]}`, "42", "42"},
		{"a branch of allOf", `{"allOf":[{"type":"boolean"}]}`, "1", "true"},
		{"branches in branches", `{"anyOf":[{"oneOf":[{"allOf":[{"type":"integer"}]}]}]}`, "42", "42"},
		{"a branch without a type is a string", `{"anyOf":[{"type":"object"},{"title":"x"}]}`, "x", `"x"`},
		{"a schema without a type is a string", `{"description":"x"}`, "42", `"42"`},
		{"a schema that is no object is a string", `true`, "42", `"42"`},
		{"aliases of types", `{"type":" Int "}`, "42", "42"},
		{"more aliases of types", `{"type":["bool","dict"]}`, "0", "false"},
		{"a type that nobody knows is the JSON it spells", `{"type":"date"}`, "42", "42"},
		{"a type that nobody knows is a string otherwise", `{"type":"date"}`, "May", `"May"`},
		{"a type that is no name is a string", `{"type":5}`, "42", `"42"`},
	})
}

func TestSchemasOfTools(t *testing.T) {
	deep := strings.Repeat(`{"anyOf":[`, 40) + `{"type":"integer"}` + strings.Repeat(`]}`, 40)
	wide := `{"anyOf":[` + strings.Repeat(`{"type":"string"},`, 300) + `{"type":"integer"}]}`
	for _, tc := range []struct{ name, tools, want string }{
		{"a reference into the tool's own definitions",
			string(functions([2]string{"f", `{"properties":{"a":{"$ref":"#/$defs/A~1B"}},"$defs":{"A/B":{"type":"integer"}}}`})), "42"},
		{"a reference to a reference in a branch",
			string(functions([2]string{"f", `{"properties":{"a":{"allOf":[{"$ref":"#/definitions/A"}]}},"definitions":{"A":{"$ref":"#/definitions/B"},"B":{"type":"integer"}}}`})), "42"},
		{"a reference to nowhere", string(functions([2]string{"f", property(`{"$ref":"#/$defs/A/B"}`)})), `"42"`},
		{"a reference to another document", string(functions([2]string{"f", property(`{"$ref":"http://x/y"}`)})), `"42"`},
		{"a reference to itself", string(functions([2]string{"f", property(`{"$ref":"#/properties/a"}`)})), `"42"`},
		{"references that branch without end",
			string(functions([2]string{"f", `{"properties":{"a":{"$ref":"#/$defs/A"}},"$defs":{"A":{"anyOf":[{"$ref":"#/$defs/A"},{"$ref":"#/$defs/A"},{"$ref":"#/$defs/A"}]}}}`})), `"42"`},
		{"parameters that are a reference",
			string(functions([2]string{"f", `{"$ref":"#/$defs/P","$defs":{"P":{"properties":{"a":{"type":"integer"}}}}}`})), "42"},
		{"parameters that refer to themselves", string(functions([2]string{"f", `{"$ref":"#/$defs/P","$defs":{"P":{"$ref":"#/$defs/P"}}}`})), `"42"`},
		{"a schema nested too deep is a string", string(functions([2]string{"f", property(deep)})), `"42"`},
		{"a schema too wide still has the types found before", string(functions([2]string{"f", property(wide)})), `"42"`},
		{"an unknown property is a string", string(functions([2]string{"f", `{"properties":{"b":{"type":"integer"}}}`})), `"42"`},
		{"a tool without parameters", `[{"type":"function","function":{"name":"f"}}]`, `"42"`},
		{"a tool whose parameters are no object", `[{"function":{"name":"f","parameters":[1]}}]`, `"42"`},
		{"an unknown tool", string(functions([2]string{"g", property(`{"type":"integer"}`)})), `"42"`},
		{"the first of two tools with one name counts",
			string(functions([2]string{"f", property(`{"type":"integer"}`)}, [2]string{"f", property(`{"type":"string"}`)})), "42"},
		{"entries that are no functions are passed over",
			`[1,null,"f",{"function":5},{"function":{"name":5}},` + string(functions([2]string{"f", property(`{"type":"integer"}`)})[1:]), "42"},
		{"no array", `{"name":"f"}`, `"42"`},
		{"broken JSON", `[{`, `"42"`},
		{"null", `null`, `"42"`},
		{"an empty array", `[]`, `"42"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			o := on
			o.Tools = json.RawMessage(tc.tools)
			want := reply{calls: []string{fmt.Sprintf(`f {"a": %s}`, tc.want)}}
			check(t, "glm47", o, glmPair("42"), want)
		})
	}
}

func TestDeepJSONInAValueIsAString(t *testing.T) {
	nest := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	if got := typed(t, `{"type":"array"}`, nest(maxDepth)); got != nest(maxDepth) {
		t.Errorf("%d levels are a string", maxDepth)
	}
	for _, n := range []int{maxDepth + 1, 100_000} {
		if got := typed(t, `{"type":"array"}`, nest(n)); got != `"`+nest(n)+`"` {
			t.Errorf("%d levels are no string", n)
		}
	}
}
