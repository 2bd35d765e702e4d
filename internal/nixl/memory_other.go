//go:build !linux

package nixl

// adviseHuge is for Linux only.
func adviseHuge([]byte) {}
