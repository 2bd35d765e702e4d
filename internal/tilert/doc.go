// Package tilert is the wire of a TileRT decode node as pure data and state machines: the id that both legs share, the
// lines of a token stream, the frames of the control plane, where each byte of a KV cache belongs, and who may write
// into a receive buffer and when.
//
// Ownership. Nothing here has a goroutine, a clock, a socket or randomness beyond NewRequestID: time is an argument,
// connections are io.Reader and io.Writer. Values are used by one goroutine at a time; a Receiver is guarded by its
// owner's mutex.
//
// Invariants:
//  1. DeriveRID of an id made by NewRequestID is that id, with and without vLLM's prefix and random suffix.
//  2. Line.Parse accepts nothing that is not exactly one JSON object of a known kind, and allocates nothing for tokens.
//  3. A Receiver has one tenancy at most; its generations never repeat.
//  4. A tenancy that a live writer holds is given to no other rid unless it is complete (protocol 2).
//  5. A released rid gets in again only after Expect, or when its tombstone has aged out.
//  6. The writes of a plan cover each byte of the request's planes once and stay inside the receiver's buffer.
//
// Not here: policy (when to prefill, what to do about a refusal), the transport that moves the bytes, HTTP.
package tilert
