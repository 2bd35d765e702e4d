// Package staging lets requests wait with their KV ready: an arena of pinned host memory that is a receiver to the prefill node and a sender to
// the decode node.
//
// To the prefill node each slot of the arena looks like a decode node: a control port with a hello, and memory that NIXL may write into. To
// the decode node it looks like the prefill node. What a request does with a slot, in this order:
//
//	kv, err := slot.Expect(id)           // before prefill is asked, with the id that prefill is told
//	                                     // prefill's kv_transfer_params name slot.Host() and slot.CtrlPort()
//	err = kv.Receive(ctx, rid)           // when prefill has answered: until every rank is done
//	                                     // wait for a decode slot
//	err = kv.Send(ctx, node)             // all bytes are there and the node knows it; then POST /pd/decode
//	kv.Release()                         // whatever happened: not needed any more
//
// The KV stays until Release, so a node that is lost before its first token line costs another Send and not another prefill.
//
// # Ownership
//
// An Arena owns its slots; each has memory, a control port and a NIXL agent of its own. The memory lives as long as the Arena, the
// agent can be replaced: closing it is the only proof that nothing comes or goes any more. A KV owns its slot from Expect to Release
// and belongs to one goroutine at a time. Each slot has two goroutines in Run, one that takes connections and one that brings the slot back
// after transfers that ended badly, and one for each connection. Where an outgoing write is uncertain, one more keeps the node's
// connections open until it is certain.
//
// # Invariants
//
//  1. A slot has one request from Expect to Release, and lets in senders of one rid at a time: none without a request, none while the
//     KV is complete, and none whose request is over.
//  2. Receive returns nil only when every rank was let in, has said the same length and is done, and no rank has left without its done.
//  3. A slot is free only when the end of every transfer into it and out of it is known: by a done, by NIXL, or by the end of the agent. Until
//     then it is quarantined.
//  4. While the end of a write to a node is unknown, its connections stay open: the node gives its buffer to nobody under a live writer.
//  5. A node is told done only after all bytes of all ranks are there; when the transfer is verified, also unchanged since they came.
//  6. What the sender's request said reaches the node unchanged, but for the rank and the admission window.
//  7. Every wait ends with its context or a fixed limit; every failure is an *Error with a Reason.
//
// # Not here
//
// Which request has which slot and for how long (queue, router), HTTP, whether the rid is right. Bytes are not sent on before all have come:
// a slot that waits for a decode node has them long before.
package staging
