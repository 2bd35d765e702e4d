package openai

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// update rewrites golden files and generated pages instead of comparing with them.
var update = flag.Bool("update", false, "write golden files and generated pages")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
