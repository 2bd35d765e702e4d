package probe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sample is a report with every status and every field.
func sample() *Report {
	busy := true
	r := &Report{
		Format: Format, TookMS: 5013.4,
		Prefill: PrefillNode{URL: "http://10.0.0.1:8000", Models: []Model{{"glm5", 202752}}},
		Decode: []DecodeNode{
			{
				Node: "10.0.0.2:5556:5557", IPs: []string{"10.0.0.2"}, Busy: &busy, RID: "9f3c",
				Hello: &Hello{
					ProtocolVersion: 2, LayoutVersion: 10, Layout: "glm5 fp8_ds_mla", Transport: "nixl", Senders: 8, MaxSeqLen: 4096, Shards: 8,
					NIXLMetaBytes: 286, NIXLAgent: "10.0.0.2:77", NIXLDev: 1,
				},
				Capabilities: &Capabilities{IgnoreEOS: true},
			},
			{Node: "decode-b:5556:5557", IPs: []string{}},
		},
	}
	add := func(node, check string, s Status, took float64, detail, advice string) {
		r.Checks = append(r.Checks, CheckResult{Node: node, Check: check, Status: s, Detail: detail, Advice: advice, TookMS: took})
	}
	add("prefill", "health", OK, 1.25, "200", "")
	add("prefill", "one-token", OK, 4210, "vLLM answers with one token", "")
	add("10.0.0.2:5556:5557", "hello", OK, 0.5, "protocol 2, layout 10 (glm5 fp8_ds_mla), nixl, 8 senders, max_seq_len 4096, 8 shards", "")
	add("10.0.0.2:5556:5557", "nixl-connect", Unchecked, 0, "nobody asked for it (--nixl does)", "")
	add("10.0.0.2:5556:5557", "status", Warn, 0.75, "busy with 9f3c", "a node must belong to one router")
	add("decode-b:5556:5557", "address", Fail, 5000, "lookup decode-b: no such host", "correct the host in --decode, or the name service")
	add("all", "hellos", OK, 0, "one node has told its hello; 1 of 2 told none", "")
	return r
}

// golden compares got with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got), "run go test ./internal/probe -update")
}

func TestTableOfAReport(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, sample().Table(&b))
	golden(t, "table.txt", b.Bytes())
}

func TestJSONOfAReport(t *testing.T) {
	b, err := json.MarshalIndent(sample(), "", "  ")
	require.NoError(t, err)
	golden(t, "report.json", append(b, '\n'))
}

func TestTableHasALineForEachCheck(t *testing.T) {
	f := newFake(t, goodPages(nil), says(helloOf(t, object{"transport": "a\tb\nc"})))
	r := look(t, "http://127.0.0.1:"+fmt.Sprint(closedPort(t)), Options{}, f.addr())
	var b strings.Builder
	require.NoError(t, r.Table(&b))
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	require.Len(t, lines, len(r.Checks)+2)
	for i, c := range r.Checks {
		assert.True(t, strings.HasPrefix(lines[i], tableWords[c.Status]), lines[i])
		assert.Contains(t, lines[i], c.Detail)
		assert.Equal(t, strings.Index(lines[0], "health"), strings.Index(lines[i], "  "+c.Check+" ")+2, "columns are aligned: %s", lines[i])
	}
	assert.Equal(t, r.Summary(), lines[len(lines)-1])
}

// docs/probe.md has a row for each check and for each member of the JSON, and no others.
func TestDocsHaveEachCheckAndEachField(t *testing.T) {
	page, err := os.ReadFile("../../docs/probe.md")
	require.NoError(t, err)
	section := func(from, to string) (rows []string) {
		_, text, found := strings.Cut(string(page), "\n## "+from+"\n")
		require.True(t, found, from)
		text, _, _ = strings.Cut(text, "\n## "+to)
		for line := range strings.Lines(text) {
			if name, ok := strings.CutPrefix(line, "| `"); ok {
				name, _, _ = strings.Cut(name, "`")
				rows = append(rows, name)
			}
		}
		return rows
	}
	var checks []string
	for _, g := range []struct {
		group string
		names []string
	}{{"prefill", Names.Prefill}, {"decode", Names.Decode}, {"all", Names.All}} {
		for _, name := range g.names {
			checks = append(checks, g.group+" "+name)
		}
	}
	assert.Equal(t, checks, section("Checks", "JSON"))
	assert.Equal(t, fields("", reflect.TypeFor[Report]()), section("JSON", "\x00"))
	for _, s := range statusNames {
		assert.Contains(t, string(page), "`"+s+"`")
	}
}

// fields are the paths of a type's members in JSON.
func fields(prefix string, typ reflect.Type) (out []string) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		path := prefix + f.Tag.Get("json")
		t := f.Type
		if t.Kind() == reflect.Slice {
			path, t = path+"[]", t.Elem()
		}
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		out = append(out, path)
		if t.Kind() == reflect.Struct {
			out = append(out, fields(path+".", t)...)
		}
	}
	return out
}

func TestEachStatusHasItsWords(t *testing.T) {
	for s := range numStatuses {
		assert.NotEmpty(t, statusNames[s])
		assert.NotEmpty(t, tableWords[s])
		assert.Equal(t, statusNames[s], s.String())
	}
}

func FuzzPlain(f *testing.F) {
	f.Add("a\x1b[2Jb\r\nc\xff\u202e")
	f.Fuzz(func(t *testing.T, s string) {
		got := plain(s)
		assert.True(t, utf8.ValidString(got))
		assert.LessOrEqual(t, utf8.RuneCountInString(got), longestDetail+1)
		assert.False(t, strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\u202e' || r == '\u2028' }))
		assert.Equal(t, got, plain(got))
	})
}
