package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func expand(args ...string) ([]string, error) {
	fs := pflag.NewFlagSet("pd-router", pflag.ContinueOnError)
	Declare(fs)
	return ExpandArgs(fs, args)
}

func TestExpandArgs(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"one value", "--decode a", "--decode=a"},
		{"several values", "--decode a b c", "--decode=a --decode=b --decode=c"},
		{"values end at the next flag", "--decode a b --port 1", "--decode=a --decode=b --port 1"},
		{"values end at a single dash", "--decode a -h b", "--decode=a -h b"},
		{"values end at a negative number", "--decode a -1 b", "--decode=a -1 b"},
		{"values end at a lone dash", "--decode a - b", "--decode=a - b"},
		{"values end at two dashes, and nothing behind them changes", "--decode a -- --decode b c", "--decode=a -- --decode b c"},
		{"repeated", "--decode a --decode b c", "--decode=a --decode=b --decode=c"},
		{"with = there is one value", "--decode=a b", "--decode=a b"},
		{"an empty value is a value", "--decode= b", "--decode= b"},
		{"a word as the value of another flag is not looked at", "--model decode a b", "--model decode a b"},
		{"a negative number is a value of its flag", "--queue-timeout -1 --decode a b", "--queue-timeout -1 --decode=a --decode=b"},
		{"switches take no value", "--force-include-usage --decode a b", "--force-include-usage --decode=a --decode=b"},
		{"unknown flags stay as they are", "--what --decode a b", "--what --decode=a --decode=b"},
		{"a flag with another beginning is another flag", "--decoder a b", "--decoder a b"},
		{"subcommands stay in front", "serve --decode a b", "serve --decode=a --decode=b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := expand(strings.Fields(tc.in)...)
			require.NoError(t, err)
			assert.Equal(t, tc.want, strings.Join(got, " "))
		})
	}
	for _, in := range []string{"--decode", "--decode --port 1", "--decode -1", "--decode -- a", "--port", "--model-path --parser none", "--model-path --parser=none"} {
		_, err := expand(strings.Fields(in)...)
		assert.ErrorContains(t, err, ": its value is missing", in)
	}
}

func TestExpandArgsKeepsOddValuesWhole(t *testing.T) {
	got, err := expand("--decode", "a b", "", "c=d", "--model", "--not-a-flag-of-ours", "--decode", "e")
	require.NoError(t, err)
	assert.Equal(t, []string{"--decode=a b", "--decode=", "--decode=c=d", "--model", "--not-a-flag-of-ours", "--decode=e"}, got)
}

// What was expanded needs no more expanding, and what pflag then reads is what stands between one --decode and the next
// argument with a dash.
func FuzzExpandArgs(f *testing.F) {
	for _, s := range []string{"--decode\na\nb", "--decode\na\n--port\n1", "--decode=a\n--decode\nb\nc", "--model\n--decode\na", "--\n--decode\na", "--reasoning-alias\nx", "--decode\n-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, joined string) {
		args := strings.Split(joined, "\n")
		once, err := expand(args...)
		if err != nil {
			return
		}
		twice, err := expand(once...)
		if err != nil || !slices.Equal(once, twice) {
			t.Fatalf("%q -> %q -> %q, %v", args, once, twice, err)
		}
		if len(once) > len(args) {
			t.Fatalf("%q grew to %q", args, once)
		}
	})
}
