//go:build cgo && linux

package nixl

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// writing starts a write of everything and returns when its bytes are on their way, or may be.
func writing(t *testing.T, from *side, p *Peer, base uint64, limit time.Duration) <-chan error {
	t.Helper()
	ctx := within(t, limit)
	ended := make(chan error, 1)
	go func() { ended <- p.Write(ctx, from.region, []Span{{Len: from.region.Len(), Addr: base}}) }()
	require.Eventually(t, func() bool {
		from.poller.mu.Lock()
		defer from.poller.mu.Unlock()
		from.mu.Lock()
		defer from.mu.Unlock()
		return p.users == 1 && p.posting == 0
	}, 10*time.Second, time.Millisecond, "the poller has it")
	return ended
}

func TestRealPeerDiesInMidTransferAndComesBackUnderItsName(t *testing.T) {
	lib := realLibrary(t)
	o := startOther(t, "phoenix", large)
	from := newSide(t, lib, "prefill", large)
	fill(from.mem.Bytes(), 1)
	p := from.peer(t, o.Blob)
	require.NoError(t, p.Write(soon(t), from.region, []Span{{Len: 4096, Addr: o.Base}}))
	o.stop() // so that the transfer cannot end first
	ended := writing(t, from, p, o.Base, 30*time.Second)
	o.kill()
	err := <-ended
	require.ErrorIs(t, err, ErrPeerLost)
	require.False(t, errors.Is(err, ErrUncertain))
	require.ErrorIs(t, p.Write(soon(t), from.region, []Span{{Len: 1, Addr: o.Base}}), ErrPeerLost, "the generation is over")

	again := startOther(t, "phoenix", large)
	require.NotEqual(t, o.Blob, again.Blob)
	p2 := from.peer(t, again.Blob)
	require.NoError(t, p2.Write(soon(t), from.region, []Span{{Len: large, Addr: again.Base}}))
	again.holds(from.mem.Bytes())
	again.end()
}

// The name is known, nothing has failed yet, and the metadata is new: what the library answers with NOT_ALLOWED.
func TestRealPeerStartsAgainUnnoticed(t *testing.T) {
	lib := realLibrary(t)
	from := newSide(t, lib, "prefill", 1<<20)
	fill(from.mem.Bytes(), 1)
	var before *Peer
	for range 3 {
		o := startOther(t, "container-1", 1<<20)
		p := from.peer(t, o.Blob)
		require.NotSame(t, before, p)
		require.NoError(t, p.Write(soon(t), from.region, []Span{{Len: 1 << 20, Addr: o.Base}}))
		o.holds(from.mem.Bytes())
		if before != nil {
			require.ErrorIs(t, before.Write(soon(t), from.region, []Span{{Len: 1, Addr: o.Base}}), ErrPeerLost)
		}
		before = p
		o.kill()
	}
}

// A generation that this package does not know is in the library already.
func TestRealLoadIsTriedAgainAfterForgetting(t *testing.T) {
	lib := realLibrary(t)
	from := newSide(t, lib, "prefill", 1<<20)
	first := startOther(t, "container-1", 1<<20)
	require.NoError(t, from.drv.load(from.h, first.Blob, "container-1"))
	first.kill()
	second := startOther(t, "container-1", 1<<20)
	require.Error(t, from.drv.load(from.h, second.Blob, "container-1"), "not allowed")
	p := from.peer(t, second.Blob)
	require.NoError(t, p.Write(soon(t), from.region, []Span{{Len: 1 << 20, Addr: second.Base}}))
}

// Invariants 3 and 4.
func TestRealHungPeerIsUncertainUntilItGoesOn(t *testing.T) {
	lib := realLibrary(t)
	o := startOther(t, "sleeper", large)
	from := newSide(t, lib, "prefill", large)
	fill(from.mem.Bytes(), 1)
	p := from.peer(t, o.Blob)
	require.NoError(t, p.Write(soon(t), from.region, []Span{{Len: 4096, Addr: o.Base}}))
	o.stop()
	err := <-writing(t, from, p, o.Base, 300*time.Millisecond)
	uncertain := new(UncertainError)
	require.ErrorAs(t, err, &uncertain)
	require.ErrorIs(t, err, ErrUncertain)
	select {
	case <-uncertain.Settled:
		t.Fatal("nobody has read the bytes yet")
	default:
	}
	require.ErrorIs(t, from.region.Close(), ErrBusy)
	require.ErrorIs(t, from.mem.Close(), ErrBusy)
	o.resume()
	select {
	case <-uncertain.Settled:
	case <-time.After(30 * time.Second):
		t.Fatal("the transfer did not end")
	}
	o.holds(from.mem.Bytes())
	require.NoError(t, from.region.Close())
	require.NoError(t, from.mem.Close())
	o.end()
}

func TestRealCloseEndsAWriteToAHungPeer(t *testing.T) {
	lib := realLibrary(t)
	o := startOther(t, "sleeper", large)
	from := newSide(t, lib, "prefill", large)
	p := from.peer(t, o.Blob)
	require.NoError(t, p.Write(soon(t), from.region, []Span{{Len: 4096, Addr: o.Base}}))
	o.stop()
	ended := writing(t, from, p, o.Base, 30*time.Second)
	require.NoError(t, from.Close())
	require.ErrorIs(t, <-ended, ErrClosed)
	require.NoError(t, from.mem.Close(), "nothing reads it any more")
	o.resume()
	o.end()
}

func TestRealANewGenerationDoesNotWaitForAHungOne(t *testing.T) {
	lib := realLibrary(t)
	from := newSide(t, lib, "prefill", large)
	fill(from.mem.Bytes(), 1)
	hung := startOther(t, "container-1", large)
	p := from.peer(t, hung.Blob)
	require.NoError(t, p.Write(soon(t), from.region, []Span{{Len: 4096, Addr: hung.Base}}))
	hung.stop()
	ended := writing(t, from, p, hung.Base, 3*time.Second)
	o := startOther(t, "container-1", large)
	p2 := from.peer(t, o.Blob)
	require.NoError(t, p2.Write(soon(t), from.region, []Span{{Len: large, Addr: o.Base}}))
	o.holds(from.mem.Bytes())
	require.ErrorIs(t, <-ended, ErrUncertain, "its end cannot be learnt any more")
	require.ErrorIs(t, from.region.Close(), ErrBusy)
}

// Closing the receiver's agent is how its memory becomes safe from a writer that does not end.
func TestRealNothingLandsAfterTheReceiverClosed(t *testing.T) {
	lib := realLibrary(t)
	to, from := newSide(t, lib, "decode", large), newSide(t, lib, "prefill", large)
	fill(from.mem.Bytes(), 1)
	p := from.peer(t, to.metadata(t))
	ended := make(chan error, 1)
	ctx := within(t, 30*time.Second)
	go func() {
		for { // one of them is cut
			if err := p.Write(ctx, from.region, []Span{{Len: large, Addr: to.region.Addr()}}); err != nil {
				ended <- err
				return
			}
		}
	}()
	require.Eventually(t, func() bool {
		return to.mem.Bytes()[0] == from.mem.Bytes()[0] && to.mem.Bytes()[4096] == from.mem.Bytes()[4096]
	},
		10*time.Second, time.Millisecond, "the first bytes are there")
	require.NoError(t, to.Close())
	clear(to.mem.Bytes())
	require.ErrorIs(t, <-ended, ErrPeerLost)
	require.True(t, bytes.Equal(make([]byte, large), to.mem.Bytes()), "bytes landed after the close")
}
