package main

import (
	"bufio"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The router's 3 of 2 and 10 of 2, 6 of 3: the medians' ratio is 3, that of the repeats 2.
func TestRowTellsMedianOfRatios(t *testing.T) {
	r := newRow("cost", "%.0f us")
	for i, v := range [][2]float64{{3, 2}, {10, 2}, {6, 3}} {
		r.add(direct, 1)
		r.add(router, v[0])
		r.add("other", v[1])
		if i == 0 {
			r.add("failed once", 1)
		}
	}
	lines := strings.Split(r.String(), "\n")
	assert.Equal(t, "cost                                direct 1 us  pd-router 6 us  other 2 us  failed once 1 us", lines[0])
	require.Len(t, lines, 2, "no ratio to the node itself, nor to who has not all repeats")
	assert.Equal(t, "/other 2.00 (1.50 to 5.00)", strings.TrimSpace(lines[1]))
}

func TestLaunches(t *testing.T) {
	var l launches
	require.NoError(t, l.Set("a b=cmd --x={port}  y"))
	assert.Equal(t, launches{{"a b", []string{"cmd", "--x={port}", "y"}}}, l)
	for _, bad := range []string{"", "a", "a=", "a= "} {
		assert.Error(t, l.Set(bad), bad)
	}
}

func TestSlotKnowsOrderAndUse(t *testing.T) {
	s := &slot{}
	for _, i := range []int{0, 2, 1, 3} {
		s.prefill(chat(mark(i), 100, true, 1))
	}
	assert.Equal(t, []int{0, 2, 1, 3}, s.marks)
	assert.Equal(t, 1, s.disorder())
	s.begin()
	s.begin()
	assert.Equal(t, 1, s.overlaps)
	s = &slot{busy: time.Second, first: time.Unix(0, 0), last: time.Unix(4, 0)}
	assert.InDelta(t, 0.25, s.use(), 1e-9)
}

// An event counts once, however the router cuts its chunks.
func TestClientCountsEvents(t *testing.T) {
	for _, cut := range []string{"5\r\na\n\nb\n\r\n1\r\n\n\r\n0\r\n\r\n", "6\r\na\n\nb\n\n\r\n0\r\n\r\n"} {
		s, err := newStub("127.0.0.1:0", func(_ string, _ []byte, w *bufio.Writer) {
			_, _ = w.WriteString("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + cut)
		})
		require.NoError(t, err)
		c, err := dial(s.addr())
		require.NoError(t, err)
		for range 2 { // the second shows that the first was read to its end
			_, events, err := c.roundTrip(chat("", 100, true, 2))
			require.NoError(t, err)
			assert.Equal(t, 2, events)
		}
		require.NoError(t, c.c.Close())
		require.NoError(t, s.ln.Close())
	}
}

// In each wire the same tokens come, and the time that is in them can be read.
func TestNodesServeEachWire(t *testing.T) {
	n, err := startNodes()
	require.NoError(t, err)
	defer n.close()
	n.tokens.Store(3)
	n.pace.Store(int64(time.Millisecond))
	c, err := dial(n.dec.addr())
	require.NoError(t, err)
	defer c.c.Close()
	late, err := c.delays(chat("", 100, true, 3))
	require.NoError(t, err)
	assert.Len(t, late, 3)
	n.pace.Store(0)
	for path, lines := range map[string]int{"/pd/decode": 4, "/v1/chat/completions": 2 * 5} { // with the last event and [DONE]
		_, err = c.send(request(path, "{}"))
		require.NoError(t, err)
		got := 0
		for line := ""; line != "0\r\n"; {
			raw, err := c.r.ReadString('\n')
			require.NoError(t, err)
			if line = raw; !strings.HasSuffix(line, "\r\n") {
				got++
			}
		}
		_, err = c.r.Discard(2)
		require.NoError(t, err)
		assert.Equal(t, lines, got, path)
	}
}
