//go:build !linux

package server

import (
	"net"
	"time"
)

// noteArrivals does nothing: here the moment of reading counts.
func noteArrivals(net.Listener) {}

// source reads from a client.
type source struct{ conn net.Conn }

func newSource(nc net.Conn) *source { return &source{nc} }

// read is Read, and says when it was.
func (s *source) read(p []byte) (n int, at time.Time, err error) {
	n, err = s.conn.Read(p)
	return n, time.Now(), err
}
