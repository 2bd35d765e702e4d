package sim

import (
	"testing"

	"go.uber.org/goleak"
)

// Invariant 5: what the tests leave behind would be left behind by the nodes.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
