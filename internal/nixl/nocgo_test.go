//go:build !cgo || !linux

package nixl

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Invariant 8.
func TestOpenRefusesWithoutCgo(t *testing.T) {
	lib, err := Open(Options{})
	require.Nil(t, lib)
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "CGO_ENABLED=0")
}
