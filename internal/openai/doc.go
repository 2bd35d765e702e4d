// Package openai is the client's side of the wire: an OpenAI request as a view over the client's own bytes, the gate that
// decides before any work whether the nodes can honour it, the form of every error, and the encoding of replies and chunks.
//
// A request is never decoded and written anew. Parse checks all of it once and notes where its top-level members lie; the gate
// reads the few members that the router has to understand; Edit gives the body back as pieces of the original with the router's
// own members at its end. So what the model sees (messages, tools, prompt, fields that the router has never heard of) reaches
// the prefill node byte for byte.
//
// # Ownership
//
// A View, the Segments that Edit returns and the raw fields of a Request are slices of the body given to Parse. They are valid
// as long as that body is neither changed nor reused: a server whose buffers die with the handler has to keep the buffer until
// the request has ended. Nothing here keeps state between requests: a Gate is read only after it was made and serves all
// requests at once.
//
// # Invariants
//
//  1. Parse accepts exactly the bodies that are one JSON object by RFC 8259 in valid UTF-8, within the limits of depth and of
//     top-level members. It does not recurse, and its work and memory are bounded by the body's length.
//  2. Bytes that Edit does not drop are the client's, in the client's order, and the result is again one JSON object.
//  3. A key that occurs twice counts with its last value, here as at both nodes; a key written with escapes is the key it spells.
//  4. The gate gives at most one refusal, the first in its documented order, and calls nobody.
//  5. Numbers that the router writes are the client's digits, or a default's; each is a finite JSON number.
//  6. Each refusal names the field that it is about, and its type is one of the closed set in error.go.
//
// # Not here
//
// Which node is asked, waiting, retries, HTTP and the order of both legs; the grammars of reasoning and tool calls
// (internal/parser) and the text of tokens (internal/token).
package openai
