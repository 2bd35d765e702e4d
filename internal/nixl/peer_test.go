package nixl

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAddPeerIsOnceForTheSameMetadata(t *testing.T) {
	bubble(t, func(t *testing.T, d *fakeDriver, s *side) {
		p := s.peer(t, fakeBlob("peer", 1))
		require.Same(t, p, s.peer(t, fakeBlob("peer", 1)))
		require.Equal(t, 1, d.count("load"))
		require.NotSame(t, p, s.peer(t, fakeBlob("other", 1)))
	})
}

// Invariant 7. UCX ends the process over an address of an unknown format.
func TestAddPeerRefusesWhatTheLibraryMustNotSee(t *testing.T) {
	bubble(t, func(t *testing.T, d *fakeDriver, s *side) {
		for name, edit := range map[string]func(m *Metadata){
			"its own metadata":       func(m *Metadata) { m.Agent = s.Name() },
			"no connection":          func(m *Metadata) { m.Conns = nil },
			"another backend":        func(m *Metadata) { m.Conns[0].Backend = "GDS" },
			"an empty UCX address":   func(m *Metadata) { m.Conns[0].Info = nil },
			"an unknown UCX address": func(m *Metadata) { m.Conns[0].Info = []byte{0x22, 1} },
		} {
			m, err := ParseMetadata(fakeBlob("peer", 1))
			require.NoError(t, err)
			edit(m)
			_, err = s.AddPeer(soon(t), m.Marshal())
			require.ErrorIs(t, err, ErrMetadata, name)
		}
		_, err := s.AddPeer(soon(t), []byte("damaged"))
		require.ErrorIs(t, err, ErrMetadata)
		require.Zero(t, d.count("load"))
	})
}

func TestAddPeerReplacesAGeneration(t *testing.T) {
	bubble(t, func(t *testing.T, d *fakeDriver, s *side) {
		old := s.peer(t, fakeBlob("peer", 1))
		p := s.peer(t, fakeBlob("peer", 2))
		require.NotSame(t, old, p)
		require.Equal(t, 1, d.count("invalidate"))
		require.ErrorIs(t, old.Write(soon(t), s.region, little), ErrPeerLost)
		require.NoError(t, old.Close())
		require.Equal(t, 1, d.count("invalidate"), "the old one's Close does not touch the new one")
		d.begin = func(string, int) Code { return Success }
		require.NoError(t, p.Write(soon(t), s.region, little))
	})
}

func TestAddPeerWaitsAMomentForTheOldOnesWrites(t *testing.T) {
	bubble(t, func(t *testing.T, d *fakeDriver, s *side) {
		old := s.peer(t, fakeBlob("peer", 1))
		ended := background(old, s.region, time.Hour, big)
		go func() {
			time.Sleep(replaceGrace / 2)
			d.finish("peer", Success)
		}()
		began := time.Now()
		s.peer(t, fakeBlob("peer", 2))
		require.NoError(t, <-ended)
		require.Less(t, time.Since(began), replaceGrace)
	})
}

// Invariant 2: the fake complains if a request of the old generation is looked at.
func TestAddPeerLeavesWritesThatDoNotEnd(t *testing.T) {
	bubble(t, func(t *testing.T, d *fakeDriver, s *side) {
		old := s.peer(t, fakeBlob("peer", 1))
		ended := background(old, s.region, time.Minute, big)
		began := time.Now()
		p := s.peer(t, fakeBlob("peer", 2))
		require.Equal(t, replaceGrace, time.Since(began).Truncate(time.Millisecond))
		d.begin = func(string, int) Code { return Success }
		require.NoError(t, p.Write(soon(t), s.region, big))
		d.finish("peer", Success) // too late to be learnt
		require.ErrorIs(t, <-ended, ErrUncertain)
		require.ErrorIs(t, s.region.Close(), ErrBusy)
		time.Sleep(time.Hour)
		require.Len(t, d.reqs, 1)
		require.NoError(t, s.Close())
		require.Empty(t, d.reqs)
	})
}

func TestAddPeerAfterALoss(t *testing.T) {
	bubble(t, func(t *testing.T, d *fakeDriver, s *side) {
		p := s.peer(t, fakeBlob("peer", 1))
		a, b := background(p, s.region, time.Hour, big), background(p, s.region, time.Hour, big)
		time.Sleep(time.Second)
		d.mu.Lock()
		for _, r := range d.reqs { // one of the two
			r.status = Backend
			break
		}
		d.mu.Unlock()
		var first error
		var rest <-chan error
		select {
		case first = <-a:
			rest = b
		case first = <-b:
			rest = a
		}
		require.ErrorIs(t, first, ErrPeerLost)
		time.Sleep(time.Second)
		require.Empty(t, rest, "the other one has its own end")
		d.finish("peer", Success)
		require.NoError(t, <-rest)
		again := s.peer(t, fakeBlob("peer", 1))
		require.NotSame(t, p, again, "the same metadata, loaded anew")
		require.Equal(t, []int{2, 1}, []int{d.count("load"), d.count("invalidate")})
	})
}

func TestLoadIsTriedOnceMoreAfterForgetting(t *testing.T) {
	bubble(t, func(t *testing.T, d *fakeDriver, s *side) {
		d.refuse["load"] = NotAllowed
		s.peer(t, fakeBlob("peer", 1))
		require.Equal(t, []int{2, 1}, []int{d.count("load"), d.count("invalidate")})
	})
	bubble(t, func(t *testing.T, d *fakeDriver, s *side) {
		d.loaded["peer"] = fakeBlob("peer", 9) // and a second refusal is final
		d.refuse["invalidate"] = Backend
		_, err := s.AddPeer(soon(t), fakeBlob("peer", 1))
		require.ErrorIs(t, err, ErrRefused)
		require.ErrorIs(t, err, NotAllowed)
		require.Empty(t, s.peers)
	})
}

func TestPeerCloseLetsWritesEnd(t *testing.T) {
	bubble(t, func(t *testing.T, d *fakeDriver, s *side) {
		p := s.peer(t, fakeBlob("peer", 1))
		ended := background(p, s.region, time.Hour, big)
		require.NoError(t, p.Close())
		require.Zero(t, d.count("invalidate"), "not under a write")
		require.ErrorIs(t, p.Write(soon(t), s.region, big), ErrClosed)
		d.finish("peer", Success)
		require.NoError(t, <-ended)
		s.peer(t, fakeBlob("other", 1)) // the next change clears up
		require.Equal(t, 1, d.count("invalidate"))
		require.Len(t, s.peers, 1)
	})
}

func TestPeersOfManyGenerationsDoNotPileUp(t *testing.T) {
	bubble(t, func(t *testing.T, d *fakeDriver, s *side) {
		d.begin = func(string, int) Code { return Backend }
		for i := range byte(100) {
			p := s.peer(t, fakeBlob(fmt.Sprint("pod-", i), i)) // a new name each time, and lost each time
			require.ErrorIs(t, p.Write(soon(t), s.region, little), ErrPeerLost)
		}
		synctest.Wait()
		require.Len(t, s.peers, 1)
		require.Len(t, d.loaded, 1)
	})
}

func TestSpansFindTheirPiece(t *testing.T) {
	k := kind{VRAM, []Desc{{Addr: 100, Len: 50, Dev: 1}, {Addr: 150, Len: 50, Dev: 2}, {Addr: 100, Len: 100, Dev: 3}}}
	for _, tc := range []struct {
		addr, n uint64
		dev     int // -1: nowhere
	}{
		{100, 50, 1}, {149, 1, 1}, {150, 50, 2}, {149, 2, 3}, {100, 100, 3}, {99, 1, -1}, {199, 2, -1}, {100, 101, -1}, {200, 0, 2}, {^uint64(0), 2, -1},
	} {
		list := []span{{remote: tc.addr, len: tc.n}}
		if bad := k.place(list); tc.dev < 0 {
			require.Equal(t, 0, bad, "%v", tc)
		} else {
			require.Equal(t, -1, bad, "%v", tc)
			require.Equal(t, uint64(tc.dev), list[0].dev, "%v", tc)
		}
	}
}
