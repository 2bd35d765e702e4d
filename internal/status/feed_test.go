package status

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pd-router/internal/queue"
	"pd-router/internal/router"
)

// source counts how often it is looked at.
type source struct {
	looks   atomic.Int64
	waiting int
}

func (s *source) Look(waiters int) router.Look {
	s.looks.Add(1)
	v := busyLook()
	v.At = time.Now()
	if s.waiting > 0 {
		v.Line.Waiting, v.Waiters = s.waiting, make([]queue.WaiterRow, min(waiters, s.waiting))
	}
	return v
}

// reader is a watcher's client.
type reader struct {
	w      *Watcher
	cancel context.CancelCauseFunc
	ended  chan struct{}
	err    error // of Run, to be read after ended

	mu     sync.Mutex
	events []string
	bounds []time.Duration
	block  chan struct{} // when set, writes wait for it
}

func watch(t *testing.T, p *Page, block chan struct{}) *reader {
	t.Helper()
	r := &reader{ended: make(chan struct{}), block: block}
	var err error
	r.w, err = p.Watch(func(d time.Duration) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.bounds = append(r.bounds, d)
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(context.Background())
	r.cancel = cancel
	go func() {
		defer close(r.ended)
		defer r.w.Close()
		r.err = r.w.Run(ctx, func(event []byte) error {
			if r.block != nil {
				<-r.block
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events = append(r.events, string(event))
			return nil
		})
	}()
	return r
}

// kinds are the first letters of the events so far.
func (r *reader) kinds() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, e := range r.events {
		b.WriteByte(e[len("event: ")])
	}
	return b.String()
}

func TestFeedBeginsWithTheWholeAndGoesOnOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(&source{}, About{Version: "1", Settings: []Setting{{"--a", "1", true}}})
		defer p.Close()
		r := watch(t, p, nil)
		time.Sleep(3*period + period/2)
		synctest.Wait()
		assert.Equal(t, "suuu", r.kinds())
		for i, e := range r.events {
			lines := strings.Split(e, "\n")
			require.Len(t, lines, 4, "two lines and an empty one")
			var s Snapshot
			require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(lines[1], "data: ")), &s))
			assert.Equal(t, i == 0, s.Version != "" && len(s.Config) == 1 && len(s.Recent) == 2)
		}
		r.cancel(errors.New("gone"))
		<-r.ended
		assert.EqualError(t, r.err, "gone")
	})
}

// busySource ends a request a second.
type busySource struct{ began time.Time }

func (s busySource) Look(int) router.Look {
	v := router.Look{At: time.Now()}
	for seq := range uint64(time.Since(s.began) / time.Second) {
		v.Finished = append(v.Finished, router.Finished{Seq: seq + 1})
	}
	return v
}

// TestEachRequestComesOnce is invariant 5, also for one who comes while others watch.
func TestEachRequestComesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(busySource{time.Now()}, About{})
		time.Sleep(2500 * time.Millisecond)
		early := watch(t, p, nil)
		time.Sleep(3200 * time.Millisecond)
		late := watch(t, p, nil)
		time.Sleep(4 * time.Second)
		p.Close()
		for _, r := range []*reader{early, late} {
			<-r.ended
			var seqs []uint64
			for _, e := range r.events {
				var s Snapshot
				require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(strings.Split(e, "\n")[1], "data: ")), &s))
				for _, request := range s.Recent {
					seqs = append(seqs, request.Seq)
				}
			}
			assert.Equal(t, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9}, seqs)
		}
	})
}

// TestSamplerRunsWhileSomebodyWatches is invariant 3.
func TestSamplerRunsWhileSomebodyWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{}
		p := New(s, About{})
		defer p.Close()
		looksIn := func(d time.Duration) int64 {
			before := s.looks.Load()
			time.Sleep(d)
			synctest.Wait()
			return s.looks.Load() - before
		}
		assert.Zero(t, looksIn(time.Hour), "nobody watches")
		a := watch(t, p, nil)
		b := watch(t, p, nil)
		assert.EqualValues(t, 60, looksIn(time.Minute), "one look for all")
		a.cancel(nil)
		<-a.ended
		assert.EqualValues(t, 60, looksIn(time.Minute))
		b.cancel(nil)
		<-b.ended
		assert.Zero(t, looksIn(time.Hour), "the last one has left")
		c := watch(t, p, nil)
		assert.EqualValues(t, 60, looksIn(time.Minute), "and it begins again")
		c.cancel(nil)
		<-c.ended
	})
}

func TestCloseEndsAllAtOnceWithAWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(&source{}, About{})
		var all []*reader
		for range 3 {
			all = append(all, watch(t, p, nil))
		}
		synctest.Wait()
		began := time.Now()
		p.Close()
		for _, r := range all {
			<-r.ended
			assert.NoError(t, r.err)
			assert.Equal(t, "sb", r.kinds())
			assert.Equal(t, []time.Duration{farewell}, r.bounds, "the last word has a bound")
		}
		assert.Zero(t, time.Since(began))
		_, err := p.Watch(nil)
		assert.ErrorIs(t, err, ErrClosed)
		p.Close()
	})
}

// TestSlowWatcherIsDroppedAlone is invariant 4.
func TestSlowWatcherIsDroppedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(&source{}, About{})
		defer p.Close()
		block := make(chan struct{})
		slow, quick := watch(t, p, block), watch(t, p, nil)
		time.Sleep(20*period + period/2)
		synctest.Wait()
		assert.Equal(t, "s"+strings.Repeat("u", 20), quick.kinds())
		assert.Equal(t, []time.Duration{0}, slow.bounds, "its write was told to fail, once")
		p.mu.Lock()
		assert.Len(t, p.watchers, 1)
		p.mu.Unlock()
		close(block)
		<-slow.ended
		assert.ErrorIs(t, slow.err, ErrSlow)
		assert.Equal(t, 1+maxBehind, strings.Count(slow.kinds(), "u"), "what had been waiting")
		quick.cancel(nil)
		<-quick.ended
	})
}

func TestTheLastWatcherMayBeTheOneWhoIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{}
		p := New(s, About{})
		block := make(chan struct{})
		slow := watch(t, p, block)
		time.Sleep(time.Minute)
		synctest.Wait()
		looks := s.looks.Load()
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, looks, s.looks.Load(), "the sampler has ended")
		close(block)
		<-slow.ended
		again := watch(t, p, nil)
		time.Sleep(period)
		synctest.Wait()
		assert.Equal(t, "su", again.kinds())
		p.Close()
		<-again.ended
	})
}

func TestWatchersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(&source{}, About{})
		defer p.Close()
		var all []*Watcher
		for range maxWatchers {
			w, err := p.Watch(func(time.Duration) {})
			require.NoError(t, err)
			all = append(all, w)
		}
		_, err := p.Watch(nil)
		require.ErrorIs(t, err, ErrFull)
		all[0].Close()
		all[0].Close()
		w, err := p.Watch(func(time.Duration) {})
		require.NoError(t, err, "one has left")
		assert.True(t, strings.HasPrefix(string(w.First()), "event: snapshot\ndata: {"))
	})
}

func TestAWriteThatFailsEndsTheWatch(t *testing.T) {
	p := New(&source{}, About{})
	defer p.Close()
	w, err := p.Watch(func(time.Duration) {})
	require.NoError(t, err)
	defer w.Close()
	broken := errors.New("broken")
	assert.ErrorIs(t, w.Run(context.Background(), func([]byte) error { return broken }), broken)
}

// TestComingAndGoingUnderLoad is for the race detector: no order of arrivals, leavings, messages and the end may deadlock or leak.
func TestComingAndGoingUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(&source{}, About{})
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				for n := range 20 {
					time.Sleep(time.Duration(i*37+n*211) % 1500 * time.Millisecond)
					w, err := p.Watch(func(time.Duration) {})
					if err != nil {
						continue
					}
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i*91%2500)*time.Millisecond)
					_ = w.Run(ctx, func([]byte) error { return nil })
					cancel()
					w.Close()
				}
			})
		}
		all.Go(func() {
			time.Sleep(15 * time.Second)
			p.Close()
		})
		all.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		assert.Empty(t, p.watchers)
		assert.Nil(t, p.stop)
	})
}

// TestUpdateCostsTheSameHoweverManyWait is invariant 2.
func TestUpdateCostsTheSameHoweverManyWait(t *testing.T) {
	size := func(waiting int) int {
		v := (&source{waiting: waiting}).Look(shownWaiters)
		return len(encode(snapshot(&v, v.At, end(&v))))
	}
	few, many := size(shownWaiters), size(10_000)
	assert.InDelta(t, few, many, 8, "the count has more digits")
	assert.Less(t, many, 8<<10)
}

func BenchmarkUpdate(b *testing.B) {
	p := New(&source{waiting: 10_000}, About{})
	defer p.Close()
	w, err := p.Watch(func(time.Duration) {})
	require.NoError(b, err)
	defer w.Close()
	stop := p.stop
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		p.tell(stop)
		for len(w.messages) > 0 {
			n = len(<-w.messages)
		}
	}
	b.ReportMetric(float64(n), "bytes/update")
}
