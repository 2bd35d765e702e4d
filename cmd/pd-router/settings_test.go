package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pd-router/internal/config"
	"pd-router/internal/status"
)

// settingsOf are the settings of a command line.
func settingsOf(t *testing.T, args ...string) map[string]status.Setting {
	t.Helper()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags := config.Declare(fs)
	require.NoError(t, fs.Parse(append([]string{"--vllm-url=http://p:1", "--decode=a:1:2", "--decode=[::1]:3:4", "--parser=none"}, args...)))
	cfg, err := flags.Load(func(string) (string, bool) { return "", false })
	require.NoError(t, err)
	out := map[string]status.Setting{}
	for _, s := range settings(cfg) {
		out[s.Flag] = s
	}
	assert.Len(t, out, countFlags(fs), "each flag is there once")
	return out
}

func countFlags(fs *pflag.FlagSet) (n int) {
	fs.VisitAll(func(*pflag.Flag) { n++ })
	return n
}

func TestSettingsSayWhatIsInForceAndWhatWasSet(t *testing.T) {
	got := settingsOf(t, "--queue-timeout=90", "--queue-max-bytes=1GiB", "--max-body=64MiB", "--default-temperature=0.7", "--reasoning-alias")
	for _, want := range []status.Setting{
		{Flag: "--vllm-url", Value: "http://p:1"},
		{Flag: "--decode", Value: "a:1:2 [::1]:3:4"},
		{Flag: "--queue-timeout", Value: "90"},
		{Flag: "--drain-timeout", Value: "30", Default: true},
		{Flag: "--queue-max-bytes", Value: "1073741824"},
		{Flag: "--max-body", Value: "67108864", Default: true},
		{Flag: "--default-temperature", Value: "0.7"},
		{Flag: "--default-top-p", Value: "", Default: true},
		{Flag: "--default-top-k", Value: "", Default: true},
		{Flag: "--reasoning-alias", Value: "true"},
		{Flag: "--pprof", Value: "false", Default: true},
		{Flag: "--parser", Value: "none"},
	} {
		assert.Equal(t, want, got[want.Flag])
	}
}

// TestAllDefaultsAreKnownAsSuch keeps the text of a default and that of a value in one form, for flags to come too.
func TestAllDefaultsAreKnownAsSuch(t *testing.T) {
	given := map[string]bool{"--vllm-url": true, "--decode": true, "--parser": true}
	for flag, s := range settingsOf(t) {
		assert.Equal(t, !given[flag], s.Default, "%s is %q", flag, s.Value)
	}
}

func TestSettingsKeepSecretsAndTemplates(t *testing.T) {
	got := settingsOf(t, "--chat-template={{ messages }}\n")
	assert.Equal(t, "(given literally, 15 bytes)", got["--chat-template"].Value)
	got = settingsOf(t, "--chat-template=/models/"+strings.Repeat("x", 500))
	assert.Len(t, []rune(got["--chat-template"].Value), longestSetting+1)
	assert.Equal(t, `{"enable_thinking":false}`, settingText(json.RawMessage(`{"enable_thinking":false}`)))
	assert.Equal(t, "0.5", settingText(500*time.Millisecond))
	for _, name := range []string{"api-key", "api-keys-file", "auth-token", "client-secret", "password"} {
		assert.True(t, secret.MatchString(name), name)
	}
	for flag := range settingsOf(t) {
		assert.False(t, secret.MatchString(flag), "%s is shown as ***: is it a secret?", flag)
	}
}
