package staging

import (
	"context"
	"math"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pd-router/internal/nixl"
	"pd-router/internal/tilert"
)

func sectionsOf(t testing.TB, blob []byte) map[string]nixl.Section {
	t.Helper()
	m, err := nixl.ParseMetadata(blob)
	require.NoError(t, err)
	out := map[string]nixl.Section{}
	for _, s := range m.Sections {
		out[map[nixl.MemType]string{nixl.DRAM: "host", nixl.VRAM: "GPU"}[s.Mem]] = s
	}
	return out
}

// held is an arena with one request's KV of 100 tokens in it.
func held(t *testing.T, o Options) (*watch, *prefill, *KV) {
	a, w := openArena(t, o)
	p := newPrefill(t, tiny, 300, a.o.Senders)
	return w, p, received(t, a.Slots()[0], p, tilert.Request{RID: rid(1), SeqLen: 100})
}

// TestNodeThatIsNotOneForTheKV: nothing is asked, and the KV is good for another node.
func TestNodeThatIsNotOneForTheKV(t *testing.T) {
	_, p, kv := held(t, Options{})
	for _, tc := range []struct {
		name  string
		alter func(*tilert.Hello)
		says  string
		asked bool
	}{
		{"another service", func(h *tilert.Hello) { h.Magic = "http" }, `magic is "http"`, false},
		{"a protocol of the future", func(h *tilert.Hello) { h.Protocol = 3 }, "protocol_version is 3", false},
		{"another model", func(h *tilert.Hello) { h.LayoutVersion = 11 }, "layout_version is 11", false},
		{"another transport", func(h *tilert.Hello) { h.Transport = "mooncake" }, `transport is "mooncake"`, false},
		{"a window that is too small", func(h *tilert.Hello) { h.MaxSeqLen = 99 }, "max_seq_len is 99", false},
		{"too many ranks", func(h *tilert.Hello) { h.Senders = 65 }, "senders is 65", false},
		{"an array of bases that lacks one", func(h *tilert.Hello) { h.KVBase = append(h.KVBase, 0) }, "plane bases", false},
		{"memory that ends before the planes do", func(h *tilert.Hello) { h.KIBase[0] = math.MaxUint64 - 10 }, "runs over the end", true},
		{"memory that is not registered", func(h *tilert.Hello) { h.PEBase[0] = 4096 }, "outside the registered memory", true},
		{"metadata that is none", func(h *tilert.Hello) { h.NixlMeta = []byte("x") }, "bad metadata", true},
		{"a node that starts again meanwhile", everyThird(func(h *tilert.Hello) { h.NixlMeta = append(h.NixlMeta, 0) }), "the node has started again", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := startNode(t, nodeOptions{alter: tc.alter})
			err := kv.Send(soon(t), n.target())
			require.Equal(t, Mismatch, reason(t, err), err)
			assert.ErrorContains(t, err, tc.says)
			var e *Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, tc.asked, e.Admitted)
			assert.Equal(t, tc.asked, len(n.asked()) > 0)
			n.waitIdle(t)
			assert.Empty(t, n.complete)
		})
	}
	n := startNode(t, nodeOptions{})
	require.NoError(t, kv.Send(soon(t), n.target()))
	n.took(t, rid(1), p, 100)
}

func everyThird(f func(*tilert.Hello)) func(*tilert.Hello) {
	var n atomic.Int32
	return func(h *tilert.Hello) {
		if n.Add(1)%3 == 0 {
			f(h)
		}
	}
}

// waitIdle returns when the node has no live writer.
func (n *node) waitIdle(t testing.TB) {
	t.Helper()
	require.Eventually(t, func() bool { return n.writers() == 0 }, 10*time.Second, time.Millisecond)
}

func TestNodeThatIsBusyForAMoment(t *testing.T) {
	_, p, kv := held(t, Options{})
	n := startNode(t, nodeOptions{})
	q := tilert.Request{RID: "other", SeqLen: 5}
	_, other := n.Admit(&q)
	sent := make(chan error, 1)
	go func() { sent <- kv.Send(soon(t), n.target()) }()
	require.Eventually(t, func() bool { return len(n.asked()) > 1 }, 10*time.Second, time.Millisecond)
	n.release("other")
	n.Leave(other)
	require.NoError(t, <-sent)
	n.took(t, rid(1), p, 100)
}

func TestNodeThatStaysBusy(t *testing.T) {
	w, _, kv := held(t, Options{})
	n := startNode(t, nodeOptions{})
	q := tilert.Request{RID: "other", SeqLen: 5}
	n.Admit(&q)
	began := time.Now()
	err := kv.Send(soon(t), n.target())
	assert.Equal(t, Busy, reason(t, err), err)
	assert.GreaterOrEqual(t, time.Since(began), tilert.AdmissionWindow(tilert.DefaultAttempts))
	assert.Len(t, n.asked(), 1+tilert.DefaultAttempts)
	assert.ErrorContains(t, err, "send "+rid(1)+" to "+n.target().String()+": busy")

	// A shorter wait ends with its context.
	err = kv.Send(within(t, 50*time.Millisecond), n.target())
	assert.Equal(t, Timeout, reason(t, err), err)
	assert.Equal(t, []Reason{None, Busy, Timeout}, reasons(w))
}

// TestNodeThatHasItAlready: a node that was busy for somebody else when its decode was asked for, and that the request comes back to.
func TestNodeThatHasItAlready(t *testing.T) {
	w, p, kv := held(t, Options{})
	n := startNode(t, nodeOptions{})
	require.NoError(t, kv.Send(soon(t), n.target()))
	n.took(t, rid(1), p, 100)
	require.NoError(t, kv.Send(soon(t), n.target()))
	assert.Len(t, n.asked(), tilert.DefaultSenders+1, "it was asked once more")
	assert.Empty(t, n.complete)
	assert.Equal(t, Held, kv.s.State())
	assert.Equal(t, []Reason{None, None}, reasons(w), "one in and one out: nothing moved the second time")
}

// A node that has let go of the rid refuses it as long as somebody asks: no waiting helps.
func TestNodeThatHasLetGoOfTheRid(t *testing.T) {
	_, _, kv := held(t, Options{})
	n := startNode(t, nodeOptions{})
	require.NoError(t, kv.Send(soon(t), n.target()))
	n.release(rid(1))
	err := kv.Send(soon(t), n.target())
	assert.Equal(t, Forgotten, reason(t, err), err)
	var e *Error
	require.ErrorAs(t, err, &e)
	assert.False(t, e.Admitted)
	assert.Len(t, n.asked(), tilert.DefaultSenders+1, "it was asked once more")
}

// TestRankThatIsRefused, invariant 5: the others say no done.
func TestRankThatIsRefused(t *testing.T) {
	_, _, kv := held(t, Options{})
	n := startNode(t, nodeOptions{})
	q := tilert.Request{RID: rid(1), Rank: 3, SeqLen: 100}
	_, w := n.Admit(&q)
	n.Done(w)
	n.Leave(w)
	err := kv.Send(soon(t), n.target())
	assert.Equal(t, Refused, reason(t, err), err)
	assert.ErrorContains(t, err, "rank 3: receiver refuses the transfer: duplicate_rank")
	var e *Error
	require.ErrorAs(t, err, &e)
	assert.True(t, e.Admitted)
	n.waitIdle(t)
	assert.Empty(t, n.complete)

	n.release(rid(1))
	n.expect(rid(1))
	require.NoError(t, kv.Send(soon(t), n.target()), "once the node has let go of it")
}

func TestNodeThatCannotBeReached(t *testing.T) {
	_, _, kv := held(t, Options{})
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	to := Target{Host: "127.0.0.1", Port: ln.Addr().(*net.TCPAddr).Port}
	t.Run("silent", func(t *testing.T) {
		err := kv.Send(within(t, 50*time.Millisecond), to)
		assert.Equal(t, Timeout, reason(t, err), err)
	})
	t.Run("given up", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		err := kv.Send(ctx, to)
		assert.Equal(t, Canceled, reason(t, err), err)
	})
	require.NoError(t, ln.Close())
	t.Run("nobody there", func(t *testing.T) {
		err := kv.Send(soon(t), to)
		assert.Equal(t, Unreachable, reason(t, err), err)
	})
	t.Run("hangs up", func(t *testing.T) {
		ln, err := net.Listen("tcp4", "127.0.0.1:0")
		require.NoError(t, err)
		defer ln.Close()
		go func() {
			if c, err := ln.Accept(); err == nil {
				_ = c.Close()
			}
		}()
		err = kv.Send(soon(t), Target{Host: "127.0.0.1", Port: ln.Addr().(*net.TCPAddr).Port})
		assert.Equal(t, Lost, reason(t, err), err)
	})
}

// TestNodeThatStartedAgain works at once, under its old agent name, which containers give, and under another.
func TestNodeThatStartedAgain(t *testing.T) {
	for _, tc := range []struct {
		name  string
		alter func(h *tilert.Hello)
	}{
		{"under its old name", func(h *tilert.Hello) {
			m, err := nixl.ParseMetadata(h.NixlMeta)
			if err != nil {
				panic(err)
			}
			m.Agent = "10.0.0.1:1"
			h.NixlMeta = m.Marshal()
		}},
		{"under another name", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w, p, kv := held(t, Options{})
			first, err := makeNode(library(t), nodeOptions{alter: tc.alter})
			require.NoError(t, err)
			require.NoError(t, kv.Send(soon(t), first.target()))
			first.took(t, rid(1), p, 100)
			to := first.target()
			require.NoError(t, first.close())

			again := startNode(t, nodeOptions{alter: tc.alter, port: to.Port})
			require.NoError(t, kv.Send(soon(t), to))
			again.took(t, rid(1), p, 100)
			assert.Len(t, kv.s.end.peers, 1)
			kv.Release()
			w.free(t, kv.s)
		})
	}
}

// TestBytesThatChangeAreNotPassedOn, invariant 5.
func TestBytesThatChangeAreNotPassedOn(t *testing.T) {
	for _, tc := range []struct {
		name   string
		verify float64
		at     func(kv *KV) int // in the slot's memory
		fails  bool
	}{
		{"the first byte", 1, func(*KV) int { return 0 }, true},
		{"the last of the last layer", 1, func(kv *KV) int {
			return int(tiny.Address(tiny.Region(kv.s.room, 0), tilert.KI, 7) + uint64(tiny.RowBytes(tilert.KI, 100)) - 1)
		}, true},
		{"room behind the prompt", 1, func(*KV) int { return 100 * 528 }, false},
		{"the first byte, but nobody looks", 0, func(*KV) int { return 0 }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, kv := held(t, Options{Verify: tc.verify})
			n := startNode(t, nodeOptions{})
			kv.s.mem.Bytes()[tc.at(kv)] ^= 1
			err := kv.Send(soon(t), n.target())
			if !tc.fails {
				require.NoError(t, err)
				return
			}
			assert.Equal(t, Corrupt, reason(t, err))
			n.waitIdle(t)
			assert.Empty(t, n.complete)
		})
	}
}

func TestShareThatIsVerified(t *testing.T) {
	for share, want := range map[float64]int{0: 0, 0.25: 25, 0.5: 50, 1: 100} {
		a := &Arena{o: Options{Verify: share}}
		n := 0
		for range 100 {
			if a.sampled() {
				n++
			}
		}
		assert.Equal(t, want, n, share)
	}
}
