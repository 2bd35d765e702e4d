//go:build !unix

package sim

func mapMemory(n int) ([]byte, error) { return make([]byte, n), nil }

func unmapMemory([]byte) error { return nil }

func keepSparse([]byte) {}
