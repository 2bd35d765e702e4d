package sim

import "golang.org/x/sys/unix"

const mapNoReserve = unix.MAP_NORESERVE

// keepSparse undoes a wish for huge pages: a prompt touches hundreds of places that lie megabytes apart.
func keepSparse(b []byte) { _ = unix.Madvise(b, unix.MADV_NOHUGEPAGE) }
