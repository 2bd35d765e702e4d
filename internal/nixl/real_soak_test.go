//go:build cgo && linux

package nixl

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// resident is the memory of this process in bytes.
func resident(t *testing.T) (bytes int) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	require.NoError(t, err)
	var pages int
	_, err = fmt.Sscan(string(text), new(int), &pages)
	require.NoError(t, err)
	return pages * os.Getpagesize()
}

func threads(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	return len(all)
}

// soakVariable says how many agents come and go, instead of a few.
const soakVariable = "PD_ROUTER_NIXL_SOAK"

func TestRealAgentsComeAndGo(t *testing.T) {
	lib := realLibrary(t)
	count := 20
	if n, err := strconv.Atoi(os.Getenv(soakVariable)); err == nil {
		count = n
	}
	for _, tc := range []struct {
		name  string
		count int
		cycle func(t *testing.T)
	}{
		{"alone", count, func(t *testing.T) { newSide(t, lib, "agent", 1<<20).metadata(t) }},
		{"with a write between two", count / 5, func(t *testing.T) {
			to, from := newSide(t, lib, "decode", 1<<20), newSide(t, lib, "prefill", 1<<20)
			p := from.peer(t, to.metadata(t))
			require.NoError(t, p.Write(soon(t), from.region, []Span{{Len: 1 << 20, Addr: to.region.Addr()}}))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cycles := func(n int) (bytes, tasks int) {
				for range n {
					t.Run("", tc.cycle)
				}
				debug.FreeOSMemory()
				return resident(t), threads(t)
			}
			bytes, tasks := cycles(10 + tc.count/10) // the pools of the library fill up
			moreBytes, moreTasks := cycles(tc.count)
			t.Logf("%d cycles: %d to %d KB, %d to %d threads", tc.count, bytes>>10, moreBytes>>10, tasks, moreTasks)
			require.Less(t, moreBytes-bytes, 8<<20, "memory")
			require.Less(t, moreTasks-tasks, 4, "threads: Go itself may start one or two")
		})
	}
}

// Invariant 6, with the library's own threads.
func TestRealIdleAgentsTakeNoCPU(t *testing.T) {
	lib := realLibrary(t)
	to, from := newSide(t, lib, "decode", 1<<20), newSide(t, lib, "prefill", 1<<20)
	p := from.peer(t, to.metadata(t))
	require.NoError(t, p.Write(soon(t), from.region, []Span{{Len: 1 << 20, Addr: to.region.Addr()}}))
	used := func() time.Duration {
		var u unix.Rusage
		require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	time.Sleep(2 * time.Second)
	t.Log("CPU in 2 s:", used()-before)
	require.Less(t, used()-before, 100*time.Millisecond)
}
