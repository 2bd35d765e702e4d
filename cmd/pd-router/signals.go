package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// lastResort is how long the second signal leaves to end in good order: connections are to be cut, not left to the
// kernel with half a reply in them.
const lastResort = time.Second

type forcedKey struct{}

// forced gives the channel that is closed at the second signal: whoever drains stops waiting then. Of a context without
// signals it is nil, which blocks for ever.
func forced(ctx context.Context) <-chan struct{} {
	c, _ := ctx.Value(forcedKey{}).(chan struct{})
	return c
}

// withSignals gives a context that the first SIGTERM or SIGINT cancels, with a cause that names the signal. The second
// one closes forced(ctx) and calls exit lastResort later, should the program still run. A third has its default effect:
// it kills. stop ends the watch and waits for that.
func withSignals(parent context.Context, exit func()) (ctx context.Context, stop func()) {
	signals := []os.Signal{syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGINT) { // shells start background jobs that way, to keep them from a Ctrl-C
		signals = append(signals, syscall.SIGINT)
	}
	got := make(chan os.Signal, 2) // sent to by the runtime, never closed
	signal.Notify(got, signals...)
	// Without a handler, writing a log line to a reader that is gone would kill the process.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	second := make(chan struct{}) // closed by watch
	ctx, cancel := context.WithCancelCause(context.WithValue(parent, forcedKey{}, second))
	done, ended := make(chan struct{}), make(chan struct{}) // closed by stop, by watch
	go func() {
		defer close(ended)
		watch(got, done, cancel, second, exit)
	}()
	return ctx, func() {
		signal.Stop(got)
		close(done)
		<-ended
		cancel(context.Canceled)
	}
}

// watch takes the two signals one after the other; done ends it early.
func watch(got chan os.Signal, done <-chan struct{}, cancel context.CancelCauseFunc, second chan struct{}, exit func()) {
	select {
	case s := <-got:
		cancel(fmt.Errorf("received %v", s))
	case <-done:
		return
	}
	select {
	case <-got:
		signal.Stop(got)
		close(second)
	case <-done:
		return
	}
	select {
	case <-time.After(lastResort):
		exit()
	case <-done:
	}
}
