// Package nixl moves bytes between the memory of two processes by NIXL: a C library, loaded at run time, behind Go values that cannot be
// used in the ways in which the library must not be used.
//
// The receiving side maps memory, registers it, and tells its peer two things over a channel of its own, the metadata and the address:
//
//	lib, err := nixl.Open(nixl.Options{})
//	agent, err := lib.NewAgent(ctx, "decode")
//	mem, err := nixl.NewMemory(n, pin)
//	region, err := agent.Register(ctx, mem, 0, n)
//	blob, err := agent.Metadata(ctx)              // with region.Addr() to the peer
//
// The sending side has an agent and a region too, and writes from it:
//
//	peer, err := agent.AddPeer(ctx, blob)         // again with each hello; the same blob gives the same peer
//	err = peer.Write(ctx, region, []nixl.Span{{Off: 0, Len: n, Addr: addr}})
//
// There are no notifications: the peers tell each other over their own channel that a write is done, after Write has returned nil.
//
// # Ownership
//
// Library over Agent over Region and Peer; closing an Agent closes what is below it. A Library is never closed. Memory is owned by who
// mapped it and outlives agents. A C handle has one goroutine at a time: the one that makes it, then the agent's poller, then the one
// that closes the agent. The goroutines are the agent's poller, from NewAgent to Close, and one for each call that is in the library,
// which Close awaits.
//
// # Invariants
//
//  1. Open binds all functions of the library, or returns an error with every name that is missing. A stub or an unknown version is refused.
//  2. No C handle is used after its release, nor a request after the metadata of its peer was replaced.
//  3. Memory is not unmapped while it is registered, and not deregistered while the library may read it for a write, awaited or not.
//  4. A write whose caller stopped waiting is uncertain until the library has let go of it, which is told; it is never taken for failed.
//  5. Every wait ends with its context or a fixed limit, whatever the library does: no mutex is held while C runs. The one exception is
//     the post of a write of up to 64 KB, which its caller makes itself.
//  6. An agent without writes under way takes no CPU.
//  7. Metadata is read completely before the library sees it: a damaged blob can end the process or spoil a peer's name.
//  8. Without cgo everything builds, and Open refuses.
//
// # Not here
//
// Who may write when (tilert), which bytes go where (staging), how the metadata travels, and a bound for the number of peers.
package nixl
