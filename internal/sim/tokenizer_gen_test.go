package sim

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write tokenizer.json anew")

// words of the vocabulary: each, and each of its beginnings, becomes a token with a blank before it.
const words = `
a able about after again against all alpha also always am an and another answer any are arg argument as ask at away back bash be
because been before begin below beta between big black blue body both box brown but by call can case change chat city class close
cloud code cold color come command computer content could count country data date dawn day decode default delta did different do does dog
done down each easy end engine enough epsilon error eta even every exact example false fast few file find first five follow for form
found four fox from full function gamma get give go good great green group had hand hard has have he head hello help her here high him
his home house how I if in index integer into iota is it items its jumps just kappa keep kind know lambda large last late lazy left less
let letter life light like line list little live long look made make man many may me mean memory men message might mind model
more morning most mother move much must my name near need never new next night no not now nu null number object of off old omega
omicron on once one only open or order other our out over own page paper parameter part people phi pi place point pretty prize
prompt property psi put queue quick quickly quietly quite rain reach read ready red reply request required rest result rho
right river road room round router run said same say school see seem sentence seven she should show side sigma simulator
since small so some something soon sound speak start state still stop story string such summer sun sunny system table take talk tau tell than that
the their them then there these they theta thing think this those thought three through time to today together token
told too tool true try turn two type under until up upsilon us use user value very wait walk want warm was watch water way we weather week well
went were what when where which while white who why will wind window with without wizards word words work world would
write xi year yellow yes yet you young your zeta Paris London Berlin The You That This It He She We They There And But No Yes Here
`

// heads are words that also open a text, and pieces of names.
const heads = `The You That This It He She We They There And But No Yes Here get weather set read write run list bash command city query path
_weather _time _file _command user value name search find open close alpha say answer`

// signs are pairs of other characters that are common in prose and code.
var signs = []string{". ", "\": ", "\", \"", "\n\n", "  ", "...", "();", " = ", "://"}

// markers are GLM's added tokens. Those of the chat template are special; the ones a parser needs are not.
var markers = []struct {
	text    string
	special bool
}{
	{"<|endoftext|>", true}, {"[MASK]", true}, {"[gMASK]", true}, {"[sMASK]", true}, {"<sop>", true}, {"<eop>", true},
	{"<|system|>", true}, {"<|user|>", true}, {"<|assistant|>", true}, {"<|observation|>", true},
	{"<think>", false}, {"</think>", false}, {"<tool_call>", false}, {"</tool_call>", false}, {"<tool_response>", false}, {"</tool_response>", false},
	{"<arg_key>", false}, {"</arg_key>", false}, {"<arg_value>", false}, {"</arg_value>", false}, {"/nothink", false},
}

// generateTokenizer builds tokenizer.json. A token's merges lead to it one character at a time.
func generateTokenizer() []byte {
	type pair struct {
		text string
		id   int
	}
	var vocab []pair
	ids := map[string]int{}
	add := func(text string) {
		ids[text] = len(vocab)
		vocab = append(vocab, pair{text, len(vocab)})
	}
	runes := byteRunes()
	for _, printable := range []bool{true, false} { // the order of GPT-2's vocabulary
		for b := range 256 {
			if (runes[b] == rune(b)) == printable {
				add(string(runes[b]))
			}
		}
	}
	var merges []string
	grow := func(text string) {
		chars := strings.Split(toByteLevel(text), "")
		for n := 2; n <= len(chars); n++ {
			if whole := strings.Join(chars[:n], ""); ids[whole] == 0 {
				merges = append(merges, strings.Join(chars[:n-1], "")+" "+chars[n-1])
				add(whole)
			}
		}
	}
	for w := range strings.FieldsSeq(words) {
		grow(" " + w)
	}
	for w := range strings.FieldsSeq(heads) {
		grow(w)
	}
	for _, s := range signs {
		grow(s)
	}
	var added []string
	for i, m := range markers {
		text, _ := json.Marshal(m.text)
		special, _ := json.Marshal(m.special)
		id, _ := json.Marshal(len(vocab) + i)
		added = append(added, `    {"id": `+string(id)+`, "content": `+unescape(text)+`, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": `+string(special)+`}`)
	}
	const level = `{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}`
	var b strings.Builder
	b.WriteString("{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [\n" + strings.Join(added, ",\n") + "\n  ],\n")
	b.WriteString("  \"normalizer\": null,\n  \"pre_tokenizer\": " + level + ",\n  \"post_processor\": null,\n  \"decoder\": " + level + ",\n")
	b.WriteString("  \"model\": {\n    \"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null,\n")
	b.WriteString("    \"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": false,\n    \"vocab\": {\n")
	for i, p := range vocab {
		text, _ := json.Marshal(p.text)
		id, _ := json.Marshal(p.id)
		b.WriteString("      " + unescape(text) + ": " + string(id) + comma(i, len(vocab)))
	}
	b.WriteString("    },\n    \"merges\": [\n")
	for i, m := range merges {
		text, _ := json.Marshal(m)
		b.WriteString("      " + unescape(text) + comma(i, len(merges)))
	}
	b.WriteString("    ]\n  }\n}\n")
	return []byte(b.String())
}

// unescape undoes what the library does to <, > and & for the sake of HTML.
func unescape(b []byte) string {
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(b))
}

func comma(i, n int) string {
	if i+1 < n {
		return ",\n"
	}
	return "\n"
}

func TestTokenizerIsGenerated(t *testing.T) {
	got := generateTokenizer()
	if *update {
		require.NoError(t, os.WriteFile("tokenizer.json", got, 0o644))
	}
	require.Equal(t, string(got), string(tokenizerJSON), "run with -update")
}
