package server

import "time"

// Requests are served in the order in which they arrived at this machine, which need not be that in which their goroutines
// come to read them: while the process has no processor, requests gather in the kernel, and the runtime wakes their readers
// in an order of its own. The kernel notes when data came, which no client can forge.

// Read is fasthttp's. It notes when what it returns had come.
func (c *conn) Read(p []byte) (int, error) {
	n, at, err := c.in.read(p)
	if n > 0 {
		c.came = at
	}
	return n, err
}

// arrived is when the last byte of the request had come that was read whole just now. A request that was sent ahead of the
// reply to another on the same connection arrives no earlier than that reply goes out. Zero is now: all of it was read
// together with a request before it.
func (c *conn) arrived() time.Time {
	at := c.came
	c.came = time.Time{}
	if !at.IsZero() && at.Before(c.wrote) {
		return c.wrote
	}
	return at
}
