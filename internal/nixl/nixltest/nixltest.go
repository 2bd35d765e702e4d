package nixltest

import (
	"os"
	"path/filepath"
	"testing"
)

// Variable is nixl.PathVariable.
const Variable = "PD_ROUTER_NIXL_LIBRARY"

// Path is the library that the environment names or `make deps` has fetched, "" when there is neither.
func Path() string {
	if path := os.Getenv(Variable); path != "" {
		return path
	}
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

// Need is Path, or the end of a test without the library: skipped here, failed in CI, where nothing may go untested.
func Need(t testing.TB) string {
	t.Helper()
	path := Path()
	if path == "" {
		const text = "no NIXL library: run `make deps` or set " + Variable
		if os.Getenv("CI") != "" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	return path
}
