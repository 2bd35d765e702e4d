package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCases(t *testing.T) {
	const ms = time.Millisecond
	for in, want := range map[string][2]time.Duration{"P=D": {100 * ms, 100 * ms}, "P=4D": {400 * ms, 100 * ms}, " D=1.5P": {100 * ms, 150 * ms}} {
		c, err := parseCase(in, 100*ms, 0.25)
		require.NoError(t, err, in)
		assert.Equal(t, want, [2]time.Duration{c.prefill, c.decode}, in)
		assert.Equal(t, 25*ms, c.transfer)
	}
	for _, in := range []string{"", "P", "P=", "P=P", "D=4D", "T=2D", "P=0.5D", "P=xD"} {
		_, err := parseCase(in, 100*ms, 0.25)
		assert.Error(t, err, in)
	}
}

func TestBounds(t *testing.T) {
	long, short := proportion{prefill: 4, transfer: 1, decode: 1}, proportion{prefill: 1, transfer: 1, decode: 4}
	assert.Equal(t, []time.Duration{6, 4, 6, 5}, []time.Duration{long.held(), long.staged(), short.held(), short.staged()})
}

func TestModes(t *testing.T) {
	got, err := parseModes("direct=; ahead =--prefill-ahead;staged 2=--kv-handoff staged --slots=2")
	require.NoError(t, err)
	assert.Equal(t, []mode{{"direct", []string{}}, {"ahead", []string{"--prefill-ahead"}}, {"staged 2", []string{"--kv-handoff", "staged", "--slots=2"}}}, got)
	_, err = parseModes("direct=;")
	assert.ErrorContains(t, err, "want NAME=FLAGS")
}

func TestRow(t *testing.T) {
	c := proportion{prefill: time.Second, transfer: time.Second, decode: 2 * time.Second}
	r := result{requests: 10, wall: 40 * time.Second, taken: 30 * time.Second}
	assert.Equal(t, "direct             15.0      4.000      1.00         1.33          50 %        75 %", r.row("direct", c))
	assert.Len(t, r.row("direct", c), len(header))
}
