package parser

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	if got := Names(); !slices.Equal(got, []string{"none", "glm47", "dsv32", "dsml"}) {
		t.Errorf("got %v", got)
	}
	for _, name := range Names() {
		p, err := New(name, Options{})
		if err != nil || (p == nil) != (name == "none") {
			t.Errorf("New(%q) = %v, %v", name, p, err)
		}
	}
	if _, err := New("hermes", Options{}); err == nil || !strings.Contains(err.Error(), `"hermes": want one of none, glm47`) {
		t.Errorf("an unknown name gives %v", err)
	}
}

// Other special tokens than these are left out of the text before it comes here: "</think>end<|user|>" arrives without
// its last token, and a parser that listed it would show it.
func TestMarkersAreThoseOfTheGrammar(t *testing.T) {
	for name, want := range map[string]string{
		"glm47": "<think> </think> <tool_call> </tool_call> <arg_key> </arg_key> <arg_value> </arg_value>",
		"dsv32": "<think> </think> ｜DSML｜", "dsml": "<think> </think> ｜DSML｜", "none": "", "hermes": "",
	} {
		if got := strings.Join(Markers(name), " "); got != want {
			t.Errorf("Markers(%q) = %s, want %s", name, got, want)
		}
	}
	Markers("glm47")[0] = "changed"
	if Markers("glm47")[0] != thinkOpen {
		t.Error("a caller can change the markers")
	}
}

func TestThinkingDefault(t *testing.T) {
	for _, tc := range []struct {
		kwargs     string
		glm, dsv32 bool
	}{
		{``, true, false},
		{`null`, true, false},
		{`{}`, true, false},
		{`"bad"`, true, false},
		{`[{"enable_thinking":false}]`, true, false},
		{`{"enable_thinking":true}`, true, true},
		{`{"enable_thinking":false}`, false, false},
		{`{"enable_thinking":null}`, false, false},
		{`{"enable_thinking":0}`, false, false},
		{`{"enable_thinking":-0.0}`, false, false},
		{`{"enable_thinking":1e400}`, true, true},
		{`{"enable_thinking":""}`, false, false},
		{`{"enable_thinking":"false"}`, true, true},
		{`{"enable_thinking":[ ]}`, false, false},
		{`{"enable_thinking":{"a":1}}`, true, true},
		{`{"thinking":true}`, true, true},
		{`{"thinking":false}`, true, false},
		{`{"thinking":true,"enable_thinking":false}`, false, true},
		{`{"enable_thinking":true,"enable_thinking":false}`, false, false},
		{`{"Enable_Thinking":false}`, true, false},
	} {
		for name, want := range map[string]bool{"glm47": tc.glm, "dsv32": tc.dsv32, "dsml": tc.dsv32, "none": false, "hermes": false} {
			if got := ThinkingDefault(name, json.RawMessage(tc.kwargs)); got != want {
				t.Errorf("%s with %s: %v, want %v", name, tc.kwargs, got, want)
			}
		}
	}
}
