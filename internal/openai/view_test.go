package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func mustParse(t testing.TB, body string) View {
	t.Helper()
	v, err := Parse([]byte(body))
	if err != nil {
		t.Fatalf("Parse(%.200q): %v", body, err)
	}
	return v
}

func TestParseRefusesWhatIsNoJSONObject(t *testing.T) { // invariant 1
	for _, tc := range []struct{ name, body, says string }{
		{"an empty body", "", "must be a JSON object, but it is empty, at byte 0"},
		{"white space only", " \n\t", "must be a JSON object, but it is empty, at byte 3"},
		{"no JSON at all", "hello", "'h' where a value is expected at byte 0"},
		{"an array", "[1,2,3]", "must be a JSON object, not an array, as begins at byte 0"},
		{"a string", `  "a"`, "must be a JSON object, not a string, as begins at byte 2"},
		{"a number", "5", "must be a JSON object, not a number, as begins at byte 0"},
		{"null", "null", "must be a JSON object, not null, as begins at byte 0"},
		{"a broken array says what is broken", "[1,", "the text ends where a value is expected at byte 3"},
		{"two texts, the first no object", "1 2", "'2' where the end of the text is expected at byte 2"},
		{"a byte order mark", "\xEF\xBB\xBF{}", "without a byte order mark, which stands at byte 0"},
		{"an opening brace alone", "{", "the text ends where a key in double quotes is expected at byte 1"},
		{"a trailing comma", `{"model": "m",}`, "'}' where a key in double quotes is expected at byte 14"},
		{"single quotes", "{'a': 1}", "''' where a key in double quotes is expected at byte 1"},
		{"text after the object", `{"a": 1} x`, "'x' where the end of the text is expected at byte 9"},
		{"a NUL byte", "\x00", "byte 0x00 where a value is expected at byte 0"},
		{"a cut literal", `{"a": tru}`, "'t' where a value is expected at byte 6"},
		{"a literal at the end", `{"a": nul`, "'n' where a value is expected at byte 6"},
		{"a leading zero", `{"a": 01}`, "'1' where ',' or '}' is expected at byte 7"},
		{"a wrong bracket", `{"messages": [}`, "'}' where a value is expected at byte 14"},
		{"a closing bracket of the other kind", `{"messages": [1}`, "'}' where ',' or ']' is expected at byte 15"},
		{"a comma at the end of an array", `{"a":[1,]}`, "']' where a value is expected at byte 8"},
		{"a comma at the end of an inner object", `{"a":{"b":1,}}`, "'}' where a key in double quotes is expected at byte 12"},
		{"a missing colon", `{"a" 1}`, "'1' where ':' is expected at byte 5"},
		{"a missing colon inside", `{"x":{"a" 1}}`, "'1' where ':' is expected at byte 10"},
		{"a missing comma", `{"a":1 "b":2}`, `'"' where ',' or '}' is expected at byte 7`},
		{"a line break in a string", "{\"a\": \"\n\"}", "control character 0x0a in a string at byte 7"},
		{"an unknown escape", `{"a":"\x"}`, "a wrong escape in a string at byte 6"},
		{"a short \\u", `{"a":"\u12"}`, "a wrong escape in a string at byte 6"},
		{"an escape at the end", `{"a":"\`, "a wrong escape in a string at byte 6"},
		{"a string without end", `{"a":"bcdefghijklmnop`, "the text ends inside a string at byte 21"},
		{"a key without end", `{"a`, "the text ends inside a string at byte 3"},
		{"Latin-1", "{\"a\":\"caf\xE9\"}", "bytes that are not UTF-8 at byte 9"},
		{"an overlong slash", "{\"a\":\"\xC0\xAF\"}", "bytes that are not UTF-8 at byte 6"},
		{"a surrogate in UTF-8", "{\"a\":\"\xED\xA0\x80\"}", "bytes that are not UTF-8 at byte 6"},
		{"a cut character", "{\"a\":\"世\xE4\xB8\"}", "bytes that are not UTF-8 at byte 9"},
		{"NaN", `{"a":NaN}`, "'N' where a value is expected at byte 5"},
		{"Infinity", `{"a":-Infinity}`, "'I' where a digit is expected at byte 6"},
		{"a plus sign", `{"a":+1}`, "'+' where a value is expected at byte 5"},
		{"a bare fraction", `{"a":.5}`, "'.' where a value is expected at byte 5"},
		{"a fraction without digits", `{"a":1.}`, "'}' where a digit is expected at byte 7"},
		{"an exponent without digits", `{"a":1e+}`, "'}' where a digit is expected at byte 8"},
		{"a comment", `{/*c*/}`, "'/' where a key in double quotes is expected at byte 1"},
		{"a value is missing", `{"a":`, "the text ends where a value is expected at byte 5"},
		{"a no-break space between members", "{\u00a0}", "byte 0xc2 where a key in double quotes is expected at byte 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Parse([]byte(tc.body))
			if err == nil {
				t.Fatalf("Parse(%q) accepts it", tc.body)
			}
			if err.Status != 400 || err.Type != TypeInvalidJSON || !strings.Contains(err.Message, tc.says) {
				t.Errorf("Parse(%q) = %v; want it to say %q", tc.body, err, tc.says)
			}
		})
	}
}

func TestParseBoundsDepthAndMembers(t *testing.T) { // invariant 1
	nested := func(n int) string { return `{"a":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + "}" }
	mustParse(t, nested(MaxDepth))
	members := func(n int) string { return "{" + strings.Repeat(`"a":1,`, n-1) + `"a":1}` }
	mustParse(t, members(MaxMembers))
	for name, tc := range map[string]struct{ body, says string }{
		"one level too deep":             {nested(MaxDepth + 1), "nested deeper than 1000 levels at byte 1004"},
		"50,000 levels, well formed":     {nested(50000), "nested deeper than 1000 levels"},
		"200,000 objects, never closed":  {strings.Repeat(`{"a":`, 200000), "nested deeper than 1000 levels"},
		"200,000 arrays, never closed":   {strings.Repeat("[", 200000), "nested deeper than 1000 levels"},
		"200,000 braces":                 {strings.Repeat("{", 200000), "'{' where a key in double quotes is expected at byte 1"},
		"one member too many":            {members(MaxMembers + 1), "more than 4096 members"},
		"a body of nothing but members":  {members(1 << 20), "more than 4096 members"},
		"depth counts objects and array": {`{"a":` + strings.Repeat(`[{"b":`, 500), "nested deeper than 1000 levels"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse([]byte(tc.body)); err == nil || !strings.Contains(err.Message, tc.says) {
				t.Errorf("got %v; want it to say %q", err, tc.says)
			}
		})
	}
}

func TestGetFindsTopLevelMembers(t *testing.T) { // invariant 3
	for _, tc := range []struct{ name, body, key, want string }{
		{"a value comes without white space around it", "{ \"a\" :\t[1, 2]\r\n}", "a", "[1, 2]"},
		{"the last of several counts", `{"a":1,"b":2,"a":3}`, "a", "3"},
		{"a key written with escapes is the key it spells", `{"\u0061\u002Db":1}`, "a-b", "1"},
		{"so the last counts in whatever spelling", `{"a":1,"\u0061":2}`, "a", "2"},
		{"escapes of a pair are one character", `{"\ud83d\ude42":1}`, "🙂", "1"},
		{"a lone half is no character", `{"\ud83d":1}`, "\uFFFD", "absent"},
		{"inner members do not count", `{"b":{"a":1}}`, "a", "absent"},
		{"nor does text that looks like one", `{"b":"\"a\":1"}`, "a", "absent"},
		{"the empty key is a key", `{"":1}`, "", "1"},
		{"a long escaped key is decoded whole", `{"\u0061` + strings.Repeat("b", 200) + `":1}`, "a" + strings.Repeat("b", 200), "1"},
		{"null is there", `{"a":null}`, "a", "null"},
		{"an empty object has nothing", " {} ", "a", "absent"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := mustParse(t, tc.body)
			raw, ok := v.Get(tc.key)
			if got := string(raw); ok != (tc.want != "absent") || ok && got != tc.want {
				t.Errorf("Get(%q) of %s = %q, %v; want %s", tc.key, tc.body, got, ok, tc.want)
			}
			if v.Has(tc.key) != ok {
				t.Errorf("Has and Get disagree")
			}
		})
	}
}

func TestEditLeavesTheRestUntouched(t *testing.T) { // invariant 2
	drop := []string{"stop", "max_tokens", "stream"}
	const set = `"max_tokens":1`
	for _, tc := range []struct{ name, body, set, want string }{
		{"limits are set even when absent", `{"messages":[]}`, set, `{"messages":[],"max_tokens":1}`},
		{"digits beyond 2^53 survive", `{"seed":9007199254740993}`, set, `{"seed":9007199254740993,"max_tokens":1}`},
		{"the first member goes", `{"stop":1, "a":2}`, set, `{ "a":2,"max_tokens":1}`},
		{"the last member goes", `{"a":2 , "stop":1 }`, set, `{"a":2 ,"max_tokens":1}`},
		{"one in the middle goes", `{"a":2,"stop":1,"b":3}`, set, `{"a":2,"b":3,"max_tokens":1}`},
		{"neighbours go", `{"a":2,"stop":1,"stream":[{}],"b":3}`, set, `{"a":2,"b":3,"max_tokens":1}`},
		{"every other one goes", `{"stop":1,"a":2,"stream":1,"b":3,"max_tokens":1}`, set, `{"a":2,"b":3,"max_tokens":1}`},
		{"all of one name go", `{"stop":1,"a":2,"stop":2,"stop":3}`, set, `{"a":2,"max_tokens":1}`},
		{"names with escapes go", `{"\u0073top":1,"a":2}`, set, `{"a":2,"max_tokens":1}`},
		{"all go", ` { "stop":1, "stream":2 } `, set, ` {"max_tokens":1} `},
		{"all go and nothing comes", `{"stop":1}`, "", `{}`},
		{"nothing goes and nothing comes", ` {"a" : 1 } `, "", ` {"a" : 1 } `},
		{"nothing was there", ` { } `, set, ` {"max_tokens":1 } `},
		{"the last goes and nothing comes", `{"a":1,"stop":2}`, "", `{"a":1}`},
		{"the first goes and nothing comes", `{"stop":2,"a":1}`, "", `{"a":1}`},
		{"line breaks stay", "{\n  \"a\": 1,\n  \"b\": 2\n}\n", set, "{\n  \"a\": 1,\n  \"b\": 2\n,\"max_tokens\":1}\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := mustParse(t, tc.body).Edit(drop, []byte(tc.set))
			got := string(s.AppendTo(nil))
			if got != tc.want || s.Len() != len(got) {
				t.Errorf("Edit of %s = %s (Len %d); want %s", tc.body, got, s.Len(), tc.want)
			}
		})
	}
}

var seeds = []string{
	`{}`, ` { "a" : [ ] } `, `{"a":1,"b":"x","a":{"c":[1,2,{"d":null}]}}`, `{"\u0061":"\ud83d\ude42\n"}`, `{"a":-0.5e+10,"b":true}`,
	`{"a":"世界 и ещё é 🙂"}`, "{\"a\":\"\xff\"}", `[1]`, `{"a":01}`, `{"a":[}`, `{"a":"\u00"}`, `{"a":1}}`, `{"a":tru}`,
	`{"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa":"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\\b"}`,
	"{\"a\":\"世界世界世界世界\xe4\xb8\"}", "{\"a\":\"\xe0\x80\x80世\xed\xa0\x80\"}", `{"a":"` + "\x7f\u0080\u07ff\u0800\uffff" + `"}`,
}

// FuzzParse: exactly what encoding/json takes, if it is an object in UTF-8 within the limits (invariant 1).
func FuzzParse(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		before := bytes.Clone(body)
		v, err := Parse(body)
		want := json.Valid(body) && utf8.Valid(body) && bytes.TrimLeft(body, " \t\r\n")[0] == '{'
		var members []string
		if want {
			var depth int
			members, depth = referenceMembers(t, body)
			want = depth <= MaxDepth && len(members)/2 <= MaxMembers
		}
		if (err == nil) != want {
			t.Fatalf("Parse(%q) = %v; want accepted: %v", body, err, want)
		}
		if !bytes.Equal(before, body) {
			t.Fatal("the body was changed")
		}
		if err != nil {
			return
		}
		if len(v.members) != len(members)/2 {
			t.Fatalf("%d members, want %q", len(v.members), members)
		}
		for i := range v.members {
			if got := string(v.raw(&v.members[i])); got != members[2*i+1] {
				t.Fatalf("value %d = %s, want %s", i, got, members[2*i+1])
			}
			key := members[2*i]
			if !strings.Contains(key, "\uFFFD") && !v.hasKey(&v.members[i], key) {
				t.Fatalf("key %d is not %q", i, key)
			}
		}
	})
}

// referenceMembers reads keys and raw values with encoding/json, and the depth.
func referenceMembers(t *testing.T, body []byte) (out []string, depth int) {
	d := json.NewDecoder(bytes.NewReader(body))
	for level := 0; ; {
		token, err := d.Token()
		if err != nil {
			break
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			level++
			depth = max(depth, level)
		case json.Delim('}'), json.Delim(']'):
			level--
		}
	}
	d = json.NewDecoder(bytes.NewReader(body))
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			t.Fatal(err)
		}
		out = append(out, key.(string), string(raw))
	}
	return out, depth
}

// FuzzEdit: the result is the kept pieces of the body, in order, and what was set (invariant 2). The pieces are found by a splitter
// that shares nothing with the scanner.
func FuzzEdit(f *testing.F) {
	for _, s := range seeds {
		for mask := range uint8(8) {
			f.Add([]byte(s), mask)
		}
	}
	f.Add([]byte(`{"a":1 , "b":2, "c" :3,"a":4, "d":"}"}`), uint8(5))
	f.Fuzz(func(t *testing.T, body []byte, mask uint8) {
		v, err := Parse(body)
		if err != nil {
			return
		}
		var drop []string
		for i, key := range []string{"a", "b", "c"} {
			if mask>>i&1 == 1 {
				drop = append(drop, key)
			}
		}
		set := ""
		if mask&8 != 0 {
			set = `"own":[1,"}"]`
		}
		got := v.Edit(drop, []byte(set)).AppendTo(nil)
		if want := referenceEdit(string(body), v, drop, set); string(got) != want {
			t.Fatalf("Edit(%q, %q) = %q, want %q", body, drop, got, want)
		}
		after, err := Parse(got)
		if err != nil {
			t.Fatalf("Edit(%q) = %q: %v", body, got, err)
		}
		for _, key := range drop {
			if after.Has(key) {
				t.Fatalf("%q still has %s", got, key)
			}
		}
		if after.Has("own") != (set != "") && !v.Has("own") {
			t.Fatalf("%q has not what was set", got)
		}
	})
}

func referenceEdit(body string, v View, drop []string, set string) string {
	open := strings.Index(body, "{")
	end := strings.LastIndex(body, "}")
	pieces := splitTopLevel(body[open+1 : end])
	var kept []string
	if len(v.members) == 0 {
		pieces = nil
		if set == "" {
			return body
		}
		set += body[open+1 : end] // the white space of an empty object
	}
	for i, piece := range pieces {
		dropped := false
		for _, key := range drop {
			dropped = dropped || v.hasKey(&v.members[i], key)
		}
		if !dropped {
			kept = append(kept, piece)
		}
	}
	if set != "" {
		kept = append(kept, set)
	}
	return body[:open+1] + strings.Join(kept, ",") + body[end:]
}

func splitTopLevel(s string) (pieces []string) {
	depth, inString, start := 0, false, 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ',' && depth == 0:
			pieces = append(pieces, s[start:i])
			start = i + 1
		}
	}
	return append(pieces, s[start:])
}

// bodyOf is a chat request of about n bytes, most of them text of the kind given.
func bodyOf(n int, text string) []byte {
	quoted, err := json.Marshal(strings.Repeat(text, n/len(text)/4+1))
	if err != nil {
		panic(err)
	}
	var b bytes.Buffer
	b.WriteString(`{"messages":[`)
	for i := 0; b.Len() < n; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"role":"user","content":%s}`, quoted)
	}
	b.WriteString(`],"model":"glm5","stream":true,"max_completion_tokens":3000,"ignore_eos":true,"stream_options":{"include_usage":true}}`)
	return b.Bytes()
}

var texts = []struct{ name, text string }{
	{"prose", "The quick brown fox jumps over the lazy dog, and nobody is surprised by it any more. "},
	{"code", "\tif err := f(x); err != nil {\n\t\treturn fmt.Errorf(\"f of %d: %w\", x, err)\n\t}\n"},
	{"chinese", "今天天气很好，所以我们出去散步了。"},
	{"russian", "Сегодня хорошая погода, и мы пошли гулять. "},
}

func BenchmarkParse(b *testing.B) {
	for _, size := range []struct {
		name string
		n    int
	}{{"1KB", 1 << 10}, {"1MB", 1 << 20}, {"4MB", 4 << 20}} {
		for _, text := range texts {
			if size.n != 1<<20 && text.name != "prose" && text.name != "code" {
				continue
			}
			b.Run(size.name+"/"+text.name, func(b *testing.B) {
				body := bodyOf(size.n, text.text)
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := Parse(body); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
	b.Run("tools", func(b *testing.B) {
		tool := `{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer","minimum":0}},"required":["a"]}}}`
		body := []byte(`{"tools":[` + strings.Repeat(tool+",", 1000) + tool + `]}`)
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Parse(body); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkEdit(b *testing.B) {
	drop := []string{"stream_options", "max_completion_tokens", "stop", "include_stop_str_in_output", "kv_transfer_params", "request_id",
		"return_tokens_as_token_ids", "max_tokens", "stream", "logprobs", "top_logprobs", "temperature", "top_p", "top_k",
		"repetition_penalty", "min_p"}
	set := []byte(`"max_tokens":1,"stream":false`)
	for _, n := range []int{1 << 10, 1 << 20, 4 << 20} {
		b.Run(fmt.Sprint(n>>10, "KB"), func(b *testing.B) {
			v, err := Parse(bodyOf(n, texts[0].text))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				v.Edit(drop, set)
			}
		})
	}
}

func TestEveryByteInAString(t *testing.T) { // invariant 1, at each offset of the words that strings are read in
	for _, length := range []int{1, 7, 8, 9, 17, 42} {
		for at := range length {
			for c := range 256 {
				body := []byte(`{"a":"` + strings.Repeat("x", length) + `"}`)
				body[6+at] = byte(c)
				_, err := Parse(body)
				if want := json.Valid(body) && utf8.Valid(body); (err == nil) != want {
					t.Fatalf("byte %#x at %d of %d: %v, want accepted: %v", c, at, length, err, want)
				}
			}
		}
	}
}

func TestEveryCharacterInAString(t *testing.T) { // invariant 1
	for r := rune(0x80); r <= utf8.MaxRune; r++ {
		if r > 0xFFFF && r%101 != 0 && r != utf8.MaxRune || 0xD800 <= r && r < 0xE000 {
			continue
		}
		body := fmt.Appendf(nil, `{"a":"%c%cx世%c世%c"}`, r, r, r, r)
		if _, err := Parse(body); err != nil {
			t.Fatalf("%U: %v", r, err)
		}
		if _, err := Parse(append(body[:len(body)-3:len(body)-3], `"}`...)); err == nil {
			t.Fatalf("%U without its last byte is accepted", r)
		}
	}
}

func TestWrongCharactersInAString(t *testing.T) { // invariant 1, at each of the short cuts through UTF-8
	for c := range 256 {
		if c < 0x7F && !strings.ContainsRune("\x00\x1f \"\\az", rune(c)) {
			continue // one ASCII character is as good as another
		}
		for d := 0x80; d < 256; d++ {
			lead, next := string([]byte{byte(d)}), string([]byte{byte(c)})
			for _, text := range []string{
				strings.Repeat(lead+next, 4), strings.Repeat(lead+next+"\x80", 2), strings.Repeat(lead+next+"\xBF", 2),
				lead + next + "\x80\x80", "世" + lead + next, "ж" + lead + next, "世" + next + lead + "\x80", "ж" + next + "世",
			} {
				for _, tail := range []string{"", "plain text behind"} {
					body := []byte(`{"a":"` + text + tail + `"}`)
					_, err := Parse(body)
					if want := json.Valid(body) && utf8.Valid(body); (err == nil) != want {
						t.Fatalf("%q: %v, want accepted: %v", body, err, want)
					}
				}
			}
		}
	}
}

func TestRawValuesAlongAPath(t *testing.T) {
	v, e := Parse([]byte(`{"a":[{"b":{"c":"x\u00e9","d":-1.5e1,"n":null}},2],"s":"t"}`))
	if e != nil {
		t.Fatal(e)
	}
	b := v.Top("a").First().Member("b")
	text, ok := b.Member("c").Text()
	if text != "xé" || !ok {
		t.Errorf("text %q %v", text, ok)
	}
	if f, ok := b.Member("d").Number(); f != -15 || !ok {
		t.Errorf("number %v %v", f, ok)
	}
	if !b.Member("n").Null() || !b.Member("absent").Null() || b.Member("d").Null() {
		t.Error("null is what is absent or null")
	}
	n := 0
	v.Top("a").Each(func(Raw) bool { n++; return true })
	if n != 2 {
		t.Errorf("%d elements", n)
	}
	for name, missing := range map[string]Raw{
		"a member of an array": v.Top("a").Member("b"), "the first of an object": b.First(), "beyond the end": v.Top("x").First().Member("y"),
		"a member of a string": v.Top("s").Member("t"),
	} {
		if missing != nil {
			t.Errorf("%s is %s", name, missing)
		}
	}
	if _, ok := v.Top("a").Text(); ok {
		t.Error("an array is no text")
	}
	if _, ok := v.Top("s").Number(); ok {
		t.Error("a string is no number")
	}
}
