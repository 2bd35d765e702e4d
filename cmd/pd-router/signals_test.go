package main

import (
	"context"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// raise sends this process a signal that withSignals has taken over.
func raise(t *testing.T, s syscall.Signal) {
	t.Helper()
	require.NoError(t, syscall.Kill(os.Getpid(), s))
}

func TestFirstSignalCancelsSecondForces(t *testing.T) {
	ctx, stop := withSignals(context.Background(), func() { t.Error("exit was called though the program ended") })
	select {
	case <-ctx.Done():
		t.Fatal("cancelled without a signal")
	case <-forced(ctx):
		t.Fatal("forced without a signal")
	default:
	}
	raise(t, syscall.SIGTERM)
	<-ctx.Done()
	assert.EqualError(t, context.Cause(ctx), "received terminated")
	select {
	case <-forced(ctx):
		t.Fatal("forced at the first signal")
	default:
	}
	raise(t, syscall.SIGINT)
	<-forced(ctx)
	stop()
}

func TestStopWithoutASignal(t *testing.T) {
	ctx, stop := withSignals(context.Background(), func() { t.Error("exit was called") })
	stop()
	assert.ErrorIs(t, ctx.Err(), context.Canceled)
}

func TestAProgramThatHangsIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, done, second := make(chan os.Signal, 2), make(chan struct{}), make(chan struct{})
		ctx, cancel := context.WithCancelCause(t.Context())
		begin, exited := time.Now(), time.Duration(0)
		go watch(got, done, cancel, second, func() { exited = time.Since(begin) })
		got <- syscall.SIGTERM
		<-ctx.Done()
		time.Sleep(time.Minute) // draining, which one signal does not bound
		begin = time.Now()
		got <- syscall.SIGTERM
		<-second
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, lastResort, exited)
	})
}

func TestForcedOfAPlainContextBlocks(t *testing.T) {
	assert.Nil(t, forced(context.Background()))
}
