package sim

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"pd-router/internal/nixl"
	"pd-router/internal/tilert"
)

// inlet is the receiving end of a transport: it lets others write into an arena.
type inlet interface {
	// announce completes the hello with what a sender needs to reach the arena.
	announce(h *tilert.Hello)
	// serve runs until close, and returns when nothing writes into the arena any more.
	serve()
	close() error
}

// outlet is the sending end of a transport.
type outlet interface {
	name() string
	// open reaches the arena of the node whose hello was read from the control port at host and port.
	open(ctx context.Context, host string, port int, h *tilert.Hello) (stream, error)
	// close ends the transport. No stream is open any more.
	close() error
}

// stream carries the writes of one rank for one request.
type stream interface {
	// write moves one piece. fill makes bytes of it: it is called with the piece's consecutive parts, each of whole rows.
	write(w tilert.Write, row int, fill func(part []byte, from int)) error
	// group ends a group of pieces: what was written so far is all that there is for now.
	group() error
	// flush returns when all pieces are in the other node's memory.
	flush() error
	close() error
}

// noOutlet is the name of a transport, for handshakes without bytes.
type noOutlet string

func (o noOutlet) name() string { return string(o) }
func (noOutlet) close() error   { return nil }

func (noOutlet) open(context.Context, string, int, *tilert.Hello) (stream, error) {
	panic("BUG: a handshake without bytes opens no stream")
}

// loadNIXL gives the library, which a process loads once.
var loadNIXL = sync.OnceValues(func() (*nixl.Library, error) { return nixl.Open(nixl.Options{}) })

// choice is which transport a node has, and how it came to that.
type choice struct {
	want string                        // an option --transport
	load func() (*nixl.Library, error) // loadNIXL
	made string                        // for people, once the transport was chosen
}

// tryNIXL runs open with the library if nixl is wanted, and tells whether it is the transport now. Where the choice is
// left open, whatever stands in the way of it is only a reason for the other one.
func (c *choice) tryNIXL(open func(*nixl.Library) error) (bool, error) {
	if c.want == TransportTCP {
		c.made = TransportTCP
		return false, nil
	}
	lib, err := c.load()
	if err == nil {
		err = open(lib)
	}
	switch {
	case err == nil:
		c.made = fmt.Sprintf("%s (UCX %s, %s)", TransportNIXL, lib.UCX(), lib.Info().Path)
		return true, nil
	case c.want == TransportNIXL:
		return false, fmt.Errorf("--transport=%s: %w", TransportNIXL, err)
	}
	c.made = fmt.Sprintf("%s (%s)", TransportTCP, strings.Join(strings.Fields(err.Error()), " "))
	return false, nil
}
