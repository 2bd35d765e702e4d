package queue

import (
	"errors"
	"fmt"
)

// The errors of Acquire, beside context.Cause of its context. They carry no numbers: the caller knows the limits
// that it set, and names them with its own flags.
var (
	// ErrFull is what ErrFullCount and ErrFullBytes have in common: the line had no room for a newcomer.
	ErrFull      = errors.New("the queue is full")
	ErrFullCount = fmt.Errorf("%w: too many requests wait", ErrFull)
	ErrFullBytes = fmt.Errorf("%w: the requests that wait hold too much memory", ErrFull)

	// ErrExpired ends a wait that reached its bound.
	ErrExpired = errors.New("no slot within the bound of the wait")
	// ErrBusy is the ErrExpired of those who would not wait (Bound 0), also after SettleGrace.
	ErrBusy = fmt.Errorf("would not wait: %w", ErrExpired)

	// ErrDraining ends all waits once Drain was called. As the cause of a context it means the same.
	ErrDraining = errors.New("the queue is draining")
)

// Outcome is how one Acquire ended. Metric label, log line and HTTP status read it and decide nothing themselves.
type Outcome uint8

const (
	Waiting     Outcome = iota // not ended yet: the zero value, which Observe never sees
	Granted                    // a Lease was handed over
	Full                       // refused at the door, by count or by bytes
	Expired                    // waited the whole bound; with Bound 0, found no free slot
	ClientGone                 // the context ended first
	Draining                   // the queue is shutting down
	NumOutcomes                // sizes tables
)

var outcomeNames = [NumOutcomes]string{"waiting", "granted", "full", "expired", "client_gone", "draining"}

// String gives the metric label.
func (o Outcome) String() string {
	if o < NumOutcomes {
		return outcomeNames[o]
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// OutcomeOf tells the outcome from the error of Acquire, wrapped or not; nil is Granted. An error that is none of
// this package's is the cause of an ended context.
func OutcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return Granted
	case errors.Is(err, ErrFull):
		return Full
	case errors.Is(err, ErrExpired):
		return Expired
	case errors.Is(err, ErrDraining):
		return Draining
	}
	return ClientGone
}
