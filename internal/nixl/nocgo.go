//go:build !cgo || !linux

package nixl

// open refuses: without cgo there is no way to call a C library.
func open(string) (driver, Info, error) {
	return nil, Info{}, errNoC
}

func ucxVersion() string { return "" }
