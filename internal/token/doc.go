// Package token turns the token ids of a decode node into text, one at a time, and finds stop strings in that text.
//
// It reads the decode side of a HuggingFace tokenizer.json and gives, byte for byte, the text that the reference
// tokenizers library (0.23) gives for the same ids. Text is released the moment it can no longer change, so a stream is
// never later than it has to be and never takes anything back.
//
// # Ownership
//
// A [Tokenizer] is immutable after [Parse] and shared by all requests. A [Detokenizer] and a [StopMatcher] belong to one
// reply and are used by one goroutine. Byte slices given to a method are not kept; results are appended to the caller's.
//
// # Invariants
//
//  1. For every list of ids, the pieces of [Detokenizer.Append] plus [Detokenizer.Flush] are [Tokenizer.Decode] of the list.
//  2. What Append has returned is a prefix of the text of every continuation, and the longest such prefix in whole characters.
//  3. All text that leaves this package is valid UTF-8, whatever the ids are. An id outside the vocabulary leaves nothing.
//  4. Append allocates nothing when dst has room, but for a run of byte tokens longer than any before it.
//  5. A [StopMatcher] gives the same text and the same stop for every split of its input, and what it holds back is exactly
//     the longest end of the text that may still begin a stop string.
//
// # Not here
//
// Encoding text into ids; sampling; which special tokens a parser wants to see (the caller names them, see
// [Tokenizer.SkipAllBut]); and the JSON form of a reply.
package token
