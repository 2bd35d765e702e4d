package staging

import (
	"context"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pd-router/internal/nixl"
	"pd-router/internal/tilert"
)

// big is an arena with one slot for transfers that can be met in the middle.
func big(t *testing.T) (*Arena, *watch, *Slot) {
	a, w := openArena(t, Options{Senders: 1, Sizes: []Size{{1, large}}, MaxSeqLen: large})
	return a, w, a.Slots()[0]
}

// goes sends a request of some tokens through the slot and on to a fresh node.
func goes(t *testing.T, s *Slot, w *watch, id string) {
	t.Helper()
	p, n := newPrefill(t, tiny, 300, s.a.o.Senders), startNode(t, nodeOptions{room: 300})
	kv := received(t, s, p, tilert.Request{RID: id, SeqLen: 200})
	require.NoError(t, kv.Send(soon(t), n.target()))
	n.took(t, id, p, 200)
	kv.Release()
	w.free(t, s)
}

// TestSenderThatDiesInTheMiddle, invariants 2 and 3.
func TestSenderThatDiesInTheMiddle(t *testing.T) {
	_, w, s := big(t)
	kv := expect(t, s, rid(66))
	c := startChild(t, "prefill "+strconv.Itoa(s.CtrlPort()))
	require.Equal(t, "in", c.line(t))
	c.signal(t, syscall.SIGKILL)
	err := kv.Receive(soon(t), rid(66))
	require.Equal(t, Lost, reason(t, err))
	assert.ErrorContains(t, err, "rank 0 of "+rid(66)+" left before it was done")
	before := s.end
	kv.Release()
	w.free(t, s)
	assert.NotSame(t, before, s.end, "whether its writes have ended is not known: only a new agent makes it so")
	goes(t, s, w, rid(1))
}

// TestSenderThatHangs, invariants 3 and 7: what it writes when it wakes up goes nowhere.
func TestSenderThatHangs(t *testing.T) {
	_, w, s := big(t)
	kv := expect(t, s, rid(66))
	c := startChild(t, "prefill "+strconv.Itoa(s.CtrlPort()))
	require.Equal(t, "in", c.line(t))
	require.NoError(t, c.stop())
	err := kv.Receive(within(t, 50*time.Millisecond), rid(66))
	require.Equal(t, Timeout, reason(t, err))
	assert.ErrorContains(t, err, "of 1 ranks [] have not come and [0] are not done")
	kv.Release()
	assert.Equal(t, Quarantined, s.State())
	_, err = s.Expect(rid(1))
	require.ErrorIs(t, err, ErrNotFree)
	w.free(t, s)

	p := newPrefill(t, tiny, large, 1)
	kv = received(t, s, p, tilert.Request{RID: rid(1), SeqLen: large})
	sum := kv.checksum()
	c.signal(t, syscall.SIGCONT)
	require.Contains(t, c.line(t), "out:", "its agent is told that the peer is gone")
	assert.Equal(t, sum, kv.checksum())
	n := startNode(t, nodeOptions{room: large})
	require.NoError(t, kv.Send(soon(t), n.target()))
	n.took(t, rid(1), p, large)
}

// hungNode is a node in a process that the slot has sent to once, and that stops just when it has let in all ranks of the next request, whose
// KV is returned. The channel says that it has stopped.
func hungNode(t *testing.T, s *Slot, w *watch) (*process, *gate, *KV, *prefill, <-chan error) {
	c := startChild(t, "node")
	port, err := strconv.Atoi(c.line(t))
	require.NoError(t, err)
	stopped := make(chan error, 1)
	g := newGate(t, port, 2*8, func() { stopped <- c.stop() })

	p := newPrefill(t, tiny, large, 1)
	kv := received(t, s, p, tilert.Request{RID: rid(8), SeqLen: 100})
	require.NoError(t, kv.Send(soon(t), g.target()))
	require.Equal(t, rid(8), c.line(t))
	kv.Release()
	w.free(t, s)
	return c, g, received(t, s, p, tilert.Request{RID: rid(1), SeqLen: large}), p, stopped
}

// TestNodeThatDiesInTheMiddle: the KV is still good for another node.
func TestNodeThatDiesInTheMiddle(t *testing.T) {
	_, w, s := big(t)
	c, g, kv, p, stopped := hungNode(t, s, w)
	sent := make(chan error, 1)
	go func() { sent <- kv.Send(soon(t), g.target()) }()
	require.NoError(t, <-stopped)
	c.signal(t, syscall.SIGKILL)
	err := <-sent
	require.Equal(t, Lost, reason(t, err), err)

	n := startNode(t, nodeOptions{room: large})
	require.NoError(t, kv.Send(soon(t), n.target()))
	n.took(t, rid(1), p, large)
	before := s.end
	kv.Release()
	w.free(t, s)
	assert.Same(t, before, s.end, "that write has ended")
}

// after is a context that ends some time after the node has stopped: the write to it has begun by then, and never ends.
func after(t *testing.T, stopped <-chan error) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() {
		assert.NoError(t, <-stopped)
		time.AfterFunc(time.Second, cancel)
	}()
	return ctx
}

// TestNodeThatHangs, invariants 3, 4 and 7.
func TestNodeThatHangs(t *testing.T) {
	_, w, s := big(t)
	c, g, kv, p, _ := hungNode(t, s, w)
	err := kv.Send(within(t, 3*time.Second), g.target())
	require.Equal(t, Timeout, reason(t, err), err)
	require.ErrorIs(t, err, nixl.ErrUncertain)
	var e *Error
	require.ErrorAs(t, err, &e)
	assert.True(t, e.Admitted)
	assert.Equal(t, 8, g.open(), "the node must see live writers as long as it may be written to")

	// The KV is good, and goes to another node while that write is still open.
	n := startNode(t, nodeOptions{room: large})
	require.NoError(t, kv.Send(soon(t), n.target()))
	n.took(t, rid(1), p, large)

	before := s.end
	kv.Release()
	assert.Equal(t, Quarantined, s.State())
	w.free(t, s)
	assert.NotSame(t, before, s.end)
	assert.Eventually(t, func() bool { return g.open() == 0 }, 10*time.Second, time.Millisecond)
	c.signal(t, syscall.SIGCONT)
	goes(t, s, w, rid(2))
}

// TestNodeThatHangsForAMoment: a write that ends after all leaves the agent as it is.
func TestNodeThatHangsForAMoment(t *testing.T) {
	_, w, s := big(t)
	s.grace = time.Minute
	c, g, kv, _, stopped := hungNode(t, s, w)
	require.ErrorIs(t, kv.Send(after(t, stopped), g.target()), nixl.ErrUncertain)
	before := s.end
	kv.Release()
	c.signal(t, syscall.SIGCONT)
	w.free(t, s)
	assert.Same(t, before, s.end)
	require.NoError(t, c.in.Close())
	rest := make([]byte, 1<<10)
	n, _ := c.out.Read(rest)
	assert.Empty(t, strings.TrimSpace(string(rest[:n])), "nobody told the node that it was done")
}
