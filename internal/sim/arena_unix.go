//go:build unix

package sim

import "golang.org/x/sys/unix"

// mapMemory returns n bytes of zeroed memory outside the Go heap: a buffer of many gigabytes costs only what is
// written into it, and the garbage collector does not count it.
func mapMemory(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|mapNoReserve)
}

func unmapMemory(b []byte) error { return unix.Munmap(b) }
