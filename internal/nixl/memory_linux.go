package nixl

import (
	"os"

	"golang.org/x/sys/unix"
)

// adviseHuge asks for huge pages. A kernel that has none to give goes on with small ones.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }

// mapHuge maps n bytes of reserved huge pages.
func mapHuge(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_HUGETLB|unix.MAP_HUGE_2MB)
	return b, os.NewSyscallError("mmap", err)
}
