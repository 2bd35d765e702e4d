package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStatsTellOneMoment(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, q *Queue) {
		require.Equal(t, Stats{Rows: []SlotRow{}}, q.Stats())
		q.Add("a", 0)
		q.Add("b", 0)
		q.Add("c", 0)
		q.Add("d", 0).Down()
		take(t, q)
		take(t, q).Settle()
		join(q, Want{Bound: long, Needs: 1, Bytes: 5})
		time.Sleep(time.Second)
		join(q, Want{Bound: long, Needs: 2, Bytes: 6})
		time.Sleep(time.Second)
		require.Equal(t, Stats{
			Waiting: 2, Bytes: 11, Oldest: 2 * time.Second,
			Slots: [NumStates]int{Free: 1, Busy: 1, Settling: 1, Down: 1},
			Rows:  []SlotRow{{"a", Busy, false}, {"b", Settling, false}, {"c", Free, false}, {"d", Down, true}},
		}, q.Stats())
	})
}

// One who comes again stands in front by its ticket, but has not waited longest.
func TestOldestIsTheLongestWait(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, q *Queue) {
		q.Add("a", 0)
		first := take(t, q)
		join(q, Want{Bound: long})
		time.Sleep(time.Minute)
		join(q, Want{Bound: long, Ticket: first.Ticket()})
		time.Sleep(time.Second)
		require.Equal(t, time.Minute+time.Second, q.Stats().Oldest)
		require.Equal(t, first.Ticket(), q.Waiters(1)[0].Ticket)
	})
}

func TestAWaitInAnotherLineCounts(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, q *Queue) {
		q.Add("a", 0)
		first := take(t, q)
		time.Sleep(time.Minute)
		join(q, Want{Bound: long})
		join(q, Want{Bound: time.Second, Ticket: first.Ticket(), Waited: time.Minute})
		require.Equal(t, time.Minute, q.Stats().Oldest)
		require.Equal(t, time.Now().Add(-time.Minute), q.Waiters(1)[0].Since)
		time.Sleep(999 * time.Millisecond)
		require.Equal(t, 2, q.Stats().Waiting, "the bound is of this wait alone")
	})
}

func TestWaitersAreListedInOrder(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, q *Queue) {
		q.Add("a", 0)
		first := take(t, q)
		start := time.Now()
		var want []WaiterRow
		for i := range 6 {
			w := Want{Bound: long, Needs: Traits(1 + i%3), Bytes: int64(i)}
			join(q, w)
			since := start.Add(time.Duration(i) * time.Second)
			want = append(want, WaiterRow{Ticket: Ticket{since.Sub(start), uint64(2 + i)}, Since: since, Bytes: w.Bytes, Needs: w.Needs})
			time.Sleep(time.Second)
		}
		require.Equal(t, want, q.Waiters(100))
		require.Equal(t, want[:4], q.Waiters(4))
		require.Empty(t, q.Waiters(0))
		require.Empty(t, q.Waiters(-1))
		join(q, Want{Bound: long, Ticket: first.Ticket()})
		require.Equal(t, first.Ticket(), q.Waiters(2)[0].Ticket)
		require.Equal(t, want[0], q.Waiters(2)[1])
	})
}
