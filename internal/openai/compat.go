package openai

import (
	"fmt"
	"strings"
)

// CompatibilityTable is the gate's table as a page of the documentation, in Markdown.
func CompatibilityTable() string {
	var b strings.Builder
	b.WriteString(`# Request fields

<!-- Generated from the gate's own table (internal/openai): go test ./internal/openai -run TestCompatibilityPage -update -->

What pd-router does with each field of a request to /v1/chat/completions and /v1/completions. All is decided before the request
waits for a slot or touches a node; a refusal names the field. Null is the same as absence, unless the note says otherwise. Of a
field that is sent twice the last value counts. Numbers beyond 64-bit floats, NaN and infinities are refused in any spelling.

* **passed through**: reaches the prefill node (vLLM) byte for byte, and vLLM answers for it.
* **honoured**: the router reads it, and the reply is what was asked for.
* **only neutral**: the decode nodes cannot do it. Values that ask for nothing are served, others refused rather than ignored.
* **router-owned**: the router needs it for itself. The client's value is dropped.

What decode nodes need for values that ask for something is in a column of its own: capabilities are what each node declares at GET
/capabilities. All nodes must have penalties and ignore_eos; one with logprobs is enough. Nodes of control-plane protocol 1 (TileRT 0.1.5)
declare none.

The refusals: ` + "`invalid_*` is status 400, `capability_unavailable` is 501" + `.

| field | endpoint | rule | served values | else | nodes need | note |
|---|---|---|---|---|---|---|
`)
	for _, f := range fields {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s |\n", f.Name, f.Endpoints, f.Rule,
			cell(f.Serves), cell(f.Else), cell(f.Needs.text()), cell(f.Note))
	}
	b.WriteString("| any other | both | passed through | anything | | | vLLM answers for it |\n")
	return b.String()
}

// String names the endpoints of the set.
func (e Endpoints) String() string {
	switch e {
	case OnChat:
		return "chat"
	case OnCompletions:
		return "completions"
	}
	return "both"
}

// text says what the abilities are, for the table.
func (n Needs) text() string {
	var texts []string
	for i := range lacks {
		if n>>i&1 == 1 {
			texts = append(texts, strings.TrimPrefix(lacks[i].text, "the "))
		}
	}
	return strings.Join(texts, ", ")
}

// cell makes a text fit for a table's cell.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
