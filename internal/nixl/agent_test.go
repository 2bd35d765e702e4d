package nixl

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// bubble runs a test in fake time with an agent over a fake library and one region.
func bubble(t *testing.T, f func(t *testing.T, d *fakeDriver, s *side)) {
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDriver(t)
		a, err := (&Library{drv: d}).NewAgentNamed(t.Context(), "self")
		require.NoError(t, err)
		f(t, d, withMemory(t, a, 1<<20))
	})
}

// big is a write that goes to a goroutine of its own, little one that does not.
var (
	big    = []Span{{Len: 1 << 20, Addr: fakeBase}}
	little = []Span{{Len: 1, Addr: fakeBase}}
)

// background starts a write with the limit and returns where its error will be.
func background(p *Peer, r *Region, limit time.Duration, spans []Span) <-chan error {
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		ended <- p.Write(ctx, r, spans)
	}()
	synctest.Wait()
	return ended
}

func TestWriteNeedsADeadline(t *testing.T) {
	bubble(t, func(t *testing.T, d *fakeDriver, s *side) {
		p := s.peer(t, fakeBlob("peer", 1))
		require.ErrorContains(t, p.Write(context.Background(), s.region, little), "deadline")
		require.Zero(t, d.count("start"))
	})
}

func TestWriteWithAnEndedContextSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, d *fakeDriver, s *side) {
		p := s.peer(t, fakeBlob("peer", 1))
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		cancel()
		for range 100 {
			err := p.Write(ctx, s.region, little)
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, ErrUncertain)
		}
		require.Zero(t, d.count("start"))
	})
}

func TestWriteEndsWithItsStatus(t *testing.T) {
	for _, tc := range []struct {
		name  string
		code  Code
		wants error
	}{
		{"success", Success, nil},
		{"backend error", Backend, ErrPeerLost},
		{"disconnect", RemoteDisconnect, ErrPeerLost},
	} {
		for _, spans := range [][]Span{little, big} {
			t.Run(tc.name, func(t *testing.T) {
				bubble(t, func(t *testing.T, d *fakeDriver, s *side) {
					p := s.peer(t, fakeBlob("peer", 1))
					ended := background(p, s.region, time.Hour, spans)
					time.Sleep(time.Second) // long past the eager phases
					d.finish("peer", tc.code)
					err := <-ended
					require.ErrorIs(t, err, tc.wants)
					if tc.wants != nil {
						require.ErrorIs(t, err, tc.code)
						require.ErrorIs(t, p.Write(soon(t), s.region, little), ErrPeerLost, "the peer has ended with it")
					}
				})
			})
		}
	}
}

func TestPostThatFailsLosesThePeer(t *testing.T) {
	bubble(t, func(t *testing.T, d *fakeDriver, s *side) {
		d.begin = func(string, int) Code { return Backend }
		p := s.peer(t, fakeBlob("peer", 1))
		require.ErrorIs(t, p.Write(soon(t), s.region, big), ErrPeerLost)
	})
}

// Nothing was sent, so the connection is not to blame.
func TestRequestThatIsRefusedKeepsThePeer(t *testing.T) {
	bubble(t, func(t *testing.T, d *fakeDriver, s *side) {
		p := s.peer(t, fakeBlob("peer", 1))
		d.refuse["start"] = Backend
		err := p.Write(soon(t), s.region, big)
		require.ErrorIs(t, err, ErrRefused)
		require.ErrorIs(t, err, Backend)
		d.begin = func(string, int) Code { return Success }
		require.NoError(t, p.Write(soon(t), s.region, big))
	})
}

// Invariants 3 and 4.
func TestAbandonedWriteIsUncertainUntilItEnds(t *testing.T) {
	for _, end := range []Code{Success, Backend} {
		bubble(t, func(t *testing.T, d *fakeDriver, s *side) {
			p := s.peer(t, fakeBlob("peer", 1))
			began := time.Now()
			err := <-background(p, s.region, 10*time.Second, big)
			require.Equal(t, 10*time.Second, time.Since(began).Truncate(time.Millisecond))
			uncertain := new(UncertainError)
			require.ErrorAs(t, err, &uncertain)
			require.ErrorIs(t, err, ErrUncertain)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			select {
			case <-uncertain.Settled:
				t.Fatal("settled while in progress")
			default:
			}
			require.ErrorIs(t, s.region.Close(), ErrBusy)
			require.ErrorIs(t, s.mem.Close(), ErrBusy)
			d.finish("peer", end)
			<-uncertain.Settled
			require.NoError(t, s.region.Close())
			require.NoError(t, s.region.Close(), "twice is fine")
			require.NoError(t, s.mem.Close())
			require.ErrorIs(t, p.Write(soon(t), s.region, big), map[Code]error{Success: ErrClosed, Backend: ErrPeerLost}[end])
		})
	}
}

// Invariant 6.
func TestPollerRests(t *testing.T) {
	bubble(t, func(t *testing.T, d *fakeDriver, s *side) {
		p := s.peer(t, fakeBlob("peer", 1))
		time.Sleep(time.Hour)
		require.Zero(t, d.count("poll"), "without writes")

		ended := background(p, s.region, 10*time.Second, big)
		time.Sleep(5 * time.Second)
		polls := d.count("poll")
		require.Greater(t, polls, 40_000, "while somebody waits, about each 100 microseconds")
		require.Less(t, polls, 60_000)
		<-ended
		time.Sleep(time.Second)
		polls = d.count("poll")
		time.Sleep(100 * time.Second)
		require.InDelta(t, 5_000, d.count("poll")-polls, 50, "each 20 ms for what nobody waits for")
		d.finish("peer", Success)
		time.Sleep(time.Second)
		polls = d.count("poll")
		time.Sleep(time.Hour)
		require.Equal(t, polls, d.count("poll"), "after the last write")
	})
}

// Invariant 5: the calls of the library that hang, one after the other.
func TestWriteReturnsWhileThePostHangs(t *testing.T) {
	bubble(t, func(t *testing.T, d *fakeDriver, s *side) {
		p := s.peer(t, fakeBlob("peer", 1))
		hang := make(chan struct{})
		d.block["start"] = hang
		require.ErrorIs(t, <-background(p, s.region, time.Second, big), ErrUncertain)
		require.ErrorIs(t, s.region.Close(), ErrBusy)
		_, err := s.AddPeer(soon(t), fakeBlob("peer", 2))
		require.ErrorIs(t, err, ErrBusy, "a generation is not replaced under a running call")
		for range maxPosts - 1 {
			background(p, s.region, time.Hour, big)
		}
		require.ErrorIs(t, <-background(s.peer(t, fakeBlob("other", 1)), s.region, time.Second, big), context.DeadlineExceeded, "no place is left")
		began := time.Now()
		require.ErrorIs(t, s.Close(), ErrUncertain)
		require.Equal(t, closeLimit, time.Since(began))
		require.ErrorIs(t, s.mem.Close(), ErrBusy)
		close(hang)
		require.NoError(t, s.Close(), "it went on when the call came back")
	})
}

func TestChangesReturnWhileTheLibraryHangs(t *testing.T) {
	for _, method := range []string{"load", "register", "localMetadata"} {
		t.Run(method, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *fakeDriver, s *side) {
				change := func(ctx context.Context) error {
					switch method {
					case "load":
						_, err := s.AddPeer(ctx, fakeBlob("peer", 1))
						return err
					case "register":
						_, err := s.Register(ctx, s.mem, 0, 4096)
						return err
					default:
						_, err := s.Metadata(ctx)
						return err
					}
				}
				hang := make(chan struct{})
				d.block[method] = hang
				require.ErrorIs(t, change(within(t, time.Second)), ErrUncertain)
				err := change(within(t, time.Second))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.NotErrorIs(t, err, ErrUncertain, "the second did not begin")
				began := time.Now()
				require.ErrorIs(t, change(context.Background()), errCallLimit, "without a deadline there is one")
				require.Equal(t, callLimit, time.Since(began))
				close(hang)
				require.NoError(t, change(soon(t)), "the call came back")
			})
		})
	}
}

func TestNewAgentThatComesTooLateIsDestroyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDriver(t)
		hang := make(chan struct{})
		d.block["createAgent"] = hang
		_, err := (&Library{drv: d}).NewAgent(within(t, time.Second), "late")
		require.ErrorIs(t, err, ErrUncertain)
		close(hang)
		synctest.Wait()
		require.Empty(t, d.agents)
		require.Equal(t, 1, d.count("destroyAgent"))
	})
}

func TestCloseEndsEverything(t *testing.T) {
	bubble(t, func(t *testing.T, d *fakeDriver, s *side) {
		p := s.peer(t, fakeBlob("peer", 1))
		a, b := background(p, s.region, time.Hour, big), background(p, s.region, time.Hour, little)
		require.ErrorIs(t, <-background(p, s.region, time.Second, big), ErrUncertain)
		require.NoError(t, s.Close())
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-a, ErrClosed)
		require.ErrorIs(t, <-b, ErrClosed)
		require.Empty(t, d.reqs)
		require.Empty(t, d.regs)
		require.NoError(t, s.region.Close())
		require.NoError(t, p.Close())
		require.NoError(t, s.mem.Close(), "the agent let go of it")
		require.ErrorIs(t, p.Write(soon(t), s.region, big), ErrClosed)
		_, err := s.AddPeer(soon(t), fakeBlob("peer", 1))
		require.ErrorIs(t, err, ErrClosed)
	})
}

// The library may still have the memory, so it must not be unmapped, and no writer is told a false end.
func TestCloseThatTheLibraryRefusesKeepsTheMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFakeDriver(t)
		a, err := (&Library{drv: d}).NewAgentNamed(t.Context(), "self")
		require.NoError(t, err)
		mem, err := NewMemory(4096, false)
		require.NoError(t, err)
		_, err = a.Register(t.Context(), mem, 0, 4096)
		require.NoError(t, err)
		d.refuse["destroyAgent"] = Backend
		require.ErrorIs(t, a.Close(), Backend)
		require.ErrorIs(t, mem.Close(), ErrBusy)
	})
}

func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := NewMemory(0, false)
		require.ErrorIs(t, err, ErrRange)
		d := newFakeDriver(t)
		a, err := (&Library{drv: d}).NewAgentNamed(t.Context(), "self")
		require.NoError(t, err)
		defer a.Close()
		mem, err := NewMemory(1<<20, false)
		require.NoError(t, err)
		for _, at := range [][2]int{{-4096, 4096}, {0, 0}, {0, -1}, {1, 4096}, {0, 1<<20 + 1}, {1 << 20, 1}, {4096, 1 << 20}} {
			_, err := a.Register(t.Context(), mem, at[0], at[1])
			require.ErrorIs(t, err, ErrRange, "%v", at)
		}
		d.refuse["register"] = Backend
		_, err = a.Register(t.Context(), mem, 0, 4096)
		require.ErrorIs(t, err, ErrRefused)
		r, err := a.Register(t.Context(), mem, 4096, 4096)
		require.NoError(t, err)
		require.Equal(t, 4096, r.Len())
		require.ErrorIs(t, mem.Close(), ErrBusy)
		require.NoError(t, r.Close())
		require.NoError(t, mem.Close())
		require.NoError(t, mem.Close())
		require.Nil(t, mem.Bytes())
		_, err = a.Register(t.Context(), mem, 0, 4096)
		require.ErrorIs(t, err, ErrClosed)
	})
}

func TestHugeMemory(t *testing.T) {
	_, err := NewHugeMemory(0)
	require.ErrorIs(t, err, ErrRange)
	mem, err := NewHugeMemory(HugePage + 1)
	if err != nil { // none are reserved here
		require.ErrorContains(t, err, "2 huge pages")
		require.ErrorContains(t, err, "vm.nr_hugepages")
		return
	}
	require.Len(t, mem.Bytes(), 2*HugePage)
	mem.Bytes()[HugePage] = 1
	require.NoError(t, mem.Close())
}

func TestErrorsOfTheLibraryHaveNames(t *testing.T) {
	err := error(&CallError{Call: "load_remote_md", Peer: "peer", Code: NotAllowed, Kind: ErrRefused})
	require.EqualError(t, err, "nixl: load_remote_md: peer peer: refused by the library: NOT_ALLOWED (-9)")
	require.ErrorIs(t, err, NotAllowed)
	require.NotErrorIs(t, err, NotFound)
	require.Equal(t, "status -99", Code(-99).Error())
	require.False(t, errors.Is(err, ErrPeerLost))
	for c := Canceled; c <= InProgress; c++ {
		require.Contains(t, codeNames, c)
	}
}

func TestConcurrentCloses(t *testing.T) {
	bubble(t, func(t *testing.T, d *fakeDriver, s *side) {
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { require.NoError(t, s.Close()) })
		}
		wg.Wait()
		require.Equal(t, 1, d.count("destroyAgent"))
	})
}
