// Package parser splits the text of a model into reasoning, content and tool calls while it arrives.
//
// Each grammar is a state machine over the text alone: it knows no tokens, no HTTP and no clock. Outside calls both
// grammars are alike (prose); inside, each one has its own states and hands names, keys and values to calls, which
// numbers the calls and writes their arguments as JSON. Text outside calls is given out at once, but
// for an end that may still become a marker; the value of a pair is collected until it is complete.
//
// # Ownership
//
// A Parser belongs to one reply and to one goroutine. It copies what it keeps of a pushed text, so the memory
// of the text is the caller's again after Push, but for the events of that Push, which may share it. Options.Tools is
// read when the first call comes and must not change until then.
//
// # Invariants
//
//  1. The merged events depend on the whole text only, never on how it was cut, not even inside a character or a marker.
//  2. The CallArgs of one call, joined, are one valid JSON object in valid UTF-8, whatever the text was.
//  3. A call is CallStart, one or more CallArgs, CallEnd, with nothing in between and with the same Index; indices are
//     0, 1, 2 without gaps. Only CallEnd has an empty Text.
//  4. Content and reasoning are given out by the Push that brings them, but for an end that may still become a marker or
//     is an unfinished character. Finish gives that out.
//  5. If the text is valid UTF-8, so is the text of each event.
//  6. The Text of Content and Reasoning is what stands at Pos in the reply.
//  7. Time is linear in the text. Memory is bounded by the call that is being read and by the tools of the request.
//
// # Duplicate keys
//
// A pair that was given out cannot be taken back, and waiting for the end of the call would hide all of it from a
// streaming client. So each pair is given out when it is complete, a repeated key as a repeated member: every common
// JSON parser keeps the last one, which is what the grammar says. Blocking replies carry the same text.
//
// # Not here
//
// Tokens and stop strings (package token), ids of tool calls, chunks and finish_reason (package openai).
package parser
