package queue

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestPlaceCountsThoseBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{})
		s := q.Add("a", 3)
		first := join(q, Want{Bound: long})
		var tickets []Ticket
		var calls []*call
		for i := range 4 {
			want := Want{Bound: long, Needs: Traits(i % 2)} // two lanes
			want.Joined = func(ticket Ticket) { tickets = append(tickets, ticket) }
			calls = append(calls, join(q, want))
		}
		require.Len(t, tickets, 4)
		for i, ticket := range tickets {
			require.Equal(t, i, q.Place(ticket, 100))
		}
		require.Equal(t, 2, q.Place(tickets[3], 2), "it stops at the limit")
		first.lease.Release()
		calls[0].wantSlot(t, s)
		require.Equal(t, 0, q.Place(tickets[1], 100))
		for _, c := range calls[1:] {
			c.gone()
		}
		calls[0].lease.Release()
		synctest.Wait()
	})
}

func TestWhoDoesNotWaitDoesNotJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{})
		q.Add("a", 0)
		c := join(q, Want{Joined: func(Ticket) { t.Error("joined") }})
		c.lease.Release()
	})
}
