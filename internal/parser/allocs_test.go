//go:build !race

package parser

import "testing"

// Plain text, the bulk of all replies, costs its event and nothing else.
func TestProseDoesNotAllocate(t *testing.T) {
	for parser := range words {
		for _, o := range []Options{off, on} {
			p, _ := New(parser, o)
			events := make([]Event, 0, 8)
			if n := testing.AllocsPerRun(100, func() {
				events = p.Push(events[:0], "one token")
				events = p.Push(events[:0], "a < b and 世")
			}); n != 0 {
				t.Errorf("%s: %v allocations", parser, n)
			}
		}
	}
}
