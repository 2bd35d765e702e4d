package probe

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// update makes the golden files anew.
var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
