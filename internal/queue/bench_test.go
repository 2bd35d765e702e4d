package queue

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// crowd puts n waiters into the line of q, each of which releases at once what it gets. The returned function
// ends them all.
func crowd(q *Queue, n int, want Want) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if l, err := q.Acquire(ctx, want); err == nil {
				l.Release()
			}
		})
	}
	for q.Stats().Waiting < n {
		runtime.Gosched()
	}
	return func() { cancel(); wg.Wait() }
}

// BenchmarkUncontended is Acquire and Release of a free slot.
func BenchmarkUncontended(b *testing.B) {
	q := New(Options{Observe: func(Outcome, time.Duration) {}})
	q.Add("a", 0)
	b.ReportAllocs()
	for b.Loop() {
		l, err := q.Acquire(context.Background(), Want{})
		if err != nil {
			b.Fatal(err)
		}
		l.Release()
	}
}

// BenchmarkHandOff passes one slot from waiter to waiter, each of which comes again: the cost of one wait in a line
// that never is empty, with both goroutine switches.
func BenchmarkHandOff(b *testing.B) {
	for _, waiters := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("waiters=%d", waiters), func(b *testing.B) {
			q := New(Options{})
			q.Add("a", 0)
			first, _ := q.Acquire(context.Background(), Want{})
			var wg sync.WaitGroup
			left := b.N // the slot is the guard
			for range waiters + 1 {
				wg.Go(func() {
					for done := false; !done; {
						l, err := q.Acquire(context.Background(), Want{Bound: long})
						if err != nil {
							b.Error(err)
							return
						}
						left--
						done = left <= 0
						l.Release()
					}
				})
			}
			for q.Stats().Waiting < waiters+1 {
				runtime.Gosched()
			}
			b.ReportAllocs()
			b.ResetTimer()
			first.Release()
			wg.Wait()
		})
	}
}

// BenchmarkGrant is the search under the mutex for the oldest waiter that a slot fits, its way out of the line, and the
// way in of the next.
func BenchmarkGrant(b *testing.B) {
	for _, masks := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("masks=%d", masks), func(b *testing.B) {
			q := New(Options{})
			s := q.Add("a", Traits(masks-1)) // fits all
			for i := range 100 * masks {
				q.line.join(&waiter{ticket: q.ticketLocked(Want{}, time.Now())}, class{needs: Traits(i % masks)})
			}
			start := time.Now()
			b.ReportAllocs()
			for b.Loop() {
				w := q.line.oldest(s)
				c := w.lane.class
				q.line.remove(w)
				w.ticket = q.ticketLocked(Want{}, start)
				q.line.join(w, c)
			}
		})
	}
}

// BenchmarkCancel takes a waiter from a random place of a line of 10,000 and puts another at its end.
func BenchmarkCancel(b *testing.B) {
	q := New(Options{})
	line := make([]*waiter, 10_000)
	for i := range line {
		_, line[i], _ = q.enter(Want{Bound: long}, time.Now())
	}
	start := time.Now()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		w := line[i*7919%len(line)]
		q.leave(w)
		q.mu.Lock()
		w.ticket = q.ticketLocked(Want{}, start)
		q.line.join(w, class{})
		q.mu.Unlock()
	}
}

// BenchmarkMemory reports the heap that a waiter costs: with all that Go needs to park its goroutine on three
// channels, and what is left without. Stacks are not heap.
func BenchmarkMemory(b *testing.B) {
	const n = 10_000
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // drops what the first one left in pools
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	parked := func() float64 {
		a, c, stop := make(chan int), make(chan int), make(chan struct{}) // stop is closed below
		var wg sync.WaitGroup
		var up atomic.Int32
		before := heap()
		for range n {
			wg.Go(func() {
				up.Add(1)
				select {
				case <-a:
				case <-c:
				case <-stop:
				}
			})
		}
		for up.Load() < n {
			runtime.Gosched()
		}
		after := heap()
		close(stop)
		wg.Wait()
		return (after - before) / n
	}
	waiting := func() float64 {
		q := New(Options{})
		before := heap()
		stop := crowd(q, n, Want{Bound: long})
		after := heap()
		stop()
		return (after - before) / n
	}
	waiting() // makes the goroutines, which Go keeps
	for b.Loop() {
		all := waiting()
		b.ReportMetric(all, "B/waiter")
		b.ReportMetric(all-parked(), "B/waiter-unparked")
	}
}
