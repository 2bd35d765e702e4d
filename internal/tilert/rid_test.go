package tilert

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

func TestDeriveRID(t *testing.T) {
	const hex32 = "9f3c1d2e4b5a69788796a5b4c3d2e1f0"
	for _, tc := range []struct{ name, id, want string }{
		{"the chat prefix goes", "chatcmpl-abc", "abc"},
		{"the completions prefix goes", "cmpl-abc", "abc"},
		{"vLLM's random suffix goes", "chatcmpl-" + hex32 + "-1a2b3c4d", hex32},
		{"a prompt index goes with the suffix", "cmpl-" + hex32 + "-0-1a2b3c4d", hex32},
		{"a prompt index alone goes too", "cmpl-" + hex32 + "-0", hex32},
		{"32 hex digits stay", "cmpl-" + hex32, hex32},
		{"a uuid stays, its last group is too long", "chatcmpl-550e8400-e29b-41d4-a716-446655440000", "550e8400-e29b-41d4-a716-446655440000"},
		{"two numbers go", "chatcmpl-job-42-7", "job"},
		{"one number goes as hex", "chatcmpl-job-42", "job"},
		{"words stay", "chatcmpl-my-req", "my-req"},
		{"upper case is no hex", "chatcmpl-x-ABCD1234", "x-ABCD1234"},
		{"nine digits are too many", "chatcmpl-x-123456789", "x-123456789"},
		{"an empty tail counts as hex", "chatcmpl-x-", "x"},
		{"nothing but a prefix", "chatcmpl-", ""},
		{"one prefix only", "cmpl-cmpl-a", "cmpl"},
		{"the second prefix is a word", "chatcmpl-cmpl-abc", "cmpl"},
		{"a short group at the end is taken for the suffix", "chatcmpl-order-2024-0007", "order-2024"},
		{"and is not with a real suffix behind it", "chatcmpl-order-2024-0007-1a2b3c4d", "order-2024-0007"},
		{"at most two groups go", "abc-1-2-3", "abc-1"},
		{"no dash at all", "plain", "plain"},
		{"four digits are no index", "abc-1234-ffffffff", "abc-1234"},
		{"a dash alone", "-", ""},
		{"an empty index is none", "a--ff", "a-"},
		{"digits of other scripts are digits", "abc-\u0661\u0662-0", "abc"},
		{"so is a superscript", "abc-\u00b2-0", "abc"},
		{"a fraction is not", "abc-\u00bd-0", "abc-\u00bd"},
		{"three wide digits are three characters", "abc-\uff11\uff12\uff13-0", "abc"},
	} {
		t.Run(tc.name, func(t *testing.T) { assert.Equal(t, tc.want, DeriveRID(tc.id)) })
	}
}

// Invariant 1.
func TestOurIDsAreTheSameOnBothSides(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := NewRequestID()
		if len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" {
			t.Fatalf("NewRequestID() = %q", id)
		}
		prefix := rapid.SampledFrom([]string{"", "chatcmpl-", "cmpl-"}).Draw(t, "prefix")
		index := rapid.SampledFrom([]string{"", "-0", "-12"}).Draw(t, "index")
		suffix := rapid.StringMatching(`(-[0-9a-f]{8})?`).Draw(t, "suffix")
		if got := DeriveRID(prefix + id + index + suffix); got != id {
			t.Fatalf("DeriveRID(%s) = %s", prefix+id+index+suffix, got)
		}
	})
}

func TestRequestIDsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 10000 {
		seen[NewRequestID()] = true
	}
	assert.Len(t, seen, 10000)
}

func FuzzDeriveRID(f *testing.F) {
	for _, s := range []string{"chatcmpl-abc-1a2b3c4d", "cmpl-x-0-ff", "", "-", "a-\u0661-"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, id string) {
		if rid := DeriveRID(id); !strings.Contains(id, rid) || len(id)-len(rid) > len("chatcmpl-")+9+13 {
			t.Errorf("DeriveRID(%q) = %q", id, rid)
		}
	})
}

func BenchmarkDeriveRID(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		DeriveRID("chatcmpl-9f3c1d2e4b5a69788796a5b4c3d2e1f0")
	}
}

func BenchmarkNewRequestID(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		NewRequestID()
	}
}
