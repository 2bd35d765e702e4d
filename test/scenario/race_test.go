//go:build race

package scenario

// raced says that the tests, and so the program, have the race detector. It knows at most 8128 goroutines, and takes several times the
// time and the memory.
const raced = true
