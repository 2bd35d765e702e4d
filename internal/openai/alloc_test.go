//go:build !race

package openai

import "testing"

// Ceilings of the request path: a change that passes them needs a reason.
func TestAllocationCeilings(t *testing.T) {
	body := []byte(typical)
	v := mustParse(t, typical)
	drop := append(SamplingFields(), "max_tokens", "max_completion_tokens", "stream", "stream_options", "kv_transfer_params")
	set := []byte(`"max_tokens":1,"stream":false`)
	dst := make([]byte, 0, 1024)
	refusal := invalid("top_k", []byte("1.9"), "an integer")
	for _, tc := range []struct {
		name string
		most float64
		f    func()
	}{
		{"Parse: the index", 1, func() { _, _ = Parse(body) }},
		{"Get", 0, func() { v.Get("stream_options") }},
		{"Edit: the list of segments", 1, func() { v.Edit(drop, set) }},
		{"Edit and copy", 1, func() { dst = v.Edit(drop, set).AppendTo(dst[:0]) }},
		{"Check: the request", 1, func() { _, _ = full.Check(Chat, v) }},
		{"an error's body", 0, func() { dst = refusal.AppendJSON(dst[:0], "9f3c") }},
	} {
		if got := testing.AllocsPerRun(100, tc.f); got > tc.most {
			t.Errorf("%s: %v allocations, at most %v", tc.name, got, tc.most)
		}
	}
}
