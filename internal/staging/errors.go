package staging

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"pd-router/internal/nixl"
	"pd-router/internal/tilert"
)

// ErrNotFree is a slot that was asked to expect a request while it has another, or is quarantined.
var ErrNotFree = errors.New("the slot is not free")

// ErrClosed is the arena's end. It is the cause of everything that the end cuts short.
var ErrClosed = errors.New("the arena is closed")

// Hop is one of the two ways of a request's KV.
type Hop uint8

const (
	In      Hop = iota // from the prefill node
	Out                // to a decode node
	NumHops            // sizes tables
)

var hopNames = [NumHops]string{"in", "out"}

// String gives the metric label.
func (h Hop) String() string { return hopNames[h] }

// Reason is why a hop failed. It is a target of errors.Is.
type Reason uint8

const (
	None        Reason = iota // it did not fail
	Timeout                   // the deadline of the caller, or the fixed limit of a hop, passed
	Canceled                  // the caller's context was cancelled
	Unreachable               // no connection to the node
	Lost                      // a connection or NIXL peer broke: the other side died or gave up
	Busy                      // the node's buffer is another's, after all attempts
	Forgotten                 // the node has let go of this rid and refuses it for two minutes, longer as long as somebody asks
	Refused                   // the other side, or this one, refused for good
	Mismatch                  // the node is not one for this KV: layout, transport, window, memory
	Corrupt                   // the bytes changed between coming and going
	Closed                    // the arena was closed
	Failed                    // something else, such as NIXL refusing a call
	NumReasons                // sizes tables
)

var reasonNames = [NumReasons]string{"none", "timeout", "canceled", "unreachable", "lost", "busy", "forgotten", "refused", "mismatch", "corrupt", "closed", "failed"}

// String gives the metric label.
func (r Reason) String() string { return reasonNames[r] }

// Error makes a Reason a target of errors.Is.
func (r Reason) Error() string { return r.String() }

// errForgotten is a refusal that no waiting ends: the node would let the rid in again only for somebody who asks for its decode.
var errForgotten = errors.New("the node has let go of the rid")

// Error is a failed hop. It wraps its Reason and its cause.
type Error struct {
	Hop    Hop
	Reason Reason
	Slot   string
	RID    string
	Node   string // out: host:port
	// Admitted, out: the node had let the rid in and may keep its buffer for it, up to two minutes. A protocol 2 node lets go
	// when it is asked for the rid's decode and gives up waiting, so one with a short timeout_s frees it.
	Admitted bool
	Err      error
}

func (e *Error) Error() string {
	if e.Hop == In {
		return fmt.Sprintf("staging %s: receive %s: %s: %v", e.Slot, e.RID, e.Reason, e.Err)
	}
	return fmt.Sprintf("staging %s: send %s to %s: %s: %v", e.Slot, e.RID, e.Node, e.Reason, e.Err)
}

func (e *Error) Unwrap() []error { return []error{e.Reason, e.Err} }

// ended is why a context has ended.
func ended(ctx context.Context) Reason {
	switch {
	case errors.Is(context.Cause(ctx), ErrClosed):
		return Closed
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return Timeout
	}
	return Canceled
}

// reasonOf sorts a failed push. What came of the end of the context is that, whatever it broke.
func reasonOf(ctx context.Context, err error, asked bool) Reason {
	var wrong *tilert.HelloError
	var call *net.OpError
	var code nixl.Code
	switch {
	case ctx.Err() != nil:
		return ended(ctx)
	case errors.As(err, &wrong), errors.Is(err, nixl.ErrRange), errors.Is(err, nixl.ErrMetadata):
		return Mismatch
	case errors.Is(err, errForgotten):
		return Forgotten
	case errors.Is(err, tilert.ErrRefused) && asked:
		return Busy
	case errors.Is(err, tilert.ErrRefused):
		return Refused
	case errors.Is(err, Corrupt):
		return Corrupt
	case errors.Is(err, nixl.ErrClosed):
		return Closed
	case errors.Is(err, nixl.ErrPeerLost):
		return Lost
	case errors.As(err, &call) && call.Op == "dial":
		return Unreachable
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, nixl.ErrUncertain):
		return Timeout
	case errors.As(err, &code):
		return Failed
	case errors.As(err, &call), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return Lost
	}
	return Failed
}
