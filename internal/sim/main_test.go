package sim

import (
	"os"
	"path/filepath"
	"testing"

	"pd-router/internal/nixl"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// Invariant 5: what the tests leave behind would be left behind by the nodes.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo", nixl.PathVariable: cachedNIXL()} {
		if _, set := os.LookupEnv(name); !set && value != "" {
			os.Setenv(name, value)
		}
	}
	if os.Getenv(childVariable) != "" {
		child() // does not return
	}
	goleak.VerifyTestMain(m)
}

// cachedNIXL is the library that `make deps` fetches, or "".
func cachedNIXL() string {
	cache := os.Getenv("PD_ROUTER_CACHE")
	if base, err := os.UserCacheDir(); cache == "" && err == nil {
		cache = filepath.Join(base, "pd-router-ci")
	}
	path := filepath.Join(cache, "nixl/lib/.nixl_cu12.mesonpy.libs/libnixl_capi.so")
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// needNIXL is the end of a test without the library: skipped here, failed in CI, where nothing may go untested.
func needNIXL(t testing.TB) *nixl.Library {
	t.Helper()
	if os.Getenv(nixl.PathVariable) == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("no NIXL library: run `make deps` or set " + nixl.PathVariable)
		}
		t.Skip("no NIXL library: run `make deps` or set " + nixl.PathVariable)
	}
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
