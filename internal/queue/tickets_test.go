package queue

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A request that goes from one line to another keeps its age there, whoever comes to the second one first.
func TestTicketsOfTwoLinesAreOneOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		both := NewTickets()
		first, second := New(Options{Tickets: both}), New(Options{Tickets: both})
		var leases []*Lease
		for range 3 {
			first.Add("room", 0)
			l, err := first.Acquire(context.Background(), Want{})
			require.NoError(t, err)
			leases = append(leases, l)
		}
		busy := second.Add("slot", 0)
		holder, err := second.Acquire(context.Background(), Want{})
		require.NoError(t, err)
		served := make(chan int, len(leases))
		for _, i := range []int{2, 0, 1} {
			go func() {
				l, err := second.Acquire(context.Background(), Want{Bound: time.Minute, Ticket: leases[i].Ticket()})
				if err == nil {
					served <- i
					l.Release()
				}
			}()
			synctest.Wait()
		}
		require.Equal(t, busy, holder.Slot())
		holder.Release()
		for i := range leases {
			require.Equal(t, i, <-served)
		}
	})
}
