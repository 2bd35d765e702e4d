package parser

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// reply is a parsed text, all events merged. A call is "name arguments".
type reply struct {
	reasoning, content string
	calls              []string
}

func (r reply) String() string {
	return fmt.Sprintf("%q | %q | %s", r.reasoning, r.content, strings.Join(r.calls, " ; "))
}

// tester is a *testing.T, *testing.F or *rapid.T.
type tester interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// parse pushes pieces and merges the events, checking invariants 2, 3, 5 and 6.
func parse(t tester, name string, o Options, pieces ...string) reply {
	t.Helper()
	p, err := New(name, o)
	if err != nil {
		t.Fatal(err)
	}
	var events []Event
	for _, piece := range pieces {
		events = p.Push(events, piece)
	}
	events = p.Finish(events)
	if more := p.Finish(p.Push(nil, "more <tool_call>")); len(more) != 0 {
		t.Fatalf("events after the end: %v", more)
	}
	text := strings.Join(pieces, "")
	valid := utf8.ValidString(text)

	var r reply
	var args strings.Builder
	call, open := "", false
	for _, e := range events {
		if (e.Text == "") != (e.Kind == CallEnd) {
			t.Fatalf("kind %d has the text %q", e.Kind, e.Text)
		}
		if (valid || e.Kind >= CallStart) && !utf8.ValidString(e.Text) {
			t.Fatalf("kind %d has text that is not UTF-8: %q", e.Kind, e.Text)
		}
		if e.Kind < CallStart && !strings.HasPrefix(text[min(e.Pos, len(text)):], e.Text) || e.Kind >= CallStart && e.Pos != 0 {
			t.Fatalf("%v is not what stands at %d", e, e.Pos)
		}
		if open == (e.Kind < CallArgs) {
			t.Fatalf("kind %d while a call is open: %v; events %v", e.Kind, open, events)
		}
		if want := len(r.calls); e.Kind >= CallStart && e.Index != want {
			t.Fatalf("index %d, want %d", e.Index, want)
		}
		switch e.Kind {
		case Content:
			r.content += e.Text
		case Reasoning:
			r.reasoning += e.Text
		case CallStart:
			open, call = true, e.Text
			args.Reset()
		case CallArgs:
			args.WriteString(e.Text)
		case CallEnd:
			open = false
			var m map[string]any
			if err := json.Unmarshal([]byte(args.String()), &m); err != nil || m == nil {
				t.Fatalf("arguments of %s are no JSON object: %v: %s", call, err, args.String())
			}
			r.calls = append(r.calls, call+" "+args.String())
		}
	}
	if open {
		t.Fatalf("a call is open at the end; events %v", events)
	}
	return r
}

// check compares the reply to text as a whole, byte by byte and cut in two at each place (invariant 1).
func check(t *testing.T, name string, o Options, text string, want reply) {
	t.Helper()
	if got := parse(t, name, o, text); got.String() != want.String() {
		t.Errorf("%q\n got %v\nwant %v", text, got, want)
		return
	}
	if got := parse(t, name, o, strings.Split(text, "")...); got.String() != want.String() {
		t.Errorf("%q character by character\n got %v\nwant %v", text, got, want)
	}
	if got := parse(t, name, o, cut(text, 1)...); got.String() != want.String() {
		t.Errorf("%q byte by byte\n got %v\nwant %v", text, got, want)
	}
	for i := range min(len(text), 500) {
		if got := parse(t, name, o, text[:i], text[i:]); got.String() != want.String() {
			t.Errorf("%q cut at %d\n got %v\nwant %v", text, i, got, want)
			return
		}
	}
}

// cut splits text into pieces of size bytes.
func cut(text string, size int) (pieces []string) {
	for ; len(text) > size; text = text[size:] {
		pieces = append(pieces, text[:size])
	}
	return append(pieces, text)
}

// functions is a request's tools array; each tool is a name and its parameters schema.
func functions(tools ...[2]string) json.RawMessage {
	var out []string
	for _, tool := range tools {
		out = append(out, fmt.Sprintf(`{"type":"function","function":{"name":%q,"parameters":%s}}`, tool[0], tool[1]))
	}
	return json.RawMessage("[" + strings.Join(out, ",") + "]")
}

// property is a schema with one property "a".
func property(schema string) string {
	return `{"type":"object","properties":{"a":` + schema + `}}`
}
