// Package logging builds the one logger of the program: structured lines on stderr, as JSON or for reading.
//
// # Ownership
//
// The caller owns the logger and hands it down; there is no global one. Lines are written unbuffered and whole, so
// nothing is lost when the process dies and nothing needs a flush.
//
// # Invariants
//
//  1. Every line that a level admits is written: no sampling, because the request lines must add up.
//  2. A line has the time in UTC to the microsecond, its level and its message under the keys time, level and msg.
//
// # Not here
//
// What is logged, and the redaction of secrets: that is up to the types that are logged.
package logging
