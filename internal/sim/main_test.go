package sim

import (
	"os"
	"testing"

	"pd-router/internal/nixl"
	"pd-router/internal/nixl/nixltest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// Invariant 5: what the tests leave behind would be left behind by the nodes.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo", nixl.PathVariable: nixltest.Path()} {
		if _, set := os.LookupEnv(name); !set && value != "" {
			os.Setenv(name, value)
		}
	}
	if os.Getenv(childVariable) != "" {
		child() // does not return
	}
	goleak.VerifyTestMain(m)
}

// needNIXL is the end of a test without the library: skipped here, failed in CI, where nothing may go untested.
func needNIXL(t testing.TB) *nixl.Library {
	t.Helper()
	nixltest.Need(t)
	lib, err := loadNIXL()
	require.NoError(t, err)
	return lib
}

// eachTransport runs a test with both transports.
func eachTransport(t *testing.T, test func(t *testing.T, transport string)) {
	t.Run(TransportTCP, func(t *testing.T) { test(t, TransportTCP) })
	t.Run(TransportNIXL, func(t *testing.T) {
		needNIXL(t)
		test(t, TransportNIXL)
	})
}
