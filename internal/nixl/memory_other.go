//go:build !linux

package nixl

import "errors"

// adviseHuge is for Linux only.
func adviseHuge([]byte) {}

func mapHuge(int) ([]byte, error) { return nil, errors.ErrUnsupported }
