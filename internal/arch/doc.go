// Package arch holds the shape of this repository as tests: which package may import which, where C and fasthttp may be used, and
// that every package says in one comment what it is.
//
// The idea: a rule that only a document states is broken by the second change after it. Here each rule is a row of a table with its
// reason beside it, and the failing test prints that reason.
//
// # Invariants
//
//  1. Imports go down the layers (command, CONFIG, EDGE, LIFE, PART, FORM, BASE), never up and never between two packages of PART
//     or of FORM; the one exception is openai, which imports parser and token.
//  2. C is behind one door: only internal/nixl imports "C".
//  3. fasthttp is known to server, sim and nodes alone, and its RequestCtx, which dies with the handler, to server and sim.
//  4. Each package has exactly one package comment.
//  5. A new package under internal/ takes its place in the table before it compiles into anything: without a layer it fails.
//
// Files are read as text, whatever their build tags: what only another platform builds obeys the same rules, and go test, which keeps
// track of the files that a test reads, runs these again when one of them changes.
//
// # Not here
//
// What tests import is their own affair: only files without _test.go are judged.
package arch
