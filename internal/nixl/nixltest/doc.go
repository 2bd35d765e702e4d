// Package nixltest finds the NIXL library for tests that play with the real one. It imports nothing of this program, so that the tests of
// every package can use it.
package nixltest
