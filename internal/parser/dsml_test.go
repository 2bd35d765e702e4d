package parser

import (
	"fmt"
	"strings"
	"testing"
)

func dsmlBlockOf(invokes ...string) string {
	return blockOpen + "\n" + strings.Join(invokes, "\n") + "\n" + blockClose
}

func invoke(name string, params ...string) string { return openInvoke(name, params...) + invokeClose }

func openInvoke(name string, params ...string) string {
	return fmt.Sprintf("%s name=%q>\n%s\n", invokeOpen, name, strings.Join(params, "\n"))
}

func param(name, typed, value string) string { return openParam(name, typed, value) + paramClose }

func openParam(name, typed, value string) string {
	return fmt.Sprintf("%s name=%q string=%q>%s", paramOpen, name, typed, value)
}

var off = Options{ParallelCalls: true}

func TestDSML(t *testing.T) {
	sf := invoke("get_weather", param("city", "true", "SF"))
	weather := []string{`get_weather {"city": "SF"}`}
	long := strings.Repeat("0123456789 <b>\n\"世\"", 200)
	run(t, "dsv32", off, []textCase{
		{name: "text without a block is content", text: "Hello world", content: "Hello world"},
		{name: "think markers are content while thinking is off", text: "<think>a</think>", content: "<think>a</think>"},
		{name: "a call with a string", text: dsmlBlockOf(sf), calls: weather},
		{name: "two calls in order", text: dsmlBlockOf(sf, invoke("f")), calls: append(weather, "f {}")},
		{name: "text around a block is content", text: "Let me check. " + dsmlBlockOf(sf) + "\ndone", content: "Let me check. \ndone", calls: weather},
		{name: "two blocks", text: dsmlBlockOf(sf) + "\n" + dsmlBlockOf(invoke("f")), content: "\n", calls: append(weather, "f {}")},
		{name: "values that are JSON", text: dsmlBlockOf(invoke("f", param("enabled", "false", "true"), param("count", "false", " 42\n"))),
			calls: []string{`f {"enabled": true, "count": 42}`}},
		{name: "JSON is kept as written", text: dsmlBlockOf(invoke("f", param("a", "false", `{"n":9007199254740993,"x":[1.50, null]}`))),
			calls: []string{`f {"a": {"n":9007199254740993,"x":[1.50, null]}}`}},
		{name: "a string is verbatim even if it is JSON", text: dsmlBlockOf(invoke("f", param("a", "true", " 42\n"))), calls: []string{`f {"a": " 42\n"}`}},
		{name: "a value that should be JSON and is not is a string", text: dsmlBlockOf(invoke("f", param("a", "false", "not json"))),
			calls: []string{`f {"a": "not json"}`}},
		{name: "a value beyond a float64 is a string", text: dsmlBlockOf(invoke("f", param("a", "false", "[1e999]"))), calls: []string{`f {"a": "[1e999]"}`}},
		{name: "without the string attribute or a schema a value is a string",
			text: dsmlBlockOf(invoke("f", paramOpen+` name="a">1`+paramClose)), calls: []string{`f {"a": "1"}`}},
		{name: "attributes may come in any order and spacing",
			text: dsmlBlockOf(invoke("f", paramOpen+"\n string=\"false\"  x=\"y\" name=\"a>b\" >1"+paramClose)), calls: []string{`f {"a>b": 1}`}},
		{name: "a missing invoke close", text: dsmlBlockOf(openInvoke("f", param("a", "true", "1"))), calls: []string{`f {"a": "1"}`}},
		{name: "a missing invoke close before the next invoke", text: dsmlBlockOf(openInvoke("f", param("a", "true", "1")), sf),
			calls: append([]string{`f {"a": "1"}`}, weather...)},
		{name: "a missing parameter close before the next parameter", text: dsmlBlockOf(invoke("f", openParam("a", "true", "a<b>")+param("b", "true", "c"))),
			calls: []string{`f {"a": "a<b>", "b": "c"}`}},
		{name: "a missing parameter close before the invoke close",
			text: dsmlBlockOf(fmt.Sprintf("%s name=\"f\">%s%s", invokeOpen, openParam("a", "true", "1"), invokeClose)), calls: []string{`f {"a": "1"}`}},
		{name: "both closes missing before the next invoke", text: blockOpen + openInvoke("f") + openParam("a", "true", "1") + sf + blockClose,
			calls: append([]string{`f {"a": "1"}`}, weather...)},
		{name: "all closes missing but the block's", text: blockOpen + openInvoke("f") + openParam("a", "true", "1") + blockClose + "c",
			content: "c", calls: []string{`f {"a": "1"}`}},
		{name: "the end of the reply closes a call", text: blockOpen + openInvoke("f", param("a", "true", "1")), calls: []string{`f {"a": "1"}`}},
		{name: "the end of the reply drops an unfinished value", text: blockOpen + openInvoke("f", param("a", "true", "1"), openParam("b", "true", "2</｜DS")),
			calls: []string{`f {"a": "1"}`}},
		{name: "the end of the reply drops an unfinished tag", text: blockOpen + openInvoke("f", param("a", "true", "1"), paramOpen+` name="b`),
			calls: []string{`f {"a": "1"}`}},
		{name: "the end of the reply in a name gives no call", text: "c" + blockOpen + invokeOpen + ` name="ge`, content: "c"},
		{name: "half a block marker at the end is content", text: "c<｜DSML｜func", content: "c<｜DSML｜func"},
		{name: "text between parameters is dropped", text: dsmlBlockOf(invoke("f", "x {", param("a", "true", "1"), `{"b":1}`)), calls: []string{`f {"a": "1"}`}},
		{name: "a JSON object instead of parameters is the arguments", text: dsmlBlockOf(invoke("f", ` {"city": "S<F>"} `)),
			calls: []string{`f {"city": "S<F>"}`}},
		{name: "a JSON object after other text is dropped", text: dsmlBlockOf(invoke("f", `x{"city": 1}`)), calls: []string{"f {}"}},
		{name: "broken JSON instead of parameters is dropped", text: dsmlBlockOf(invoke("f", `{"city": `)), calls: []string{"f {}"}},
		{name: "a JSON array instead of parameters is dropped", text: dsmlBlockOf(invoke("f", `[1]`)), calls: []string{"f {}"}},
		{name: "a JSON object at the end of the reply", text: blockOpen + openInvoke("f", `{"a":1}`) + endOfSentence, calls: []string{`f {"a":1}`}},
		{name: "a JSON object before parameters is dropped", text: dsmlBlockOf(invoke("f", `{"b": 1}`, param("a", "true", "1"))), calls: []string{`f {"a": "1"}`}},
		{name: "a leaked end of sentence is no content", text: "a" + endOfSentence + dsmlBlockOf(sf) + endOfSentence, content: "a", calls: weather},
		{name: "a leaked end of sentence does not end a call", text: dsmlBlockOf(invoke("f", param("a", "true", "1"), endOfSentence, param("b", "true", "2"))),
			calls: []string{`f {"a": "1", "b": "2"}`}},
		{name: "a parameter without a name is dropped", text: dsmlBlockOf(invoke("f", param("", "true", "1"))), calls: []string{"f {}"}},
		{name: "a call without a name is dropped", text: dsmlBlockOf(invokeOpen+">"+param("a", "true", "1")+invokeClose, sf), calls: weather},
		{name: "a forgotten quote in a name ends at the next marker", text: dsmlBlockOf(invokeOpen + " name=\"f>\n" + param("a", "true", "1") + invokeClose),
			calls: []string{`f {"a": "1"}`}},
		{name: "a long value is kept", text: dsmlBlockOf(invoke("f", param("a", "true", long))), calls: []string{"f " + string(appendString([]byte(`{"a": `), []byte(long))) + "}"}},
		{name: "without tools a lone parameter named arguments is one", text: dsmlBlockOf(invoke("f", param("arguments", "false", `{"location":"Beijing"}`))),
			calls: []string{`f {"arguments": {"location":"Beijing"}}`}},
	})
}

func TestDSMLValueInPieces(t *testing.T) {
	value := strings.Repeat("0123456789abc<e>", 256)
	text := dsmlBlockOf(invoke("f", param("a", "true", value)))
	want := parse(t, "dsv32", off, text)
	if len(want.calls) != 1 || !strings.Contains(want.calls[0], value) {
		t.Fatalf("got %v", want)
	}
	for _, size := range []int{1, 3, 32, 1000} {
		if got := parse(t, "dsml", off, cut(text, size)...); got.String() != want.String() {
			t.Errorf("in pieces of %d: %v", size, got)
		}
	}
}

func TestDSMLThinkingOn(t *testing.T) {
	f := dsmlBlockOf(invoke("f"))
	run(t, "dsv32", on, []textCase{
		{name: "the reply begins as reasoning", text: "plan</think>\nHello", reasoning: "plan", content: "\nHello"},
		{name: "a leading think marker is absorbed", text: "<think>plan</think>Hello", reasoning: "plan", content: "Hello"},
		{name: "reasoning that never ends is no content", text: "plan", reasoning: "plan"},
		{name: "a block ends reasoning", text: "plan" + f + "c", reasoning: "plan", content: "c", calls: []string{"f {}"}},
	})
}

func TestDSMLWithTools(t *testing.T) {
	o := off
	o.Tools = functions([2]string{"f", `{"properties":{"location":{"type":"string"},"days":{"type":"integer"}}}`},
		[2]string{"g", `{"properties":{"arguments":{"type":"object"}}}`}, [2]string{"h", `{}`})
	lone := func(fn, key, typed, value string) string { return dsmlBlockOf(invoke(fn, param(key, typed, value))) }
	run(t, "dsv32", o, []textCase{
		{name: "a lone parameter named arguments is unwrapped", text: lone("f", "arguments", "false", `{"location":"Beijing"}`),
			calls: []string{`f {"location":"Beijing"}`}},
		{name: "a lone parameter named input is unwrapped", text: lone("f", "input", "false", ` {"location": "Beijing", "days": 2} `),
			calls: []string{`f {"location": "Beijing", "days": 2}`}},
		{name: "a string that is such an object is unwrapped", text: lone("f", "arguments", "true", `{"days":2}`), calls: []string{`f {"days":2}`}},
		{name: "one whose keys the schema does not know is kept", text: lone("f", "arguments", "false", `{"place":"Beijing"}`),
			calls: []string{`f {"arguments": {"place":"Beijing"}}`}},
		{name: "one that is no object is kept", text: lone("f", "arguments", "false", `[1]`), calls: []string{`f {"arguments": [1]}`}},
		{name: "one that the schema knows is kept", text: lone("g", "arguments", "false", `{"location":"Beijing"}`),
			calls: []string{`g {"arguments": {"location":"Beijing"}}`}},
		{name: "one of a tool without properties is kept", text: lone("h", "arguments", "false", `{}`), calls: []string{`h {"arguments": {}}`}},
		{name: "one that is not alone is kept", text: dsmlBlockOf(invoke("f", param("arguments", "false", `{"days":2}`), param("days", "false", "1"))),
			calls: []string{`f {"arguments": {"days":2}, "days": 1}`}},
		{name: "one that comes later is kept", text: dsmlBlockOf(invoke("f", param("days", "false", "1"), param("arguments", "false", `{"days":2}`))),
			calls: []string{`f {"days": 1, "arguments": {"days":2}}`}},
		{name: "one at the end of the reply is unwrapped", text: blockOpen + openInvoke("f", param("arguments", "false", `{"days":2}`)),
			calls: []string{`f {"days":2}`}},
		{name: "the string attribute goes before the schema", text: lone("f", "days", "true", "2"), calls: []string{`f {"days": "2"}`}},
		{name: "without the string attribute the schema decides", text: dsmlBlockOf(invoke("f", paramOpen+` name="days">2`+paramClose)),
			calls: []string{`f {"days": 2}`}},
	})
}

func TestDSMLOnlyFirstCall(t *testing.T) {
	text := "a" + dsmlBlockOf(invoke("f", param("a", "true", "1")), invoke("g", param("b", "true", "2"))) + "c" + dsmlBlockOf(invoke("h", `{"a":1}`))
	check(t, "dsv32", Options{}, text, reply{content: "ac", calls: []string{`f {"a": "1"}`}})
}
