package openai

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestErrorBody(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  *Error
		rid  string
		want string
	}{
		{"about a field, before there is a rid", Errorf(TypeInvalidParameter, "top_k=%s: want an integer", "1.9").About("top_k"), "",
			`{"error":{"message":"top_k=1.9: want an integer","type":"invalid_parameter","param":"top_k","code":400},"error_type":"invalid_parameter","rid":null}`},
		{"about no field, with a rid", Errorf(TypeDecodeBusy, "decode node busy"), "9f3c",
			`{"error":{"message":"decode node busy","type":"decode_busy","param":null,"code":429},"error_type":"decode_busy","rid":"9f3c"}`},
		{"a message with everything that JSON escapes", &Error{Status: 502, Type: TypeDecodeFailed, Message: "a\"b\\c\nd\re\tf\x00g\x7f\u2028世\xff"}, "",
			`{"error":{"message":"a\"b\\c\nd\re\tf\u0000g` + "\x7f\u2028世\uFFFD" + `","type":"decode_failed","param":null,"code":502},"error_type":"decode_failed","rid":null}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.Equal(t, tc.want, string(tc.err.JSON(tc.rid)))
			require.True(t, json.Valid(tc.err.JSON(tc.rid)))
			require.Equal(t, "x"+tc.want, string(tc.err.AppendJSON([]byte("x"), tc.rid)))
		})
	}
	require.Equal(t, "501 capability_unavailable: no", Errorf(TypeCapabilityUnavailable, "no").Error())
	require.PanicsWithValue(t, "BUG: no such error type: oops", func() { Errorf("oops", "") })
}

func TestStringsSurviveJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		var got string
		require.NoError(t, json.Unmarshal(AppendString(nil, want), &got))
		require.Equal(t, strings.ToValidUTF8(want, "\uFFFD"), collapse(got, want))
	})
}

// collapse makes one U+FFFD of a run of them, where ToValidUTF8 does so too.
func collapse(got, want string) string {
	if utf8.ValidString(want) {
		return got
	}
	for strings.Contains(got, "\uFFFD\uFFFD") && !strings.Contains(want, "\uFFFD") {
		got = strings.ReplaceAll(got, "\uFFFD\uFFFD", "\uFFFD")
	}
	return got
}

// The set is closed: each constant has a status, each status a constant, and the names are those that clients know.
func TestErrorTypesAreAClosedSet(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "error.go", nil, 0)
	require.NoError(t, err)
	declared := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Type") {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			declared[value] = true
		}
		return true
	})
	require.Len(t, declared, len(statuses))
	for name := range declared {
		status, known := StatusOf(name)
		require.True(t, known, name)
		require.True(t, status >= 400 && status < 600, name)
	}
	for _, name := range strings.Fields(`invalid_json invalid_parameter invalid_logprobs invalid_grammar grammar_violation
		grammar_backend_unavailable grammar_unsupported logprobs_unavailable capability_unavailable request_cancelled decode_busy
		decode_truncated decode_stream_failed kv_transfer_timeout queue_timeout queue_full draining not_found method_not_allowed
		payload_too_large header_too_large unsupported_media_type bad_request unauthorized prefill_failed decode_failed
		context_length_exceeded internal_error`) {
		require.True(t, declared[name], name)
	}
	require.Len(t, declared, 28)
	// Those that arrive in a node's stream have the node's statuses.
	for name, want := range map[string]int{"invalid_grammar": 400, "grammar_violation": 400, "grammar_backend_unavailable": 500,
		"grammar_unsupported": 501, "logprobs_unavailable": 501, "capability_unavailable": 501, "invalid_parameter": 400, "request_cancelled": 499} {
		status, _ := StatusOf(name)
		require.Equal(t, want, status, name)
	}
}
