//go:build unix

package sim

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// gone reports whether the other side has closed the connection. It looks at the socket without taking bytes from it.
func gone(c net.Conn) bool {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	ended := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		ended = n == 0 && err == nil || err != nil && err != unix.EAGAIN && err != unix.EINTR
	})
	return ended || err != nil
}
