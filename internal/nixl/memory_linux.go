package nixl

import "golang.org/x/sys/unix"

// adviseHuge asks for huge pages. A kernel that has none to give goes on with small ones.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }
