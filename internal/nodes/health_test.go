package nodes

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// patient is an upstream whose health the test decides.
type patient struct {
	*health
	answer atomic.Pointer[func(ctx context.Context) error]
	looks  atomic.Int32
	told   []bool
}

func (p *patient) is(answer func(context.Context) error) { p.answer.Store(&answer) }

func newPatient(answer func(ctx context.Context) error) *patient {
	p := &patient{}
	p.is(answer)
	p.health = newHealth(
		func(ctx context.Context) error {
			p.looks.Add(1)
			return (*p.answer.Load())(ctx)
		},
		func(up bool, _ error) { p.told = append(p.told, up) })
	return p
}

func well(context.Context) error { return nil }

func refusing(context.Context) error { return errors.New("connection refused") }

func hung(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// watched runs f in fake time while a patient is probed that answers like that at first.
func watched(t *testing.T, answer func(context.Context) error, f func(p *patient)) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(answer)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.Run(ctx)
		}()
		synctest.Wait()
		f(p)
		cancel()
		<-done
	})
}

func TestANodeThatAnswersIsUpAtOnce(t *testing.T) {
	watched(t, well, func(p *patient) {
		require.True(t, p.Up())
		require.True(t, p.Seen())
		require.Equal(t, []bool{true}, p.told)
	})
}

// A node that never answered is a line in the log, too: it may be a mistake in --decode.
func TestANodeThatIsDownFromTheStartIsToldOnce(t *testing.T) {
	watched(t, refusing, func(p *patient) {
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []bool{false}, p.told)
	})
}

func TestANodeThatIsBackIsFoundWithinASecond(t *testing.T) {
	watched(t, refusing, func(p *patient) {
		time.Sleep(time.Hour)
		require.False(t, p.Seen())
		require.Less(t, p.looks.Load(), int32(2*3600), "it is not hammered")
		p.is(well)
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(t, p.Up())
	})
}

func TestANodeThatDiesIdleIsFound(t *testing.T) {
	watched(t, well, func(p *patient) {
		p.is(refusing)
		time.Sleep(pollUp + time.Millisecond)
		synctest.Wait()
		require.False(t, p.Up())
		require.Error(t, p.Err())
		require.True(t, p.Seen(), "it was there once")
	})
}

func TestOneLateProbeIsNoDeath(t *testing.T) {
	watched(t, well, func(p *patient) {
		p.is(hung)
		time.Sleep(pollUp + probeTimeout + time.Millisecond)
		synctest.Wait()
		require.True(t, p.Up())
		time.Sleep(pollUp + probeTimeout)
		synctest.Wait()
		require.False(t, p.Up(), "two are")
	})
}

func TestAFailedRequestIsFollowedByAProbe(t *testing.T) {
	watched(t, well, func(p *patient) {
		time.Sleep(pollUp / 2)
		p.Failed(errors.New("reset"))
		require.False(t, p.Up(), "down until the probe")
		synctest.Wait()
		require.True(t, p.Up(), "without any time passing")
		require.Equal(t, []bool{true, false, true}, p.told)
	})
}

func TestFailuresInARowCostMoreAndMore(t *testing.T) {
	p := newPatient(well)
	var got []time.Duration
	for range 8 {
		got = append(got, p.Struck())
	}
	require.Equal(t, []time.Duration{0, 100, 200, 400, 800, 1600, 2000, 2000}, divide(got))
	p.Succeeded()
	require.Zero(t, p.Struck(), "a good request starts it anew")
	for range 100 {
		require.LessOrEqual(t, p.Struck(), maxPenalty)
	}
}

func divide(ds []time.Duration) []time.Duration {
	for i := range ds {
		ds[i] /= time.Millisecond
	}
	return ds
}

func TestCapabilitiesPages(t *testing.T) {
	all := Capabilities{Penalties: true, IgnoreEOS: true, LogProbs: true}
	for _, tc := range []struct {
		page string
		want Capabilities
	}{
		{`{"capabilities":{"penalties":true,"ignore_eos":true,"logprobs":true}}`, all},
		{`{"penalties":true,"ignore_eos":true,"logprobs":true}`, all},
		{`{"capabilities":{"penalties":true,"ignore_eos":false}}`, Capabilities{Penalties: true}},
		{`{"capabilities":{"penalties":"yes"}}`, Capabilities{}},
		{`{"capabilities":"nope","penalties":true}`, Capabilities{}},
		{`null`, Capabilities{}}, {`"nope"`, Capabilities{}}, {`42`, Capabilities{}}, {`[]`, Capabilities{}}, {`{}`, Capabilities{}}, {``, Capabilities{}},
	} {
		require.Equal(t, tc.want, ParseCapabilities([]byte(tc.page)), tc.page)
	}
}
