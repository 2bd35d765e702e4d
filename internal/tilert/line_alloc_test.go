//go:build !race

package tilert

import "testing"

// Invariant 2, its second half.
func TestLinesAllocateNothing(t *testing.T) {
	var l Line
	for _, in := range []string{
		`{"t":[151337]}`, `{"t":[1,2],"lp":[-0.12345678901234567,null],"tp":[[[1,-0.12345678901234567]],[[2,-1.5]]]}`,
		`{"done":true,"n":4,"finish_reason":"stop","timing_ms":{"wire_wait":543.4}}`,
	} {
		b := []byte(in)
		if n := testing.AllocsPerRun(100, func() { _ = l.Parse(b) }); n != 0 {
			t.Errorf("%s: %v allocations", in, n)
		}
	}
}
