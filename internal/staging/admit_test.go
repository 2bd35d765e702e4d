package staging

import (
	"context"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pd-router/internal/tilert"
)

// two is an arena of one slot for two ranks.
func two(t *testing.T) (*watch, *Slot) {
	a, w := openArena(t, Options{Senders: 2})
	return w, a.Slots()[0]
}

func ranks(id string, rank, n int) tilert.Request {
	return tilert.Request{RID: id, Rank: rank, SeqLen: n}
}

func TestHelloIsThatOfADecodeNode(t *testing.T) {
	_, s := two(t)
	r := ask(t, s, ranks("x", 0, 10))
	h := r.hello
	assert.Equal(t, tilert.Magic, h.Magic)
	assert.Equal(t, tilert.Protocol2, h.Protocol)
	assert.Equal(t, tiny.Version, h.LayoutVersion)
	assert.Equal(t, "nixl", h.Transport)
	assert.Equal(t, 2, h.Senders)
	assert.Equal(t, 192, h.MaxSeqLen)
	assert.Equal(t, s.MaxSeqLen(), h.MaxSeqLen)
	assert.True(t, h.Busy, "nobody may send now")
	assert.Equal(t, 0, h.NixlDev)
	assert.Equal(t, tiny.Region(192, s.end.region.Addr()), h.Region())
	expect(t, s, "x")
	assert.False(t, ask(t, s, ranks("x", 0, 10)).hello.Busy)
}

// TestSenderMayTakeItAllForGPUMemory: a sender on a GPU names the slot's memory by the kind of its own.
func TestSenderMayTakeItAllForGPUMemory(t *testing.T) {
	_, s := two(t)
	blob := ask(t, s, ranks("x", 0, 10)).hello.NixlMeta
	for _, kind := range []string{"host", "GPU"} {
		t.Run(kind, func(t *testing.T) {
			sections := sectionsOf(t, blob)
			require.Len(t, sections, 2)
			assert.Equal(t, s.end.region.Addr(), sections[kind].Descs[0].Addr)
			assert.Equal(t, uint64(s.end.region.Len()), sections[kind].Descs[0].Len)
			assert.Zero(t, sections[kind].Descs[0].Dev)
		})
	}
}

// TestWhoIsLetIn, invariant 1.
func TestWhoIsLetIn(t *testing.T) {
	w, s := two(t)
	refused := func(q tilert.Request, why, detail string) {
		t.Helper()
		got := ask(t, s, q).reply
		assert.False(t, got.Accepted)
		assert.Equal(t, why, got.Error)
		assert.Equal(t, detail, got.Detail)
	}
	noConsumer := func(q tilert.Request) { t.Helper(); refused(q, "cancelling", "no_consumer") }
	forGood := func(q tilert.Request) { t.Helper(); refused(q, "no_consumer", "") }

	forGood(ranks("a", 0, 10)) // no request has the slot
	kv := expect(t, s, "a")
	refused(ranks("a", 0, 193), "seq_len exceeds max_seq_len", "")
	refused(ranks("a", 2, 10), "rank 2 of 2 with 10 tokens", "")
	refused(ranks("a", -1, 10), "rank -1 of 2 with 10 tokens", "")
	refused(ranks("a", 0, 0), "rank 0 of 2 with 0 tokens", "")
	first := ask(t, s, ranks("a", 0, 10))
	require.True(t, first.reply.Accepted)
	refused(ranks("a", 0, 10), "duplicate_rank", "") // while it writes
	busy := ask(t, s, ranks("b", 0, 10)).reply
	assert.Equal(t, []string{"busy", "a", "transferring"}, []string{busy.Error, busy.BusyRID, busy.BusyState})
	first.done(t)
	refused(ranks("a", 0, 10), "duplicate_rank", "") // when it is done
	ask(t, s, ranks("a", 1, 10)).done(t)
	busy = ask(t, s, ranks("b", 0, 10)).reply
	assert.Equal(t, []string{"busy", "a", "complete"}, []string{busy.Error, busy.BusyRID, busy.BusyState}, "a decode node would let b in")
	require.NoError(t, kv.Receive(soon(t), "a"))
	noConsumer(ranks("b", 0, 10)) // complete KV is never replaced
	refused(ranks("a", 1, 10), "duplicate_rank", "")
	assert.Equal(t, Held, s.State())

	kv.Release()
	kv.Release()
	w.free(t, s)
	expect(t, s, "c")
	forGood(ranks("a", 0, 10))    // its request is over
	noConsumer(ranks("b", 0, 10)) // prefill keeps the ids that it is told: a stranger
	assert.True(t, ask(t, s, ranks("c", 0, 10)).reply.Accepted)
}

func TestPrefillThatDoesNotKeepIDs(t *testing.T) {
	w, s := two(t)
	for i, id := range []string{"x", "y"} { // also when that is known
		kv := expect(t, s, rid(i))
		handshake(t, s, id, 10)
		require.NoError(t, kv.Receive(soon(t), id))
		kv.Release()
		w.free(t, s)
	}
	kv := expect(t, s, "")
	handshake(t, s, "z", 10)
	require.NoError(t, kv.Receive(soon(t), "z"))
	kv.Release()

	// Ids were kept until now; this prefill's were not. Its ranks come again.
	w.free(t, s)
	s.a.honours.Store(true)
	kv = expect(t, s, rid(1))
	assert.Equal(t, "no_consumer", ask(t, s, ranks("q", 0, 10)).reply.Detail)
	got := make(chan error, 1)
	go func() { got <- kv.Receive(soon(t), "q") }()
	require.Eventually(t, func() bool { return !s.a.honours.Load() }, 10*time.Second, time.Millisecond)
	handshake(t, s, "q", 10)
	require.NoError(t, <-got)
}

func TestKVOfAnotherRequestIsDropped(t *testing.T) {
	for _, tc := range []struct {
		name  string
		stray func(t *testing.T, s *Slot) (then func())
	}{
		{"complete", func(t *testing.T, s *Slot) func() { handshake(t, s, "stray", 10); return func() {} }},
		{"one rank done", func(t *testing.T, s *Slot) func() {
			ask(t, s, ranks("stray", 0, 10)).done(t)
			return func() {}
		}},
		{"one rank writing", func(t *testing.T, s *Slot) func() {
			r := ask(t, s, ranks("stray", 0, 10))
			return func() { r.done(t) }
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, s := two(t)
			kv := expect(t, s, rid(1))
			then := tc.stray(t, s)
			got := make(chan error, 1)
			go func() { got <- kv.Receive(soon(t), rid(1)) }()
			require.Eventually(t, func() bool { return s.State() == Reserved }, 10*time.Second, time.Millisecond)
			then()
			handshake(t, s, rid(1), 20)
			require.NoError(t, <-got)
			assert.Equal(t, 20, kv.SeqLen())
			assert.Equal(t, "no_consumer", ask(t, s, ranks("stray", 1, 10)).reply.Error)
		})
	}
}

// TestStrangerThatLeavesInTheMiddle, invariant 2: its bytes may still come, so nothing else may be trusted.
func TestStrangerThatLeavesInTheMiddle(t *testing.T) {
	w, s := two(t)
	kv := expect(t, s, rid(1))
	stray := ask(t, s, ranks("stray", 0, 10))
	got := make(chan error, 1)
	go func() { got <- kv.Receive(soon(t), rid(1)) }()
	require.Eventually(t, func() bool { return s.State() == Reserved }, 10*time.Second, time.Millisecond)
	require.NoError(t, stray.conn.Close())
	require.Equal(t, Lost, reason(t, <-got))
	kv.Release()
	w.free(t, s)
	assert.Nil(t, s.suspect)
}

func TestRanksMustAgreeOnTheLength(t *testing.T) {
	_, s := two(t)
	kv := expect(t, s, rid(1))
	first := ask(t, s, ranks(rid(1), 0, 10))
	got := ask(t, s, ranks(rid(1), 1, 11)).reply
	assert.Equal(t, "rank 1 has 11 tokens, others 10", got.Error)
	first.done(t)
	err := kv.Receive(soon(t), rid(1))
	assert.Equal(t, Refused, reason(t, err))
	assert.ErrorContains(t, err, got.Error)
}

func TestReceiveEndsWithItsContext(t *testing.T) {
	w, s := two(t)
	kv := expect(t, s, rid(1))
	err := kv.Receive(within(t, time.Millisecond), rid(1))
	assert.Equal(t, Timeout, reason(t, err))
	assert.ErrorContains(t, err, "staging slot-0: receive "+rid(1)+": timeout")
	assert.ErrorContains(t, err, "no rank has asked to send")
	kv.Release()
	assert.Equal(t, Free, s.State(), "nobody has written")

	kv = expect(t, s, rid(2))
	ask(t, s, ranks(rid(2), 1, 10)).done(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = kv.Receive(ctx, rid(2))
	assert.Equal(t, Canceled, reason(t, err))
	assert.ErrorContains(t, err, "of 2 ranks [0] have not come and [] are not done")
	assert.Equal(t, err, kv.Receive(soon(t), rid(2)), "that is final")
	assert.Equal(t, "no_consumer", ask(t, s, ranks(rid(2), 0, 10)).reply.Detail)
	kv.Release()
	w.free(t, s)
	assert.Equal(t, []Reason{Timeout, Canceled, Canceled}, reasons(w))
}

func reasons(w *watch) (out []Reason) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.transfers {
		out = append(out, t.Reason)
	}
	return out
}

// TestReleaseUnderALiveWriter, invariant 3.
func TestReleaseUnderALiveWriter(t *testing.T) {
	t.Run("that comes to its end", func(t *testing.T) {
		w, s := two(t)
		s.grace = time.Minute
		before := s.end
		kv := expect(t, s, rid(1))
		r := ask(t, s, ranks(rid(1), 0, 10))
		kv.Release()
		assert.Equal(t, Quarantined, s.State())
		assert.Equal(t, "no_consumer", ask(t, s, ranks(rid(1), 1, 10)).reply.Error)
		r.done(t)
		w.free(t, s)
		assert.Same(t, before, s.end)
	})
	t.Run("that leaves", func(t *testing.T) {
		w, s := two(t)
		s.grace = time.Minute
		before := s.end
		kv := expect(t, s, rid(1))
		r := ask(t, s, ranks(rid(1), 0, 10))
		kv.Release()
		require.NoError(t, r.conn.Close())
		w.free(t, s)
		assert.NotSame(t, before, s.end)
	})
	t.Run("that stays", func(t *testing.T) {
		w, s := two(t)
		s.grace = time.Millisecond
		before := s.end
		kv := expect(t, s, rid(1))
		r := ask(t, s, ranks(rid(1), 0, 10))
		kv.Release()
		w.free(t, s)
		assert.NotSame(t, before, s.end)
		_, err := r.conn.Read(make([]byte, 1))
		require.Error(t, err, "its connection was closed")

		// The new agent has other metadata, and a late done changes nothing.
		kv = expect(t, s, rid(2))
		assert.NotEqual(t, r.hello.NixlMeta, ask(t, s, ranks(rid(2), 0, 10)).hello.NixlMeta)
		kv.Release()
	})
}

// TestConnectionWithAnOldHello: what it was told is true no more.
func TestConnectionWithAnOldHello(t *testing.T) {
	w, s := two(t)
	s.grace = time.Millisecond
	old := &visit{s: s, end: s.end}
	kv := expect(t, s, rid(1))
	ask(t, s, ranks(rid(1), 0, 10))
	kv.Release()
	w.free(t, s)
	expect(t, s, rid(2))
	q := ranks(rid(2), 0, 10)
	reply, writer := old.Admit(&q)
	assert.Nil(t, writer)
	assert.Equal(t, tilert.NoConsumer, reply.Detail)
}

func TestConnectionsAreBounded(t *testing.T) {
	_, s := two(t)
	var conns []net.Conn
	for range s.maxVisits() {
		c, err := net.Dial("tcp4", net.JoinHostPort(s.Host(), strconv.Itoa(s.CtrlPort())))
		require.NoError(t, err)
		defer c.Close()
		_, err = tilert.ReadFrame(c, nil)
		require.NoError(t, err)
		conns = append(conns, c)
	}
	c, err := net.Dial("tcp4", net.JoinHostPort(s.Host(), strconv.Itoa(s.CtrlPort())))
	require.NoError(t, err)
	defer c.Close()
	_, err = tilert.ReadFrame(c, nil)
	require.Error(t, err)
	require.NoError(t, conns[0].Close())
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp4", net.JoinHostPort(s.Host(), strconv.Itoa(s.CtrlPort())))
		require.NoError(t, err)
		defer c.Close()
		_, err = tilert.ReadFrame(c, nil)
		return err == nil
	}, 10*time.Second, time.Millisecond)
}
