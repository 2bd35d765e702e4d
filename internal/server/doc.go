// Package server is the HTTP edge: it reads requests to their end, hands them to the router, writes replies, and
// notices clients that leave.
//
// fasthttp parses HTTP. Its RequestCtx goes no deeper than this package, and dies with the handler; the body of a
// request is read into a buffer of its own, which the router owns. A stream is pumped by fasthttp's body
// writer in the goroutine of the connection, after the handler has returned.
//
// # Ownership
//
// The Server owns its connections: a conn is known from Accept to Close. Run owns the watcher's goroutine and those of
// fasthttp; all have ended when it returns.
//
// # Invariants
//
//  1. A body is read whole before the request queues, within --max-body and within --queue-max-bytes for all bodies
//     that are being read.
//  2. A client that closes its connection ends the context of its request, in every phase, without a read pending on it.
//  3. A stream that failed ends in an aborted connection, never in the clean end of a chunked body.
//  4. Every refusal is JSON in the one form of openai.Error.
//  5. When Run is told to stop, the listener is closed first, idle connections next, and who is in the middle of sending a request has a
//     moment for the rest of it.
//  6. A request carries the moment at which its last byte came to this machine, however late it is read (Linux).
//
// # Not here
//
// Anything about models (router, openai), metrics themselves (the page is a func).
package server
