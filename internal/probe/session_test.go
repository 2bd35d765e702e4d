package probe

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestProgressTellsOfSlowChecksUntilTheyEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		s := newSession(Options{Progress: func(node, check string, since time.Duration) {
			told = append(told, fmt.Sprint(node, " ", check, " ", since.Round(time.Second)))
		}})
		stop := s.tellProgress()
		l := &list{session: s, node: "n"}
		wait := func(d time.Duration) func(context.Context) finding {
			return func(context.Context) finding { time.Sleep(d); return good("") }
		}
		assert.True(t, l.check(t.Context(), "quick", time.Minute, wait(2900*time.Millisecond)))
		assert.True(t, l.check(t.Context(), "slow", time.Minute, wait(7*time.Second)))
		stop()
		synctest.Wait()
		assert.Equal(t, []string{"n slow 3s", "n slow 6s"}, told)
		time.Sleep(time.Hour)
		assert.Len(t, told, 2, "told after the end")
		assert.Equal(t, 7000.0, l.checks[1].TookMS)
	})
}

func TestACheckEndsAtItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &list{session: newSession(Options{}), node: "n"}
		begin := time.Now()
		ok := l.check(t.Context(), "c", 5*time.Second, func(ctx context.Context) finding {
			<-ctx.Done()
			return bad("", "%s", why(ctx, ctx.Err()))
		})
		assert.False(t, ok)
		assert.Equal(t, 5*time.Second, time.Since(begin))
		assert.Equal(t, "no answer within 5s", l.checks[0].Detail)
		assert.Empty(t, l.running)
	})
}
