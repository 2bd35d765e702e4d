package scenario

import (
	"os"
	"path/filepath"
	"testing"

	"pd-router/internal/nixl"
)

// useNIXL gives the nodes of a test the NIXL library, over loopback. A test without the library is skipped; in CI it fails.
func useNIXL(t *testing.T) {
	t.Helper()
	path := os.Getenv(nixl.PathVariable)
	if path == "" {
		cache := os.Getenv("PD_ROUTER_CACHE")
		if base, err := os.UserCacheDir(); cache == "" && err == nil {
			cache = filepath.Join(base, "pd-router-ci")
		}
		path = filepath.Join(cache, "nixl/lib/.nixl_cu12.mesonpy.libs/libnixl_capi.so")
	}
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("no NIXL library: run `make deps` or set " + nixl.PathVariable)
		}
		t.Skip("no NIXL library: run `make deps` or set " + nixl.PathVariable)
	}
	for name, value := range map[string]string{nixl.PathVariable: path, "UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo"} {
		if os.Getenv(name) == "" {
			t.Setenv(name, value)
		}
	}
}
