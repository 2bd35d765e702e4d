// Package metrics holds every metric of the router in one place, each with the help that says what to do when it rises.
//
// Two kinds stand side by side. Events (a request ended, a leg failed) are counted when they happen, by one small
// struct for each consumer. State (the line, the slots, what is up) has its owner elsewhere and is read from it when a
// scrape asks, so it cannot drift from the truth.
//
// # Ownership
//
// New registers everything on the registry it is given; there are no globals. All methods may be called from any
// goroutine. The State that a scrape fills is the collector's own and lent to Options.State for the call.
//
// # Invariants
//
//  1. Every label has a closed set of values, given to New or fixed here; what is outside of it counts as "other".
//     Nothing that a client sends becomes a label.
//  2. Every series of a closed set is there from the start, at zero: rate() misses the event that creates a series.
//     The one exception: an endpoint, outcome and status that were not declared to go together.
//  3. Exactly one gauge of ours ends in "busy" and one in "queue_depth"; no other has a name that tells of running or
//     waiting work, so "all of them are 0" can be asked of a page. Both may be watched by name.
//  4. The families named vllm: describe only what vLLM cannot see (decode nodes and our line) and have one label set, so
//     that a page of vLLM can be added to ours without counting anything twice. No family begins with dynamo_, by
//     which result aggregation would take the router for another system.
//  5. A call for each token costs one atomic addition and no allocation.
//  6. Seconds of slots grow while a phase runs and not at its end only: their rate is the use of a slot.
//
// # Not here
//
// Deciding what an outcome is, and serving HTTP: Write gives a page to whoever serves it.
package metrics
