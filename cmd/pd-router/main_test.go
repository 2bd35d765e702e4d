package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"pd-router/internal/config"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// fasthttp leaves two goroutines behind: one for the date, for good, and one that looks after workers, for 10 s.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

// program runs one command line; serve only notes its settings.
func program(serve serveFunc, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(context.Background(), newRootCommand(serve), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestServesWithAndWithoutTheWord(t *testing.T) {
	flags := []string{"--vllm-url", "http://p:8000", "--decode", "a:1:2", "b:1:2", "--parser", "none", "--port", "8888"}
	for name, args := range map[string][]string{
		"flags alone":            flags,
		"the word before flags":  append([]string{"serve"}, flags...),
		"the word between flags": append([]string{"--port", "8888", "serve"}, flags...),
	} {
		t.Run(name, func(t *testing.T) {
			var got config.Config
			code, stdout, stderr := program(func(cmd *cobra.Command, cfg config.Config) error {
				require.NotNil(t, cmd.Context())
				got = cfg
				return nil
			}, args...)
			assert.Equal(t, []any{0, "", ""}, []any{code, stdout, stderr})
			assert.Equal(t, 8888, got.Port)
			assert.Equal(t, []config.Node{{Host: "a", Ctrl: 1, HTTP: 2}, {Host: "b", Ctrl: 1, HTTP: 2}}, got.Decode)
		})
	}
}

func TestVersionIsOneStableLine(t *testing.T) {
	for _, arg := range []string{"--version", "version"} {
		code, stdout, stderr := program(nil, arg)
		assert.Equal(t, []any{0, "pd-router " + version + "\n", ""}, []any{code, stdout, stderr}, arg)
	}
}

func TestRevisionIsTheCommitOfTheBuild(t *testing.T) {
	commit, clean, changed := debug.BuildSetting{Key: "vcs.revision", Value: "0123abc"}, debug.BuildSetting{Key: "vcs.modified", Value: "false"},
		debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	assert.Equal(t, "0123abc", revisionIn([]debug.BuildSetting{commit, clean}))
	assert.Equal(t, "0123abc+dirty", revisionIn([]debug.BuildSetting{commit, changed}))
	assert.Empty(t, revisionIn(nil))
}

func TestHelpGoesToStdout(t *testing.T) {
	code, stdout, stderr := program(nil, "--help")
	assert.Equal(t, 0, code)
	assert.Empty(t, stderr)
	for _, want := range []string{"--vllm-url url", "--queue-timeout duration", "(default 1800)", "serve", "sim", "demo", "version"} {
		assert.Contains(t, stdout, want)
	}
}

// Bad usage is exit code 2 and one line, whatever part finds it.
func TestBadUsage(t *testing.T) {
	never := func(*cobra.Command, config.Config) error { t.Error("served"); return nil }
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no arguments":           {nil, "pd-router: --vllm-url: missing; want http"},
		"an unknown flag":        {[]string{"--no-such-flag"}, "pd-router: --no-such-flag: no such flag"},
		"of serve":               {[]string{"serve", "--no-such-flag"}, "pd-router: --no-such-flag: no such flag"},
		"of version":             {[]string{"version", "--port"}, "pd-router: --port: no such flag"},
		"a bad value":            {[]string{"--vllm-url=http://p", "--decode=a:1:2", "--parser=none", "--queue-timeout", "soon"}, "pd-router: --queue-timeout=soon: want seconds"},
		"an arena with direct":   {[]string{"--vllm-url=http://p", "--decode=a:1:2", "--parser=none", "--kv-verify=1"}, "pd-router: --kv-verify: is for --kv-handoff staged"},
		"no value after a flag":  {[]string{"--decode", "--port", "1"}, "pd-router: --decode: its value is missing"},
		"a command misspelled":   {[]string{"serv", "--port", "1"}, `pd-router: "serv": neither a command nor`},
		"a word after one value": {[]string{"--decode=a:1:2", "b:1:2"}, `pd-router: "b:1:2": neither a command nor`},
		"a word too many":        {[]string{"version", "now"}, `pd-router: "now": neither a command nor`},
		"of a simulated node":    {[]string{"sim", "decoder"}, `pd-router: "decoder": neither a command nor`},
		"a folder too few":       {[]string{"sim", "tokenizer"}, "pd-router: sim tokenizer: want one folder"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := program(never, tc.args...)
			assert.Equal(t, exitUsage, code)
			assert.Empty(t, stdout)
			assert.Contains(t, stderr, tc.want)
			assert.Equal(t, 1, bytes.Count([]byte(stderr), []byte("\n")), stderr)
		})
	}
}

func TestSettingsFromEnvironmentAndFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(path, []byte("vllm-url: http://p\ndecode: [a:1:2]\nparser: none\n"), 0o600))
	t.Setenv("PD_ROUTER_CONFIG", path)
	t.Setenv("PD_ROUTER_LOG_LEVEL", "debug")
	var got config.Config
	code, _, stderr := program(func(_ *cobra.Command, cfg config.Config) error { got = cfg; return nil })
	assert.Equal(t, []any{0, ""}, []any{code, stderr})
	assert.Equal(t, "debug", got.LogLevel)
	assert.Equal(t, "http://p", got.VLLMURL)
}

func TestFailureIsOneLineAndExitCode1(t *testing.T) {
	code, stdout, stderr := program(func(*cobra.Command, config.Config) error {
		return errors.Join(errors.New("listen: address in use"), errors.New("second"))
	}, "--vllm-url=http://p", "--decode=a:1:2", "--parser=none")
	assert.Equal(t, []any{exitFailure, "", "pd-router: listen: address in use; second\n"}, []any{code, stdout, stderr})
}

func TestServeCanFindASettingUnusable(t *testing.T) {
	code, _, _ := program(func(*cobra.Command, config.Config) error {
		return &config.Error{Setting: "--generation-config=auto", Text: "min_p"}
	}, "--vllm-url=http://p", "--decode=a:1:2", "--parser=none")
	assert.Equal(t, exitUsage, code)
}

func TestUsageThatACommandRefusesItself(t *testing.T) {
	root := newRootCommand(nil)
	root.AddCommand(&cobra.Command{Use: "other", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return errors.New("failed") }})
	var out, errs bytes.Buffer
	assert.Equal(t, exitUsage, run(context.Background(), root, []string{"other", "word"}, &out, &errs))
	assert.Equal(t, exitFailure, run(context.Background(), root, []string{"other"}, &out, &errs))
}
