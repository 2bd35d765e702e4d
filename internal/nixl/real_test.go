package nixl

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"pd-router/internal/nixl/nixltest"
)

// The tests real_*_test.go play with the real library, over TCP on loopback. `make deps` fetches it.

var openReal = sync.OnceValues(func() (*Library, error) { return Open(Options{Path: nixltest.Path()}) })

// realLibrary is the library, or the end of the test: skipped here, failed in CI, where nothing may go untested.
func realLibrary(t testing.TB) *Library {
	t.Helper()
	nixltest.Need(t)
	lib, err := openReal()
	require.NoError(t, err)
	return lib
}
