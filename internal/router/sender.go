package router

import (
	"context"
	"errors"
	"time"
)

// sender is the prefill node until it cannot be reached: what it had not sent by then does not come.
type sender struct {
	ctx context.Context
	end context.CancelCauseFunc
}

func newSender() *sender {
	ctx, end := context.WithCancelCause(context.Background())
	return &sender{ctx, end}
}

var errPrefillGone = errors.New("the prefill node went away")

// kvGrace is how long after the end of its sender a decode node may take to begin with KV that was complete by then.
const kvGrace = 5 * time.Second

// outlives is ctx, ended too when s has been gone for so long, until stop is called. Who stops keeps what the context had begun.
func (s *sender) outlives(ctx context.Context, grace time.Duration) (_ context.Context, stop func()) {
	ctx, end := context.WithCancelCause(ctx)
	over := make(chan struct{}) // closed by stop
	undo := context.AfterFunc(s.ctx, func() {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-timer.C:
			end(errPrefillGone)
		case <-over:
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		undo()
		close(over)
	}
}
