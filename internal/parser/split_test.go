package parser

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

var someTools = functions(
	[2]string{"f", `{"properties":{"a":{"type":["integer","null"]},"b":{"type":"object"},"c":{"anyOf":[{"type":"boolean"},{"type":"number"}]}}}`},
	[2]string{"get", `{}`}, [2]string{"get_b", `{"properties":{"arguments":{"type":"string"}}}`})

// options unpacks a choice of 0..7.
func options(choice byte) Options {
	o := Options{Thinking: choice&1 != 0, ParallelCalls: choice&2 != 0}
	if choice&4 != 0 {
		o.Tools = someTools
	}
	return o
}

// words are what texts are made of, so that markers meet in every order and state.
var words = map[string][]string{
	"glm47": {thinkOpen, thinkClose, toolOpen, toolClose, argKeyOpen, argKeyClose, argValueOpen, argValueClose,
		toolOpen + "f" + argKeyOpen + "a" + argKeyClose + argValueOpen, argValueClose + argKeyOpen + "b" + argKeyClose, argValueClose + toolClose,
		"<", "</", "<tool", "_call>", "</arg_", ">", " ", "\n", "f", "get", "get_b", "a", "b", "c", "42", "null", "1e999", `{"a":1}`, `"`, `\`, "世", "\xe4", "\xff", "x y"},
	"dsv32": {thinkOpen, thinkClose, blockOpen, blockClose, invokeOpen, invokeClose, paramOpen, paramClose, endOfSentence,
		blockOpen + invokeOpen + ` name="f">`, paramOpen + ` name="a" string="true">`, paramOpen + ` name="arguments" string="false">`,
		` name="get_b"`, ` string="false"`, ` name=""`, "<", "</", "<｜DSML｜", "<｜", "\x9c", "DSML", ">", " ", "\n", "f", "42", `{"a":1}`, "[1", `"`, `\`, "世", "\xff"},
}

func drawText(t *rapid.T, parser string) string {
	return strings.Join(rapid.SliceOfN(rapid.SampledFrom(words[parser]), 0, 40).Draw(t, "words"), "")
}

// Invariants 1, 2, 3, 5 and 6.
func TestAnySplitEqualsTheWhole(t *testing.T) {
	for parser := range words {
		t.Run(parser, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				o := options(rapid.Byte().Draw(t, "options"))
				text := drawText(t, parser)
				var pieces []string
				for rest := text; rest != ""; {
					n := rapid.IntRange(0, min(len(rest), 20)).Draw(t, "cut")
					pieces = append(pieces, rest[:n])
					rest = rest[n:]
				}
				want := parse(t, parser, o, text)
				if got := parse(t, parser, o, pieces...); got.String() != want.String() {
					t.Fatalf("%q in pieces %q\n got %v\nwant %v", text, pieces, got, want)
				}
				if got := parse(t, parser, o, cut(text, 1)...); got.String() != want.String() {
					t.Fatalf("%q byte by byte\n got %v\nwant %v", text, got, want)
				}
			})
		})
	}
}

// A reply that is written by the rules is read as it was meant, whatever the values hold.
func TestWellFormedRepliesAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		plain := rapid.StringMatching(`[a-z <>/世"\\\n]{0,12}`)
		value := rapid.Custom(func(t *rapid.T) string {
			for {
				v := strings.Join(rapid.SliceOfN(rapid.SampledFrom(words["glm47"]), 0, 8).Draw(t, "value"), "")
				// What ends a value by the rules, and what would touch the marker behind it, is no value.
				if s := v + argValueClose; utf8.ValidString(v) && !strings.Contains(v, argValueClose) && strings.Index(s, argValueClose) == len(v) {
					return v
				}
			}
		})
		name := rapid.StringMatching(`[a-z_]{1,8}`)
		want := reply{reasoning: plain.Draw(t, "reasoning"), content: plain.Draw(t, "content")}
		glm, ds := want.reasoning+thinkClose+want.content, want.reasoning+thinkClose+want.content
		for range rapid.IntRange(0, 3).Draw(t, "calls") {
			fn := name.Draw(t, "function")
			var pairs, params []string
			fragments := ""
			for range rapid.IntRange(0, 3).Draw(t, "pairs") {
				k, v := name.Draw(t, "key"), value.Draw(t, "value")
				pairs = append(pairs, k, v)
				params = append(params, param(k, "true", v))
				if fragments != "" {
					fragments += ", "
				}
				fragments += string(appendString(nil, []byte(k))) + ": " + string(appendString(nil, []byte(v)))
			}
			want.calls = append(want.calls, fn+" {"+fragments+"}")
			glm += glmCall(fn, pairs...)
			ds += dsmlBlockOf(invoke(fn, params...))
		}
		if got := parse(t, "glm47", on, glm); got.String() != want.String() {
			t.Fatalf("glm47 %q\n got %v\nwant %v", glm, got, want)
		}
		if got := parse(t, "dsv32", on, ds); got.String() != want.String() {
			t.Fatalf("dsv32 %q\n got %v\nwant %v", ds, got, want)
		}
	})
}

// Invariant 7: a quadratic step would need hours for these.
func TestHostileRepliesTakeLinearTime(t *testing.T) {
	const size = 1 << 20
	o := on
	o.Tools = someTools
	inValue := "</think><tool_call>f<arg_key>x</arg_key><arg_value>"
	inParam := blockOpen + openInvoke("f", openParam("a", "false", ""))
	for _, tc := range []struct{ name, parser, head, unit string }{
		{"plain text", "glm47", "", "text "},
		{"beginnings of markers", "glm47", "", "<"},
		{"think markers", "glm47", "", "<think></think>"},
		{"calls", "glm47", "", "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>"},
		{"call markers", "glm47", "", "<tool_call>"},
		{"calls without a name", "glm47", "", "<tool_call></tool_call>"},
		{"a name of key closes", "glm47", "<tool_call>get", "</arg_key>"},
		{"a name of value closes", "glm47", "<tool_call>get", "</arg_value>"},
		{"a name of spaces", "glm47", "<tool_call>get", " "},
		{"keys", "glm47", "<tool_call>f", "<arg_key>k</arg_key>"},
		{"pairs", "glm47", "<tool_call>f", "<arg_key>k</arg_key><arg_value>1</arg_value>"},
		{"a value", "glm47", inValue, "text "},
		{"a value of closes", "glm47", inValue, "</arg_value>"},
		{"a value of closes and space", "glm47", inValue, "</arg_value> \n"},
		{"space after a close", "glm47", inValue + "</arg_value>", " "},
		{"a value of half closes", "glm47", inValue, "</arg_value><arg_ke"},
		{"a value of call ends", "glm47", inValue, "</tool_call>"},
		{"calls whose value never ends", "glm47", "", "<tool_call>f<arg_key>a</arg_key><arg_value>1</tool_call>"},
		{"calls whose bare value never ends", "glm47", "", "<tool_call>f<arg_key>a</arg_key>1</arg_value>"},
		{"deep JSON", "glm47", "<tool_call>f<arg_key>b</arg_key><arg_value>", "["},
		{"digits", "glm47", "<tool_call>f<arg_key>a</arg_key><arg_value>", "9"},
		{"exponents", "glm47", "<tool_call>f<arg_key>b</arg_key><arg_value>[1", ",1e5"},
		{"blocks", "dsml", "", blockOpen + invokeOpen + ` name="f">` + blockClose},
		{"invokes", "dsml", blockOpen, invokeOpen + ` name="f">`},
		{"attributes", "dsml", blockOpen + invokeOpen, ` name="f`},
		{"a tag of quotes", "dsml", blockOpen + invokeOpen, `"`},
		{"parameters", "dsml", blockOpen + openInvoke("f"), paramOpen + ` name="a" string="false">1`},
		{"wrappers", "dsml", blockOpen + openInvoke("f"), param("arguments", "false", "{}")},
		{"a parameter", "dsml", inParam, "text "},
		{"a parameter of half markers", "dsml", inParam, "</｜DSML｜param"},
		{"text between parameters", "dsml", blockOpen + openInvoke("f"), "{"},
		{"ends of sentence", "dsml", "", endOfSentence},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := tc.head + strings.Repeat(tc.unit, size/len(tc.unit))
			start := time.Now()
			whole, pieces := feed(tc.parser, o, text, len(text)), feed(tc.parser, o, text, 5)
			if whole != pieces {
				t.Errorf("%+v as a whole, %+v in pieces", whole, pieces)
			}
			if d := time.Since(start); d > 20*time.Second {
				t.Errorf("took %v", d)
			}
		})
	}
}

// total is how many bytes came out as what.
type total [CallEnd + 1]int

func feed(parser string, o Options, text string, size int) (sum total) {
	p, _ := New(parser, o)
	var events []Event
	for ; text != ""; text = text[min(size, len(text)):] {
		events = p.Push(events[:0], text[:min(size, len(text))])
		sum.add(events)
	}
	sum.add(p.Finish(events[:0]))
	return sum
}

func (sum *total) add(events []Event) {
	for _, e := range events {
		sum[e.Kind] += max(len(e.Text), 1)
	}
}

// Content leaves nothing behind but a piece of a marker, and a closed call only the buffers that it needed.
func TestProseIsNotKept(t *testing.T) {
	for parser := range words {
		p, _ := New(parser, off)
		for range 100 {
			p.Push(nil, strings.Repeat("text < ", 10_000)+"<")
		}
		var c carry
		var vals int
		switch p := p.(type) {
		case *glm47:
			c, vals = p.carry, cap(p.name)+cap(p.key)+cap(p.val)+cap(p.buf)
		case *dsml:
			c, vals = p.carry, cap(p.tag)+cap(p.val)+cap(p.wrapped)+cap(p.buf)
		}
		if cap(c.held) > 64 || vals != 0 {
			t.Errorf("%s keeps %d and %d bytes", parser, cap(c.held), vals)
		}
	}
}

func fuzzSplit(f *testing.F, parser string, seeds ...string) {
	for i, s := range seeds {
		f.Add(s, byte(i), uint16(7*i+1))
	}
	f.Add(strings.Join(words[parser], ""), byte(7), uint16(3))
	f.Fuzz(func(t *testing.T, text string, choice byte, at uint16) {
		o := options(choice)
		want := parse(t, parser, o, text)
		i := min(int(at), len(text))
		if got := parse(t, parser, o, text[:i], text[i:]); got.String() != want.String() {
			t.Fatalf("%q cut at %d\n got %v\nwant %v", text, i, got, want)
		}
		if got := parse(t, parser, o, cut(text, 1+int(at)%5)...); got.String() != want.String() {
			t.Fatalf("%q in pieces of %d\n got %v\nwant %v", text, 1+int(at)%5, got, want)
		}
	})
}

func FuzzGLM47(f *testing.F) {
	fuzzSplit(f, "glm47", "", "plan</think>Hello", "</think>"+glmCall("f", "a", "1", "b", "</arg_value>x")+"\n"+glmCall("get"),
		"<tool_call>f<arg_key>a</arg_key>1</arg_value></tool_call>", "<tool_call>get_ba</arg_key><arg_value>1</tool_call>tail", "a\xe4\xb8<tool_")
}

func FuzzDSML(f *testing.F) {
	fuzzSplit(f, "dsv32", "", "a"+dsmlBlockOf(invoke("f", param("a", "false", "1"), param("b", "true", "<b>")), openInvoke("get_b")),
		dsmlBlockOf(invoke("f", param("arguments", "true", `{"a":1}`))), dsmlBlockOf(invoke("f", `{"a":1}`)), endOfSentence+"<｜DS")
}

// Whatever the schema and the value are, the arguments are one JSON object (checked by parse), and a string is verbatim.
func FuzzArguments(f *testing.F) {
	f.Add(`{"type":"integer"}`, "k", "42")
	f.Add(`{"type":["number","boolean","null"]}`, "a b", "-1.5e+3")
	f.Add(`{"anyOf":[{"type":"object"},{"$ref":"#/properties/k"}],"enum":[1,1.5,null]}`, "", `{"a":[1e999]}`)
	f.Fuzz(func(t *testing.T, schema, key, value string) {
		name, _ := json.Marshal(strings.TrimSpace(key))
		o := on
		o.Tools = functions([2]string{"f", fmt.Sprintf(`{"properties":{%s:%s}}`, name, schema)})
		parse(t, "glm47", o, "</think>"+glmCall("f", key, value))
		o.Tools = nil
		r := parse(t, "glm47", o, "</think>"+glmCall("f", "k", value))
		ds := parse(t, "dsml", off, dsmlBlockOf(invoke("f", param("k", "true", value))))
		if strings.ContainsAny(value, "<") || !utf8.ValidString(value) {
			return
		}
		for _, r := range []reply{r, ds} {
			var m map[string]string
			if err := json.Unmarshal([]byte(strings.TrimPrefix(r.calls[0], "f ")), &m); err != nil || m["k"] != value {
				t.Fatalf("%q came out as %v", value, r)
			}
		}
	})
}
