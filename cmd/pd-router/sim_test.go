package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// startSim runs a simulated node until the test is over and returns the line that it says first.
func startSim(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	code := make(chan int, 1)
	go func() { code <- run(ctx, newRootCommand(nil), append([]string{"sim"}, args...), in, io.Discard) }()
	t.Cleanup(func() {
		cancel()
		assert.Equal(t, exitGood, <-code, "it ends with its context")
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return line
}

func TestSimulatedNodesSayWhereTheyAre(t *testing.T) {
	hc := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	url := regexp.MustCompile(`http://127\.0\.0\.1:\d+`)
	for _, line := range []string{
		startSim(t, "prefill", "--listen", "127.0.0.1:0", "--model", "tiny"),
		startSim(t, "decode", "--ctrl", "127.0.0.1:0", "--http", "127.0.0.1:0", "--model", "tiny"),
	} {
		resp, err := hc.Get(url.FindString(line) + "/health")
		require.NoError(t, err, line)
		assert.Equal(t, 200, resp.StatusCode)
		require.NoError(t, resp.Body.Close())
	}
}

func TestSimulatedNodesRefuseWhatTheyCannotBe(t *testing.T) {
	for _, args := range [][]string{{"prefill", "--model", "glm4"}, {"decode", "--fault", "kv-flip"}, {"prefill", "--listen", "nowhere"}, {"decode", "--nonsense"}} {
		var out strings.Builder
		assert.NotEqual(t, exitGood, run(t.Context(), newRootCommand(nil), append([]string{"sim"}, args...), io.Discard, &out))
		assert.NotEmpty(t, out.String())
	}
}

func TestSimWritesTheTokenizer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	require.Equal(t, exitGood, run(t.Context(), newRootCommand(nil), []string{"sim", "tokenizer", dir}, io.Discard, io.Discard))
	_, err := os.Stat(filepath.Join(dir, "tokenizer.json"))
	assert.NoError(t, err)
}
