//go:build !race

package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
)

// Invariant 5, and ceilings for what happens once a request.
func TestAllocations(t *testing.T) {
	m := New(prometheus.NewRegistry(), example())
	n := m.Node("10.0.0.2:5556:5557")
	for name, tc := range map[string]struct {
		ceiling float64
		do      func()
	}{
		"a token":             {0, func() { n.Generated(1) }},
		"a change of a slot":  {0, func() { n.Enter(SlotDecode) }},
		"the end":             {0, func() { m.Requests.Ended("chat", "ok", 200) }},
		"an end not declared": {0, func() { m.Requests.Ended("chat", "ok", 418) }},
		"a failed call":       {0, func() { m.Upstream.Failed("prefill", "connect") }},
		"a phase":             {1, func() { m.Requests.Phase(Decode, time.Second) }},
	} {
		tc.do()
		assert.LessOrEqual(t, testing.AllocsPerRun(100, tc.do), tc.ceiling, name)
	}
}
