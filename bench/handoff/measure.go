package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// measure runs one mode in one case. The prompt has so many tokens, and its KV so many bytes.
func measure(ctx context.Context, s settings, c proportion, tokens int, kv uint64, m mode) (result, error) {
	n, err := startNodes(c, tokens, kv, s.transport)
	if err != nil {
		return result{}, err
	}
	defer n.close()
	w, err := startWorld(ctx, s.router, n, s.clients, m.flags)
	if err != nil {
		return result{}, err
	}
	r, err := w.load(ctx, s)
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, tail(w.log.Bytes()))
	}
	return r, errors.Join(err, w.end())
}

// size asks nodes that take no time how many tokens the prompt has, and how many bytes its KV.
func size(ctx context.Context, s settings) (tokens int, kv uint64, err error) {
	n, err := startNodes(proportion{}, 0, 0, s.transport)
	if err != nil {
		return 0, 0, err
	}
	defer n.close()
	w, err := startWorld(ctx, s.router, n, 1, nil)
	if err != nil {
		return 0, 0, err
	}
	u, err := w.ask(ctx)
	return u.Prompt, n.prefill.Counters().Bytes, errors.Join(err, w.end())
}

// load has clients ask one request after the other, and times those that end after each client's first.
func (w *world) load(ctx context.Context, s settings) (result, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ended := make(chan time.Time) // of each good request; read until the last one that counts
	var clients sync.WaitGroup
	for range s.clients {
		clients.Go(func() {
			for ctx.Err() == nil {
				u, err := w.ask(ctx)
				if err == nil && u.Completion != maxTokens {
					err = fmt.Errorf("%d tokens, want %d", u.Completion, maxTokens)
				}
				if err != nil {
					stop(err) // after the end the first cause stays
					return
				}
				select {
				case ended <- time.Now():
				case <-ctx.Done():
				}
			}
		})
	}
	var r result
	var from time.Time
	var taken float64
	for r.requests < s.requests && ctx.Err() == nil {
		select {
		case at := <-ended:
			if from.IsZero() {
				if s.clients--; s.clients == 0 {
					from, taken = at, w.decode.Counters().BusySeconds
				}
				continue
			}
			r.requests++
			r.wall = at.Sub(from)
		case <-ctx.Done():
		}
	}
	r.taken = time.Duration((w.decode.Counters().BusySeconds - taken) * float64(time.Second))
	err := context.Cause(ctx)
	stop(errDone)
	clients.Wait()
	return r, err
}

// errDone ends the clients when enough has been measured.
var errDone = errors.New("measured")
