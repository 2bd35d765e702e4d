package nixl

import (
	"errors"
	"fmt"
)

// What a caller can branch on. Every error of this package wraps at most one of these.
var (
	// ErrNoLibrary: libnixl_capi.so is nowhere, or cannot be loaded. The text names every place that was tried.
	ErrNoLibrary = errors.New("the NIXL library cannot be loaded")
	// ErrUnsupported: there is a library, and this package refuses it (a stub, an unknown version, missing functions).
	ErrUnsupported = errors.New("this NIXL library cannot be used")
	// ErrClosed: the agent, region, memory or peer has been closed.
	ErrClosed = errors.New("closed")
	// ErrBusy: the memory or region is still registered or under a transfer, or a peer's generation still is.
	ErrBusy = errors.New("still in use")
	// ErrMetadata: a metadata blob is not one, or names things that this agent must not load.
	ErrMetadata = errors.New("bad metadata")
	// ErrRange: a span lies outside the region, or outside what the peer registered.
	ErrRange = errors.New("outside the registered memory")
	// ErrRefused: the library refused a call; nothing was sent. The error also wraps a Code.
	ErrRefused = errors.New("refused by the library")
	// ErrPeerLost: the connection to the peer failed. The peer can be added again with fresh metadata.
	ErrPeerLost = errors.New("peer lost")
	// ErrUncertain: the caller stopped waiting for something that still goes on. See UncertainError.
	ErrUncertain = errors.New("outcome unknown")
)

// errNoC is every library's refusal in a program without C: no other library would do.
var errNoC = fmt.Errorf("nixl: %w: this program was built without cgo (CGO_ENABLED=0) or not for Linux", ErrUnsupported)

// Code is a status of the library (spec 1.2); below zero it is an error. Libraries before generation 3 know only -1 to -6
// and say Backend for nearly everything.
type Code int32

const (
	Success          Code = 0
	InProgress       Code = 1
	InvalidParam     Code = -1
	Backend          Code = -2
	InvalidState     Code = -3
	Exception        Code = -4
	NoTelemetry      Code = -5
	NotFound         Code = -6
	NotPosted        Code = -7
	Mismatch         Code = -8
	NotAllowed       Code = -9
	RepostActive     Code = -10
	Unknown          Code = -11
	NotSupported     Code = -12
	RemoteDisconnect Code = -13
	Canceled         Code = -14
)

var codeNames = map[Code]string{
	Success: "SUCCESS", InProgress: "IN_PROG", InvalidParam: "INVALID_PARAM", Backend: "BACKEND", InvalidState: "INVALID_STATE",
	Exception: "EXCEPTION", NoTelemetry: "NO_TELEMETRY", NotFound: "NOT_FOUND", NotPosted: "NOT_POSTED", Mismatch: "MISMATCH",
	NotAllowed: "NOT_ALLOWED", RepostActive: "REPOST_ACTIVE", Unknown: "UNKNOWN", NotSupported: "NOT_SUPPORTED",
	RemoteDisconnect: "REMOTE_DISCONNECT", Canceled: "CANCELED",
}

// Error makes a Code a target of errors.Is.
func (c Code) Error() string {
	if name, ok := codeNames[c]; ok {
		return fmt.Sprintf("%s (%d)", name, int32(c))
	}
	return fmt.Sprintf("status %d", int32(c))
}

// CallError is a call of the library that failed. It wraps its Code and one of the errors above.
type CallError struct {
	Call string // the C function without its prefix
	Peer string // the peer's agent name, where there is one
	Code Code
	Kind error // ErrRefused or ErrPeerLost
}

func (e *CallError) Error() string {
	if e.Peer == "" {
		return fmt.Sprintf("nixl: %s: %v: %v", e.Call, e.Kind, e.Code)
	}
	return fmt.Sprintf("nixl: %s: peer %s: %v: %v", e.Call, e.Peer, e.Kind, e.Code)
}

func (e *CallError) Unwrap() []error { return []error{e.Kind, e.Code} }

// UncertainError says that a write was given up by its caller and not by the library, which has no abort: bytes of the
// source may still be read and sent. The source must keep its content until Settled is closed; if that never comes
// (a peer that hangs), closing the agent ends it.
type UncertainError struct {
	Settled <-chan struct{} // closed when the library has let go of the source
	Peer    string
	Cause   error // context.Cause of the caller's context
}

func (e *UncertainError) Error() string {
	return fmt.Sprintf("nixl: write to %s: %v: %v", e.Peer, ErrUncertain, e.Cause)
}

func (e *UncertainError) Unwrap() []error { return []error{ErrUncertain, e.Cause} }
