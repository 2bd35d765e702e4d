// Package queue is the waiting line in front of the decode slots: a request waits, oldest first, until a slot
// is handed to it.
//
// A slot is room for one request on a decode node. Acquire waits for one and returns a Lease, the right to use
// it; Release gives it back. Everything happens in the goroutine that calls: the package starts none, and has
// no ticker and no polling. One mutex guards the line and the slots, and nothing blocks under it.
//
// # Ownership
//
// Queue owns the line and all slots. A Slot is made by Add and leaves with Remove; whoever watches the node may
// call its methods at any time. A Lease belongs to the caller of Acquire, who must Release it on every path; no
// timer ever takes it back, as a slot that looks idle may still be written to. A waiter belongs to the
// goroutine inside Acquire; while it stands in the line, only the holder of the mutex may touch it.
//
// # Invariants
//
//  1. A slot has at most one lease. Acquire returns a lease or an error, never both, and an error never costs a
//     slot: a grant that meets a cancellation goes on to the next waiter.
//  2. Whenever the mutex is free and the queue is not paused, no waiter fits a free slot. So a newcomer may take
//     a free slot without overtaking anybody.
//  3. A slot goes to the oldest waiter that it fits, whoever else called first. Age is the ticket: the moment of arrival,
//     then the order of the calls. A request that tries again keeps its ticket and with it its place. No ticket is
//     further back than reach before its call, nor ahead of it.
//  4. Free slots are taken longest idle first.
//  5. A wait ends at its bound, counted from the call of Acquire, whatever the nodes do: all down, none there,
//     queue paused.
//  6. The line never grows past MaxWaiters or MaxBytes by a newcomer, and one who leaves it for any reason is
//     out of both counts in the same moment.
//  7. Each Acquire has exactly one Outcome, and Observe sees it once.
//  8. Behind a lease whose holder has opened the place there may be one more lease for the same slot. It owns nothing
//     until the first one ends, and then it does, before any waiter. It is never given past an older waiter.
//  9. Joining and leaving the line, and handing over a slot, cost no more the longer the line is. Who arrived before
//     others that called first walks past those, which are no more than came within reach.
//
// # Not here
//
// Health of nodes (the caller says Down, Up, Pause), retries (the caller comes again with its ticket), the
// meaning of traits, metrics, HTTP.
package queue
