package config

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// update makes the tests write what they otherwise compare.
var update = flag.Bool("update", false, "write generated files instead of comparing them")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
