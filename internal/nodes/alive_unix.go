//go:build unix

package nodes

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// peek is what alive needs, made once for each connection: it is on the way of every call.
type peek struct {
	raw  syscall.RawConn
	look func(fd uintptr)
	ask  [1]unix.PollFd // and what was answered
}

func (p *peek) poll(fd uintptr) {
	p.ask[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	_, _ = unix.Poll(p.ask[:], 0) // after an error nothing is answered, and nothing known
}

// alive reports whether an idle connection can carry a call, as far as this machine knows: the other side has neither closed it nor sent
// what nobody asked for. It looks at the socket without taking bytes from it.
func (c *conn) alive() bool {
	p := &c.peek
	if p.raw == nil {
		sc, ok := c.Conn.(syscall.Conn)
		if !ok {
			return true
		}
		raw, err := sc.SyscallConn()
		if err != nil {
			return false
		}
		p.raw, p.look = raw, p.poll
	}
	return p.raw.Control(p.look) == nil && p.ask[0].Revents == 0
}
