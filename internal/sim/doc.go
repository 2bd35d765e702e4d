// Package sim stands in for the two kinds of node that the router works with: a vLLM prefill node with the TileRT
// connector, and a TileRT decode node. They speak the real wire on real sockets, and the KV bytes that go from one to
// the other are real too: each byte follows from the request id and from where it belongs, so the decode node knows
// whether every byte of the right request arrived in its place, and fails the request when one did not.
//
//	Prefill  HTTP of vLLM ─► reply composed ─► 8 sending ranks ──ctrl port──► admission ─► done
//	                                               └──NIXL or data port────► the buffer
//	Decode   /pd/decode ─► slot ─► wait for the transfer ─► check the bytes, read what to say ─► stream it
//
// What the model would answer is composed by the prefill node, which alone sees the prompt, and travels inside the KV
// bytes: the nodes may be two processes, on two machines. A message with "say:" is answered with what follows it, a
// request with tools calls the first of them, any other is answered with its own words.
//
// KV moves as between the real nodes, by NIXL from a rank's staging memory into the registered buffer, or without any
// library over a TCP connection, which the real nodes do not know. A sender that has both takes what the node's hello names.
//
// Ownership. A node owns its listeners, its connections and every goroutine; Serve returns when all are gone. The
// receive buffer is memory of its own, outside the garbage collector's. A NIXL agent belongs to one node and has a new
// name for each; the library is the process's and stays.
//
// Invariants:
//  1. A decode node serves one request at a time; any other is answered 429 at once.
//  2. A flipped byte, bytes of another request, bytes in the wrong place, too many or too few of them fail the request.
//  3. The reply follows from the prompt alone: the same prompt is answered with the same tokens.
//  4. Prefill and decode share nothing but the sockets between them.
//  5. After Serve no goroutine, no connection, no NIXL agent and no memory of the node is left.
//  6. A rank stays connected to the control port while its bytes are on their way, and its staging memory is not used again
//     before the library has let go of it.
//
// Prompt tokens are counted as one for 4 bytes of the messages' JSON, which is near what a large vocabulary gives and
// costs nothing; /tokenize is exact for the small vocabulary that this package carries.
//
// Not here: anything of the router, whose queue, legs and reply this package must not know.
package sim
