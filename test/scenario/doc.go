// Package scenario runs the built program against simulated nodes, all as processes of their own, and does to them what operators fear:
// ten thousand waiters, a thousand clients that leave at once, nodes that are killed, nodes that lie, signals under load, and all of it
// together while KV moves by the real NIXL library (TestChaos).
//
// It has tests only. TestMain builds the program once, with the race detector when the tests have it. A scenario gets a world: a router
// with its nodes, and a count of what was sent. Its end is the same for all, the final check of final_test.go: whatever was done, nothing
// of it may be left.
//
// # Ownership
//
// A world owns its processes and ends them when its test does. Whoever dials a client closes it, which is part of most scenarios.
//
// # Invariants
//
// They are the promises of the program, as seen from outside:
//
//  1. No request is lost: each is answered, once, and is one count and one log line.
//  2. Requests are served in the order in which they were let in.
//  3. A node never sees two decodes at once: it never has to answer 429 to this router.
//  4. A reply that ends well is the one that was asked for; any other ends with an error that a client cannot miss.
//  5. Afterwards all slots are free, the line is empty, all gauges are zero, and no connection, goroutine or descriptor is left.
//
// Nothing depends on how fast the machine is: waits are for events, and bounds are only there to end a test that has failed.
//
// # Not here
//
// Single rules of the wire and of replies, which have their tests beside the code.
package scenario
