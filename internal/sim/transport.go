package sim

import (
	"context"

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
	// open reaches the arena of the node whose hello was read from host.
	open(ctx context.Context, host string, h *tilert.Hello) (stream, error)
}

// stream carries the writes of one rank for one request.
type stream interface {
	// write moves one piece. fill makes bytes of it: it is called with the piece's consecutive parts, each of whole rows.
	write(w tilert.Write, row int, fill func(part []byte, from int)) error
	// flush returns when all pieces are in the other node's memory.
	flush() error
	close() error
}
