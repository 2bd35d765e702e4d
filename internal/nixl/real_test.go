package nixl

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tests real_*_test.go play with the real library, over TCP on loopback. `make deps` fetches it.

// realPath finds the library that `make deps` or the environment provides.
func realPath() string {
	if path := os.Getenv(PathVariable); path != "" {
		return path
	}
	cache := os.Getenv("PD_ROUTER_CACHE")
	if cache == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return ""
		}
		cache = filepath.Join(base, "pd-router-ci")
	}
	path := filepath.Join(cache, "nixl/lib/.nixl_cu12.mesonpy.libs/libnixl_capi.so")
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

var openReal = sync.OnceValues(func() (*Library, error) { return Open(Options{Path: realPath()}) })

// realLibrary is the library, or the end of the test: skipped here, failed in CI, where nothing may go untested.
func realLibrary(t testing.TB) *Library {
	t.Helper()
	if realPath() == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("no NIXL library: run `make deps` or set " + PathVariable)
		}
		t.Skip("no NIXL library: run `make deps` or set " + PathVariable)
	}
	lib, err := openReal()
	require.NoError(t, err)
	return lib
}
