package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// systemd is the other end of NOTIFY_SOCKET, at a path or, beginning with "@", at an abstract name.
func systemd(t *testing.T, name string) (next func() string) {
	t.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
	return func() string {
		b := make([]byte, 4096)
		n, err := c.Read(b)
		require.NoError(t, err)
		return string(b[:n])
	}
}

func TestSystemdIsToldOfReadinessAndOfTheEnd(t *testing.T) {
	const end = "STOPPING=1\nSTATUS=replies that run are ending\nEXTEND_TIMEOUT_USEC=35000000"
	for name, socket := range map[string]string{
		"a path": filepath.Join(t.TempDir(), "notify"), "an abstract name": fmt.Sprintf("@pd-router-%d", os.Getpid()),
	} {
		t.Run(name, func(t *testing.T) {
			next := systemd(t, socket)
			ctx, stop := context.WithCancel(context.Background())
			ready, ended := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				announce(ctx, socket, ready, 30*time.Second, zap.NewNop())
			}()
			close(ready)
			require.Equal(t, "READY=1\nSTATUS=serving", next())
			stop()
			require.Equal(t, end, next())
			<-ended

			announce(ctx, socket, make(chan struct{}), 30*time.Second, zap.NewNop()) // stopped before any node answered
			require.Equal(t, end, next())
		})
	}
}

func TestWithoutSystemdNothingIsTold(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	announce(ctx, "", nil, 0, zap.NewNop()) // returns at once
	stop()
	announce(ctx, filepath.Join(t.TempDir(), "nobody"), nil, 0, zap.NewNop()) // a socket that is gone is no failure
}

// Whoever holds the socket reads nothing, as a supervisor that hangs: the end does not wait for it.
func TestEndDoesNotWaitForAReaderThatHangs(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	systemd(t, socket)
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
	for err == nil { // until its queue is full
		_, err = c.Write([]byte("WATCHDOG=1"))
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		announce(ctx, socket, nil, 0, zap.NewNop())
	}()
	select {
	case <-ended:
	case <-time.After(tellLimit + 10*time.Second):
		t.Fatal("it waits for a reader")
	}
}
