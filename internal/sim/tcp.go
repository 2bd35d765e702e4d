package sim

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"pd-router/internal/tilert"
)

// The TCP transport moves bytes to absolute addresses of the other node, as RDMA does: nobody checks whether the buffer
// is anybody's. A connection carries pieces, each a head of two little-endian 64-bit words, address and length, and its
// bytes. A head of length 0 asks for an answer, a single byte: all pieces before it are in memory.

const (
	pieceHead   = 16
	dataTimeout = 60 * time.Second // without a byte
)

// tcpInlet takes writes on a data port.
type tcpInlet struct {
	ln    *listener
	arena *arena
	bad   func() // counts a write outside the arena
}

func (in *tcpInlet) announce(h *tilert.Hello) {
	h.Transport, h.DataPort = TransportTCP, in.ln.port()
}

func (in *tcpInlet) serve()       { in.ln.each(in.take) }
func (in *tcpInlet) close() error { return in.ln.Close() }

// inletReaders are there for the heads and for small pieces; large ones go by them.
var inletReaders = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 64<<10) }}

// take serves one connection. A piece that does not lie in the arena ends it, as a fault of the network card would.
func (in *tcpInlet) take(c net.Conn) {
	defer c.Close()
	r := inletReaders.Get().(*bufio.Reader)
	defer inletReaders.Put(r)
	r.Reset(c)
	var head [pieceHead]byte
	for {
		_ = c.SetReadDeadline(time.Now().Add(dataTimeout))
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return
		}
		addr, n := binary.LittleEndian.Uint64(head[:]), binary.LittleEndian.Uint64(head[8:])
		if n == 0 {
			if _, err := c.Write([]byte{1}); err != nil {
				return
			}
			continue
		}
		room, ok := in.arena.at(addr, n)
		if !ok {
			in.bad()
			return
		}
		for len(room) > 0 { // in parts, so that a slow sender does not run into the deadline
			part := room[:min(len(room), 4<<20)]
			_ = c.SetReadDeadline(time.Now().Add(dataTimeout))
			if _, err := io.ReadFull(r, part); err != nil {
				return
			}
			room = room[len(part):]
		}
	}
}

// tcpOutlet reaches data ports.
type tcpOutlet struct{}

func (tcpOutlet) name() string { return TransportTCP }
func (tcpOutlet) close() error { return nil }

func (tcpOutlet) open(ctx context.Context, host string, _ int, h *tilert.Hello) (stream, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp4", net.JoinHostPort(host, strconv.Itoa(h.DataPort)))
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	return &tcpStream{c: c, stop: stop, buf: (*streamBuffers.Get().(*[streamBuffer]byte))[:0]}, nil
}

const streamBuffer = 256 << 10

var streamBuffers = sync.Pool{New: func() any { return new([streamBuffer]byte) }}

type tcpStream struct {
	c    net.Conn
	stop func() bool
	buf  []byte // not yet written
}

func (s *tcpStream) write(w tilert.Write, row int, fill func(part []byte, from int)) error {
	if w.Len == 0 {
		return nil // a head of length 0 means something else
	}
	if err := s.head(w.Dst, uint64(w.Len)); err != nil {
		return err
	}
	for from := 0; from < w.Len; {
		room := (cap(s.buf) - len(s.buf)) / row * row
		if room == 0 {
			if err := s.push(); err != nil {
				return err
			}
			continue
		}
		n := min(room, w.Len-from)
		s.buf = s.buf[:len(s.buf)+n]
		fill(s.buf[len(s.buf)-n:], from)
		from += n
	}
	return nil
}

// group leaves the bytes in the buffer, which goes out when it is full.
func (s *tcpStream) group() error { return nil }

func (s *tcpStream) flush() error {
	if err := s.head(0, 0); err != nil {
		return err
	}
	if err := s.push(); err != nil {
		return err
	}
	var answer [1]byte
	_ = s.c.SetReadDeadline(time.Now().Add(dataTimeout))
	if _, err := s.c.Read(answer[:]); err != nil {
		return fmt.Errorf("data port: %w", err)
	}
	return nil
}

func (s *tcpStream) head(addr, n uint64) error {
	if cap(s.buf)-len(s.buf) < pieceHead {
		if err := s.push(); err != nil {
			return err
		}
	}
	s.buf = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(s.buf, addr), n)
	return nil
}

func (s *tcpStream) push() error {
	_ = s.c.SetWriteDeadline(time.Now().Add(dataTimeout))
	_, err := s.c.Write(s.buf)
	s.buf = s.buf[:0]
	if err != nil {
		return fmt.Errorf("data port: %w", err)
	}
	return nil
}

func (s *tcpStream) close() error {
	s.stop()
	if s.buf != nil {
		streamBuffers.Put((*[streamBuffer]byte)(s.buf[:streamBuffer]))
		s.buf = nil
	}
	return s.c.Close()
}
