//go:build unix

package nodes

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// alive reports whether an idle connection can carry a call, as far as this machine knows: the other side has neither closed it nor sent
// what nobody asked for. It looks at the socket without taking bytes from it.
func (c *conn) alive() bool {
	sc, ok := c.Conn.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		quiet = err == unix.EAGAIN || err == unix.EINTR
	})
	return quiet && err == nil
}
