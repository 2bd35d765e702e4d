package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pd-router/internal/status"
)

var update = flag.Bool("update", false, "write the goldens anew")

// snapshotServer serves a canned snapshot at /queue.
func snapshotServer(t *testing.T, body string) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/queue" {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s
}

// canned is a snapshot with all that top shows, and with what a terminal must not obey.
func canned(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "snapshot.json"))
	require.NoError(t, err)
	return string(b)
}

func TestTopPrintsOnceWhereThereIsNoTerminal(t *testing.T) {
	s := snapshotServer(t, canned(t))
	code, stdout, stderr := program(nil, "top", "--url", s.URL+"/")
	require.Equal(t, []any{0, ""}, []any{code, stderr})
	assert.NotContains(t, stdout, "\x1b")
	for _, at := range []string{"11:59:55", "11:59:59"} { // they are shown in local time
		utc, err := time.Parse(time.DateTime, "2030-01-02 "+at)
		require.NoError(t, err)
		stdout = strings.Replace(stdout, utc.Local().Format(time.TimeOnly), at, 1)
	}
	path := filepath.Join("testdata", "top.txt")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(stdout), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), stdout)
}

func TestTopSaysWhyItShowsNothing(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := "http://" + ln.Addr().String()
	require.NoError(t, ln.Close())
	notJSON := snapshotServer(t, "<html>")
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	for name, tc := range map[string]struct {
		url  string
		code int
		want string
	}{
		"nobody listens":        {nobody, exitFailure, "connection refused (--url says where the router is)"},
		"another program":       {other.URL, exitFailure, "answered 404: is it a pd-router?"},
		"an answer of no sense": {notJSON.URL, exitFailure, "invalid character"},
		"no URL":                {"127.0.0.1:23333", exitUsage, "--url=127.0.0.1:23333: want a URL such as http://127.0.0.1:23333"},
		"a URL of a page":       {"http://a/?x=1", exitUsage, "want a URL"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := program(nil, "top", "--url="+tc.url)
			assert.Equal(t, tc.code, code)
			assert.Empty(t, stdout)
			assert.Contains(t, stderr, tc.want)
			assert.Equal(t, 1, strings.Count(stderr, "\n"))
		})
	}
}

func snapshotOf(t *testing.T, text string) (s status.Snapshot) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &s))
	return s
}

func TestTopFitsTheScreen(t *testing.T) {
	s := snapshotOf(t, canned(t))
	for len(s.Line.First) < 50 {
		s.Line.First = append(s.Line.First, s.Line.First[0])
	}
	s.Line.Waiting = 10_000
	for len(s.Recent) < 64 {
		s.Recent = append(s.Recent, s.Recent[0])
	}
	for _, height := range []int{24, 40, 60} {
		lines := topView(s, view{width: 80, height: height, colour: true})
		assert.LessOrEqual(t, len(lines), height)
		assert.Greater(t, len(lines), height-3, "all room is used")
	}
	assert.Contains(t, strings.Join(topView(s, view{width: 80, height: 40}), "\n"), "more")
	assert.NotPanics(t, func() { topView(s, view{width: 1, height: 1}) })
	assert.Equal(t, []string{"waiting for the first answer"}, topView(status.Snapshot{}, view{width: 80, height: 24}))
}

func TestTopShowsTheArenaOfAStagedRouter(t *testing.T) {
	s := snapshotOf(t, canned(t))
	assert.NotContains(t, strings.Join(topView(s, plainView), "\n"), "arena", "there is none with direct handoff")
	s.Arena = &status.Arena{Slots: map[string]int{"free": 1, "held": 2, "quarantined": 1}, Bytes: 50 << 30, KVReady: 2}
	assert.Contains(t, topView(s, plainView),
		"arena    50.0 GiB, 1 free, 0 reserved, 0 receiving, 2 held, 0 sending, 1 quarantined; 2 wait with their KV ready")
}

func TestClipCountsWhatIsSeen(t *testing.T) {
	assert.Equal(t, "\x1b[1mab\x1b[0m", clip("\x1b[1mabcd\x1b[0m", 2))
	assert.Equal(t, "äö", clip("äöü", 2))
	assert.Equal(t, "ab", clip("ab", 80))
}

func TestNothingFromTheNetworkReachesTheTerminalRaw(t *testing.T) {
	assert.Equal(t, "a?[2Jb??c", clean("a\x1b[2Jb\n\u202ec"))
}

func TestTimesAreShort(t *testing.T) {
	for s, want := range map[float64]string{0.0123: "12ms", 1.26: "1.3s", 61.4: "1m1s", 3720: "1h02m", 200000: "2d07h"} {
		assert.Equal(t, want, brief(s))
		assert.LessOrEqual(t, len(brief(s)), 8)
	}
}

func TestTopEndsWithItsContext(t *testing.T) {
	s := snapshotServer(t, canned(t))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	root := newRootCommand(nil)
	var out bytes.Buffer
	assert.Equal(t, exitFailure, run(ctx, root, []string{"top", "--url", s.URL}, &out, io.Discard))
}
