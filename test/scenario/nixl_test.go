package scenario

import (
	"os"
	"testing"

	"pd-router/internal/nixl/nixltest"
)

// useNIXL gives the nodes of a test the NIXL library, over loopback. A test without the library is skipped; in CI it fails.
func useNIXL(t *testing.T) {
	t.Helper()
	for name, value := range map[string]string{nixltest.Variable: nixltest.Need(t), "UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo"} {
		if os.Getenv(name) == "" {
			t.Setenv(name, value)
		}
	}
}
