// Package demo is a load like that of an agent session, and the table that it leaves: one tree of requests whose sub-agents run
// in parallel, sent by a client that does not retry.
//
// # Ownership
//
// Run owns its client and its connections; both are gone when it returns.
//
// # Invariants
//
//  1. A turn begins when the turn before it has ended, whatever came of it: a refused request is not sent again.
//  2. Every request of the plan is in the report, once.
//
// # Not here
//
// The router and the nodes: the caller starts them.
package demo
