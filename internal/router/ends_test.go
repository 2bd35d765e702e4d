package router

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The odd ends of spec 9.1 and 9.2, and ordinary ones: the reply is whole.
func TestEndsThatAreWhole(t *testing.T) {
	w := newPlace(t)
	for _, tc := range []struct {
		name    string
		first   int // token of prefill
		script  nodeScript
		content string
		finish  string
		tokens  float64
	}{
		{"the first token was the end of the text: it is sent and not counted", eos,
			streams(begins, line(eos), doneWith(0, "stop")), "", "stop", 0},
		{"no room but for the first token: it is counted and not sent", hello,
			streams(begins, doneWith(1, "length")), "Hello", "length", 1},
		{"the first token leaves no text, more follow", eos,
			streams(begins, line(eos), line(comma, world), done("length")), ", world", "length", 3},
		{"a lone first token without text, counted", eos,
			streams(begins, line(eos), done("length")), "", "length", 1},
		{"no count", hello,
			streams(begins, line(hello), func(d *decode) bool { d.end(); return raw(`{"done":true}` + "\n")(d) }), "Hello", "stop", 1},
		{"no tokens at all", hello, streams(begins, doneWith(0, "stop")), "", "stop", 0},
		{"all in one line", hello, streams(begins, line(hi...), done("length")), "Hello, world", "length", 3},
		{"the node was cancelled by somebody else", hello, streams(begins, line(hello), done("cancelled")), "Hello", "stop", 1},
		{"empty lines between", hello,
			streams(begins, line(), line(hello), line(), line(comma), line(), line(), done("stop")), "Hello,", "stop", 2},
		{"an empty line after a first token without text", eos,
			streams(begins, line(eos), line(), line(hello), done("stop")), "Hello", "stop", 2},
		{"a last line without a line end", hello, streams(begins, line(hello), func(d *decode) bool {
			d.end()
			return raw(`{"done":true,"n":1,"finish_reason":"stop"}`)(d)
		}), "Hello", "stop", 1},
	} {
		for _, body := range []string{
			`{"messages":[]}`, `{"messages":[],"stream":true,"stream_options":{"include_usage":true}}`,
		} {
			name := tc.name
			if body != `{"messages":[]}` {
				name += ", streaming"
			}
			w.run(name, func(t *testing.T) {
				w.prefill.state.Lock()
				w.prefill.token = tc.first
				w.prefill.state.Unlock()
				w.node.script(tc.script)
				a := w.ask(body).end().wantOK(tc.content)
				require.Equal(t, tc.finish, a.finish)
				require.Equal(t, tc.tokens, a.usage["completion_tokens"])
			})
		}
	}
	require.Empty(t, w.node.cancelled())
}

func TestFirstTokenAtTheWindowsEndHasItsLogProb(t *testing.T) { // spec 9.2
	w := newPlace(t)
	w.node.script(streams(begins, doneWith(1, "length")))
	a := w.ask(`{"messages":[],"logprobs":true}`).end().wantOK("Hello")
	lp := a.json["choices"].([]any)[0].(map[string]any)["logprobs"].(map[string]any)["content"].([]any)
	require.Len(t, lp, 1)
	require.Equal(t, -0.25, lp[0].(map[string]any)["logprob"])
}

// A count that does not fit is a reply that is not whole, whichever way (promise 7).
func TestCountThatDoesNotFitIsAFailure(t *testing.T) {
	w := newPlace(t)
	for _, tc := range []struct {
		name  string
		lines []step
		n     int
	}{
		{"more than came", []step{line(hello)}, 2},
		{"fewer than came", []step{line(hello, comma)}, 1},
		{"none, and two came", []step{line(hello, comma)}, 0},
		{"two, and none came", nil, 2},
		{"two, and lines without tokens came", []step{line(), line()}, 2},
	} {
		for _, kind := range kinds {
			w.run(tc.name+", "+kind.name, func(t *testing.T) {
				w.node.script(streams(append(append([]step{begins}, tc.lines...), doneWith(tc.n, "length"))...))
				a := w.ask(kind.body).end()
				require.Equal(t, "decode_truncated", a.kind)
				if kind.body == blocking || strings.HasPrefix(tc.name, "two, ") { // nothing has gone out: the status tells
					a.wantRefused(502, "decode_truncated")
				} else {
					a.wantBroken(a.content, "decode_truncated")
				}
			})
		}
	}
}

func TestEmptyLinesSayNothing(t *testing.T) {
	w := newPlace(t)
	for _, kind := range kinds {
		w.node.script(streams(begins, raw("\n"), line(hello), raw("\r\n\n"), line(comma), done("stop"), raw("\n")))
		w.ask(kind.body).end().wantOK("Hello,")
	}
}

// Lines that cannot be read before the first byte of a reply are told by the status (invariant 5).
func TestFirstLineThatCannotBeReadIsABadGateway(t *testing.T) {
	w := newPlace(t)
	for _, garbage := range []string{" \n", "{\n", "[]\n", `{"t":[1.5]}` + "\n", `{"t":null}` + "\n", "{\"x\":1}\n", "\xff\n", `{"t":[201]}{"t":[201]}` + "\n"} {
		for _, kind := range kinds {
			w.run(kind.name+" "+garbage, func(t *testing.T) {
				w.node.script(streams(begins, raw(garbage), stays(newGate())))
				w.ask(kind.body).end().wantRefused(502, "decode_stream_failed")
				w.ask(blocking).end().wantOK("Hello, world") // a good reply ends the row of strikes
			})
		}
	}
	require.Zero(t, w.metric("pd_router_retries_total"))
}

// An error behind lines without tokens is told by the status too.
func TestLinesWithoutTokensDoNotBeginAStream(t *testing.T) {
	w := newPlace(t)
	w.node.script(streams(begins, line(), line(), fails("no", "invalid_grammar")))
	w.ask(streaming).end().wantRefused(400, "invalid_grammar")
}

// Log-probs that cannot serve are refused and not padded; the node is cancelled.
func TestLogProbsThatAreMissingEndTheReply(t *testing.T) {
	w := newPlace(t)
	script := streams(begins, line(hello), line(comma), stays(newGate()))
	w.node.script(script)
	w.ask(`{"messages":[],"logprobs":true}`).end().wantRefused(501, "logprobs_unavailable")
	await(t, "the cancel", func() bool { return len(w.node.cancelled()) == 1 })
	w.node.script(streams(begins, line(hello), line(comma), stays(newGate())))
	a := w.ask(`{"messages":[],"logprobs":true,"stream":true}`).end()
	a.wantBroken(a.content, "logprobs_unavailable")
	require.Equal(t, 1, w.outcomes(StreamFailed, 200))
}

// A token that could not come has a log-prob all the same. Python writes it in a way that JSON has none for.
func TestLogProbOfMinusInfinityIsWrittenAsVLLMDoes(t *testing.T) {
	w := newPlace(t)
	for _, body := range []string{`{"messages":[],"logprobs":true,"top_logprobs":1}`, `{"messages":[],"logprobs":true,"top_logprobs":1,"stream":true}`} {
		w.node.script(streams(begins, raw(`{"t": [201], "lp": [null], "tp": [[]]}`+"\n"),
			raw(`{"t": [202, 203], "lp": [-Infinity, -0.75], "tp": [[[202, -Infinity]], [[203, null]]]}`+"\n"),
			func(d *decode) bool { d.sent = 3; return true }, done("stop")))
		c := w.ask(body)
		c.end().wantOK("Hello, world")
		require.Equal(t, 3, strings.Count(c.text(), `"logprob":-9999.0`), c.text())
	}
}

func TestLogProbsOfLinesReachTheReply(t *testing.T) {
	w := newPlace(t)
	for _, body := range []string{`{"messages":[],"logprobs":true,"top_logprobs":1}`, `{"messages":[],"logprobs":true,"top_logprobs":1,"stream":true}`} {
		w.node.script(streams(begins, raw(`{"t":[201],"lp":[null],"tp":[[]]}`+"\n"),
			raw(`{"t":[202,203],"lp":[-0.5,-0.75],"tp":[[[202,-0.5]],[[203,-0.75]]]}`+"\n"),
			func(d *decode) bool { d.sent = 3; return true }, done("stop")))
		c := w.ask(body)
		c.end().wantOK("Hello, world")
		for _, value := range []string{`"logprob":-0.25`, `"logprob":-0.5`, `"logprob":-0.75`} {
			require.Contains(t, c.text(), value)
		}
		decodes := w.node.asked()
		require.Equal(t, 1., decodes[len(decodes)-1]["top_logprobs"])
	}
}
