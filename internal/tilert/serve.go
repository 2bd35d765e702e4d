package tilert

import (
	"fmt"
	"io"
)

// Host is the owner of a Receiver as one connection sees it. It adds the lock and the clock.
type Host interface {
	Hello() Hello
	Admit(*Request) (Reply, *Writer)
	Done(*Writer)
	Leave(*Writer)
}

// Serve runs one connection of a receiver: hello, request, answer, done. It returns when the rank is done, was refused
// or is gone; nil means done. Whatever happened, the host's books are right afterwards. A connection that only wants to
// read the hello ends with io.EOF and has no other effect. The caller closes rw.
func Serve(rw io.ReadWriter, protocol Protocol, host Host) error {
	if err := WriteFrame(rw, host.Hello()); err != nil {
		return err
	}
	b, err := ReadFrame(rw, nil)
	if err != nil {
		return err
	}
	req, err := ParseRequest(b)
	if err != nil {
		return err
	}
	reply, w := host.Admit(req)
	if w != nil {
		defer host.Leave(w)
	}
	if protocol != Protocol1 || w == nil {
		if err := WriteFrame(rw, reply); err != nil {
			return err
		}
	}
	if w == nil {
		return fmt.Errorf("%w: %s", ErrRefused, reply.Reason)
	}
	if b, err = ReadFrame(rw, b); err != nil {
		return fmt.Errorf("rank %d of %s left before it was done: %w", w.Rank, w.RID, err)
	}
	if _, err := ParseDone(b); err != nil {
		return err
	}
	host.Done(w)
	return nil
}
