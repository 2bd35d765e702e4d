package server

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// noteArrivals has the kernel note when data comes, on all connections of ln. Where it cannot, the moment of reading counts.
func noteArrivals(ln net.Listener) {
	sc, ok := ln.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := sc.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) })
	}
}

// source reads from a client. It belongs to the goroutine that serves the connection.
type source struct {
	conn net.Conn
	raw  syscall.RawConn       // nil when the connection has no descriptor
	try  func(fd uintptr) bool // receive, bound once
	into []byte                // of the running read, as is all below
	note [noteSpace]byte       // what the kernel says beside the data
	n    int                   // bytes received
	nn   int                   // bytes of note
	err  error
}

const (
	stampSize = 16 // of a timespec of two words; elsewhere the moment of reading counts
	noteSpace = 64 // more than the one note that is asked for
)

func newSource(nc net.Conn) *source {
	s := &source{conn: nc}
	if sc, ok := nc.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			s.raw, s.try = raw, s.receive
		}
	}
	return s
}

// read is Read, and says when the last of what it returns came to this machine.
func (s *source) read(p []byte) (n int, at time.Time, err error) {
	if s.raw == nil || len(p) == 0 {
		n, err = s.conn.Read(p)
		return n, time.Now(), err
	}
	s.into = p
	err = s.raw.Read(s.try)
	s.into = nil
	switch {
	case err != nil: // the deadline, or closed
		return 0, at, err
	case s.err != nil:
		return 0, at, &net.OpError{Op: "read", Net: "tcp", Source: s.conn.LocalAddr(), Addr: s.conn.RemoteAddr(), Err: os.NewSyscallError("recvmsg", s.err)}
	case s.n == 0:
		return 0, at, io.EOF
	}
	now := time.Now()
	return s.n, now.Add(-age(s.note[:s.nn], now)), nil
}

// receive is false when there is nothing to be had.
func (s *source) receive(fd uintptr) bool {
	for {
		s.n, s.nn, _, _, s.err = unix.Recvmsg(int(fd), s.into, s.note[:], 0)
		if s.err != unix.EINTR {
			return s.err != unix.EAGAIN
		}
	}
}

// age is how long ago the kernel noted data, by the clock that it uses for that and that may have been set since; 0 when it
// noted nothing.
func age(note []byte, now time.Time) time.Duration {
	if len(note) < unix.CmsgSpace(stampSize) {
		return 0
	}
	head, stamp, _, err := unix.ParseOneSocketControlMessage(note)
	if err != nil || head.Level != unix.SOL_SOCKET || head.Type != unix.SCM_TIMESTAMPNS || len(stamp) != stampSize {
		return 0
	}
	at := time.Unix(int64(binary.NativeEndian.Uint64(stamp)), int64(binary.NativeEndian.Uint64(stamp[8:])))
	return max(0, now.Round(0).Sub(at))
}
