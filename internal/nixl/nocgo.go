//go:build !cgo || !linux

package nixl

import "fmt"

// open refuses: without cgo there is no way to call a C library.
func open(string) (driver, Info, error) {
	return nil, Info{}, fmt.Errorf("nixl: %w: this program was built without cgo (CGO_ENABLED=0) or not for Linux", ErrUnsupported)
}

func ucxVersion() string { return "" }
