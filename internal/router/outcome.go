package router

import (
	"context"
	"errors"

	"pd-router/internal/openai"
	"pd-router/internal/queue"
)

// Outcome is how a request ended. Each gets exactly one, written by finish.
type Outcome uint8

const (
	OK             Outcome = iota // a whole reply
	Invalid                       // refused by the gate: the request is at fault
	Unavailable                   // refused by the gate: no node can do what was asked for
	QueueFull                     // refused at the door
	QueueTimeout                  // waited the whole bound, or a bound of 0
	Draining                      // the router shuts down
	ClientGone                    // the client left first
	PrefillRefused                // vLLM answered 4xx, passed on
	PrefillFailed                 // vLLM could not be reached, failed, or made no sense
	DecodeBusy                    // the node was busy for somebody else until the bound was over
	DecodeRefused                 // the node refused with an error of a known type
	DecodeFailed                  // the node failed before the first byte of the reply
	StreamFailed                  // the reply broke off after its first byte
	Internal                      // our mistake
	NumOutcomes                   // sizes tables
)

var outcomeNames = [NumOutcomes]string{
	OK: "ok", Invalid: "invalid", Unavailable: "unavailable", QueueFull: "queue_full", QueueTimeout: "queue_timeout",
	Draining: "draining", ClientGone: "client_gone", PrefillRefused: "prefill_refused", PrefillFailed: "prefill_failed",
	DecodeBusy: "decode_busy", DecodeRefused: "decode_refused", DecodeFailed: "decode_failed", StreamFailed: "stream_failed",
	Internal: "internal",
}

// String is the outcome as metric label and in the log.
func (o Outcome) String() string { return outcomeNames[o] }

// Causes with which a request's context ends.
var (
	ErrClientGone = errors.New("the client closed the connection")
	ErrDraining   = errors.New("the router is shutting down")
)

// retry says where a failed attempt may be made again.
type retry uint8

const (
	never     retry = iota
	elsewhere       // on another node, if one is free now or soon
	anywhere        // on any node, the same one when it is back
)

// failure is a step that ended the attempt.
type failure struct {
	outcome Outcome
	err     *openai.Error // what the client gets
	raw     []byte        // or vLLM's own answer, passed on with err.Status
	retry   retry
	cause   error // for the log: may hold addresses, never leaves the router
}

func (f *failure) because(cause error) *failure {
	f.cause = cause
	return f
}

// later is f for a client that is told when to come again.
func (f *failure) later(seconds int) *failure {
	g, e := *f, *f.err
	e.RetryAfter = seconds
	g.err = &e
	return &g
}

// problem is what a trace says of f; f may be nil.
func (f *failure) problem() string {
	if f == nil || f == errMoved {
		return ""
	}
	return f.outcome.String()
}

// ended is the failure of a request whose context is over, by its cause; nil while it is not.
func ended(ctx context.Context) *failure {
	if ctx.Err() == nil {
		return nil
	}
	return outcomeOf(context.Cause(ctx))
}

// outcomeOf maps what ended a context or a wait.
func outcomeOf(cause error) *failure {
	switch {
	case errors.Is(cause, ErrClientGone):
		return &failure{outcome: ClientGone, cause: cause, err: openai.Errorf(openai.TypeRequestCancelled, "client disconnected")}
	case errors.Is(cause, ErrDraining), errors.Is(cause, queue.ErrDraining):
		e := openai.Errorf(openai.TypeDraining, "the router is shutting down: send the request again in a moment")
		e.RetryAfter = 1
		return &failure{outcome: Draining, cause: cause, err: e}
	case errors.Is(cause, context.Canceled):
		return &failure{outcome: ClientGone, cause: cause, err: openai.Errorf(openai.TypeRequestCancelled, "client disconnected")}
	}
	return &failure{outcome: Internal, cause: cause, err: openai.Errorf(openai.TypeInternalError, "internal error")}
}
