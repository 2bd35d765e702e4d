// Package engine knows, per pair of engines, what is sent to the two nodes of a request and what their answers mean.
//
// A connector is pure: no state, no clock, no randomness, no connections. Ids and addresses are arguments.
// TileRT is the connector of a vLLM prefill node and a TileRT decode node; it is the only one so far.
//
// # Ownership
//
// Bodies are segments of the client's bytes with edits between them (openai.Segments): they stay valid as long
// as the client's body. What an answer function returns may point into the answer.
//
// # Invariants
//
//  1. What the router does not own reaches vLLM byte for byte, in the client's order.
//  2. Both legs get the same sampling values.
//  3. A client can choose neither the handoff nor the request id.
//  4. A prefill answer without a first token id is a failure, never a guess.
//
// # Not here
//
// Connections and retries (nodes, router) and the form of the reply to the client (openai).
package engine
