// Package nodes is the router's side of every upstream connection: a small HTTP/1.1 client that can be
// aborted at any moment, and what is known of the prefill node and the decode nodes (health, capabilities,
// what a hello told).
//
// # Ownership
//
// An Upstream owns its idle connections. Do hands the connection of a call to the Response, whose Close gives
// it back (reply read to its end) or closes it (anything else). A Prefill and a Decode own the goroutine in their
// Run, which ends with its context.
//
// # Invariants
//
//  1. A call that failed on a reused connection before any byte of the reply is sent once more, on a new connection;
//     not one that timed out, and not a Once.
//  2. No idle connection is used after Options.IdleTimeout, which is below the 5 s of the engines' servers, or when its end has been
//     heard of (Unix).
//  3. A cancelled context ends a call at once, in whatever phase it is; the connection is then closed.
//  4. There is a time-out for the connection, one for the head of the reply and one for silence in
//     its body; there is none on a whole reply.
//  5. Health, capabilities and hellos are read in the background. A request waits for that only where it would else be refused
//     because a page could not be read (Reread).
//
// # Not here
//
// Which node a request gets (queue), what is sent to it and what its reply means (engine), and what to do when
// a call fails (router).
package nodes
