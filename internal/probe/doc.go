// Package probe looks once at every node that a router will use, and says of each thing that requests will rely on whether it holds: what
// is wrong with a pair of nodes is told in a second, by name and with what to do, and not by requests that end in a KV time-out
// after two minutes.
//
//	address ─► control ─► hello ─► transport ─► nixl-connect   ┐
//	       └─► health ─► capabilities ─► status                ├ each decode node ┐
//	health ─► models ─► one-token ─► request-id, token-ids      ┘ the prefill node ├─► addresses, hellos, window
//
// # Ownership
//
// Run owns its connections and goroutines; all are gone when it returns. The Report belongs to the caller.
//
// # Invariants
//
//  1. A probe changes nothing on a node: it reads hellos and pages, and asks vLLM for one token without naming a decode node, so no KV is
//     sent anywhere (spec 2.5). It never calls /pd/decode or /pd/cancel and never answers a hello.
//  2. Each check has a limit, nodes are looked at side by side, and the end of the context ends all of it at once: Run takes no longer
//     than the limits of one node's checks together, whatever nodes do.
//  3. A report has the same checks in the same order for the same targets; what could not be looked at is there as unchecked, with the reason.
//  4. One cause is one failure: what a failed check stands in the way of is unchecked.
//  5. Text that comes from a node is shown as one line of printable characters, and not much of it.
//
// # Not here
//
// When to probe and what hangs on it (the command), whether nodes are up from moment to moment (nodes), and calls into NIXL, which are the
// caller's to give.
package probe
