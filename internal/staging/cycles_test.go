package staging

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"pd-router/internal/tilert"
)

// usage is what the process holds.
type usage struct {
	rss             int64 // bytes
	fds, goroutines int
}

func use(t testing.TB) usage {
	t.Helper()
	runtime.GC()
	statm, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	pages, err := strconv.ParseInt(strings.Fields(string(statm))[1], 10, 64)
	require.NoError(t, err)
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return usage{pages * int64(os.Getpagesize()), len(fds), runtime.NumGoroutine()}
}

// TestAThousandRequestsLeaveNothing: memory, descriptors and goroutines are as after the first hundred.
func TestAThousandRequestsLeaveNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	const cycles = 1000
	a, w := openArena(t, Options{Sizes: []Size{{2, 192}}, Senders: 2, Verify: 0.1})
	p, n := newPrefill(t, tiny, 192, 2), startNode(t, nodeOptions{senders: 2})
	ctx := within(t, 100*time.Second)
	cycle := func(i int) {
		s := a.Slots()[i%2]
		kv, err := s.Expect(rid(i))
		require.NoError(t, err)
		require.NoError(t, p.send(ctx, s, tilert.Request{RID: rid(i), SeqLen: 1 + i%192}))
		require.NoError(t, kv.Receive(ctx, rid(i)))
		require.NoError(t, kv.Send(ctx, n.target()))
		n.took(t, rid(i), p, 1+i%192)
		kv.Release()
		w.free(t, s)
	}
	for i := range cycles / 10 {
		cycle(i)
	}
	before := use(t)
	for i := cycles / 10; i < cycles; i++ {
		cycle(i)
	}
	n.waitIdle(t)
	after := use(t)
	t.Logf("%+v, %+v", before, after)
	assert.LessOrEqual(t, after.rss-before.rss, int64(16<<20))
	assert.LessOrEqual(t, after.fds, before.fds+4)
	assert.LessOrEqual(t, after.goroutines, before.goroutines+4)
}

// TestAgentsThatAreReplacedLeaveNothing, likewise.
func TestAgentsThatAreReplacedLeaveNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	a, w := openArena(t, Options{Sizes: []Size{{1, 192}}, Senders: 1, Log: zap.NewNop()})
	s := a.Slots()[0]
	p, n := newPrefill(t, tiny, 192, 1), startNode(t, nodeOptions{senders: 1})
	cycle := func(i int) {
		before := s.end
		kv, err := s.Expect(rid(2 * i))
		require.NoError(t, err)
		require.NoError(t, ask(t, s, tilert.Request{RID: rid(2 * i), SeqLen: 10}).conn.Close())
		require.Equal(t, Lost, reason(t, kv.Receive(soon(t), rid(2*i))))
		kv.Release()
		w.free(t, s)
		require.NotSame(t, before, s.end)

		kv = received(t, s, p, tilert.Request{RID: rid(2*i + 1), SeqLen: 100})
		require.NoError(t, kv.Send(soon(t), n.target()))
		n.took(t, rid(2*i+1), p, 100)
		kv.Release()
		w.free(t, s)
	}
	for i := range 10 {
		cycle(i)
	}
	before := use(t)
	for i := 10; i < 40; i++ {
		cycle(i)
	}
	n.waitIdle(t)
	after := use(t)
	t.Logf("%+v, %+v", before, after)
	assert.LessOrEqual(t, after.rss-before.rss, int64(64<<20))
	assert.LessOrEqual(t, after.goroutines, before.goroutines+4)
	assert.Eventually(t, func() bool { return use(t).fds <= before.fds+8 }, 10*time.Second, 10*time.Millisecond)
}
