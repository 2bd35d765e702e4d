// Package router is the life of one request, from the whole body to the end of the reply: admit, wait for a slot,
// prefill, decode, reply, account.
//
// Serve is that life as one function of named steps, in one goroutine. It returns a Reply; a streamed one still has its
// tokens to come, which Reply.WriteTo pumps in the goroutine that writes to the client.
//
// # Ownership
//
// A life owns its lease from the grant to the end, its room in the arena, and everything it opened upstream. It ends them in
// endLease and leaveArena, and itself in finish; each happens exactly once on every path, a panic included. A Reply with a stream
// owns the life that is left: whoever holds it calls WriteTo or Close.
//
// # Invariants
//
//  1. Nothing is sent upstream for a request that waits. The exceptions are prefills: with Options.PrefillAhead of one request per
//     slot before the slot is its own, with Options.Arena of as many as have a room there. A decode node hears nothing of them.
//  2. Each request ends in exactly one Outcome, one log line and one count.
//  3. The slot is free, or on its way back under the eyes of settle, before the client can read the end of its reply.
//  4. A slot whose node was cancelled is given on only when the node says that it is idle.
//  5. Before the first byte the status tells the truth; after it a failure is an error event and an aborted connection.
//  6. A failure is tried again only while no byte has gone to the client, within the request's own queue time, ahead of all that
//     came later, at most maxAttempts times, each time as a fresh pair of legs; KV that is whole in the arena is not prefilled again.
//  7. What is remembered of a request for the status page (journal, track) holds nothing that a client or a node wrote, has a
//     fixed size, and costs no allocation and nothing for each token.
//
// # Not here
//
// HTTP towards the client (server), the wire formats (engine, openai, tilert), who is next (queue), connections (nodes),
// the memory of the arena (staging).
package router
