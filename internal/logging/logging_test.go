package logging

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLines(t *testing.T) {
	for _, tc := range []struct{ format, want string }{
		{"json", `{"level":"warn","time":"2000-01-01T00:00:00.000000Z","part":"queue","msg":"full","waited":1.5,"waiters":3}` + "\n"},
		{"console", "2000-01-01T00:00:00.000000Z\twarn\tqueue\tfull\t" + `{"waited": "1.5s", "waiters": 3}` + "\n"},
	} {
		t.Run(tc.format, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // its clock begins at 2000-01-01
				var out bytes.Buffer
				log, err := New(&out, tc.format, "info", 0)
				require.NoError(t, err)
				log.Named("queue").Warn("full", zap.Duration("waited", 1500*time.Millisecond), zap.Int("waiters", 3))
				log.Debug("not written")
				assert.Equal(t, tc.want, out.String())
			})
		})
	}
}

// Invariant 1.
func TestEqualLinesAreAllWritten(t *testing.T) {
	var out bytes.Buffer
	log, err := New(&out, "json", "debug", 0)
	require.NoError(t, err)
	for range 1000 {
		log.Debug("request")
	}
	assert.Equal(t, 1000, strings.Count(out.String(), "\n"))
}

func TestTextFromOutsideStaysOnItsLine(t *testing.T) {
	var out bytes.Buffer
	log, err := New(&out, "json", "info", 0)
	require.NoError(t, err)
	log.Info("request", zap.String("model", "a\nb\x1b[2J\xff\""))
	line, rest, _ := strings.Cut(out.String(), "\n")
	assert.Empty(t, rest)
	assert.True(t, json.Valid([]byte(line)))
}

func TestUnknownWords(t *testing.T) {
	_, err := New(nil, "xml", "info", 0)
	assert.EqualError(t, err, `log format "xml": want json or console`)
	_, err = New(nil, "json", "loud", 0)
	assert.EqualError(t, err, `log level "loud": want debug, info, warn or error`)
}

func TestLinesOfOneKindAreBounded(t *testing.T) {
	var out bytes.Buffer
	log, err := New(&out, "json", "info", 3)
	require.NoError(t, err)
	for range 100 {
		log.Info("request")
		log.Warn("request")
	}
	log.Info("another")
	require.Equal(t, 3+3+1, bytes.Count(out.Bytes(), []byte("\n")))
}
