package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"go.uber.org/zap"
)

// stopMargin is what the end may take beyond the drain: connections are cut, traces are sent.
const stopMargin = 5 * time.Second

// announce tells systemd (Type=notify; socket is NOTIFY_SOCKET) when nodes have answered and when the end begins, as
// sd_notify(3) has it. The second message asks for the time that the drain may take, so that the unit's TimeoutStopSec
// need not know --drain-timeout. Returns when ctx ends; what cannot be told is logged and changes nothing.
func announce(ctx context.Context, socket string, ready <-chan struct{}, drain time.Duration, log *zap.Logger) {
	if socket == "" {
		return
	}
	select {
	case <-ready:
		tell(socket, "READY=1\nSTATUS=serving", log)
	case <-ctx.Done():
	}
	<-ctx.Done()
	tell(socket, fmt.Sprintf("STOPPING=1\nSTATUS=replies that run are ending\nEXTEND_TIMEOUT_USEC=%d", (drain+stopMargin).Microseconds()), log)
}

// tellLimit is how long systemd may take to make room for a message: the end does not hang on it.
const tellLimit = 2 * time.Second

func tell(socket, state string, log *zap.Logger) {
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"}) // "@" in front is an abstract name, for Go too
	if err == nil {
		_ = c.SetWriteDeadline(time.Now().Add(tellLimit))
		_, err = c.Write([]byte(state))
		_ = c.Close()
	}
	if err != nil {
		log.Warn("systemd was not told", zap.String("state", state), zap.Error(err))
	}
}
