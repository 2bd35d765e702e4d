package nodes

import (
	"bytes"
	"errors"
	"io"
)

var errChunk = errors.New("malformed chunked body")

// body is the framing of a reply's body: where in the connection's buffer its bytes are.
type body struct {
	done     bool
	untilEOF bool
	chunked  bool
	left     int64 // bytes left of the body (length known) or of the current chunk
	needCRLF bool  // the line end after a chunk is still to come
	trailer  bool  // the last chunk is over, the trailer section is not
	pending  []byte
}

func (b *body) begin(r *Response, method string) {
	*b = body{pending: b.pending[:0]}
	switch {
	case method == "HEAD" || r.Status == 204 || r.Status == 304:
		b.done = true
	case r.chunked:
		b.chunked = true
	case r.length >= 0:
		b.left, b.done = r.length, r.length == 0
	default:
		b.untilEOF = true
		r.closing = true
	}
}

// part returns the bytes of the body that lie next in the buffer, passing over framing. An empty part without
// an error asks for more input; io.EOF is the end of the body.
func (b *body) part(c *conn) ([]byte, error) {
	for {
		if b.done {
			return nil, io.EOF
		}
		have := c.buf[c.r:c.w]
		if !b.chunked {
			if !b.untilEOF && int64(len(have)) > b.left {
				have = have[:b.left]
			}
			return have, nil
		}
		if b.left > 0 {
			return have[:min(b.left, int64(len(have)))], nil
		}
		i := bytes.IndexByte(have, '\n')
		if i < 0 {
			if len(have) > 4096 {
				return nil, errChunk
			}
			return nil, nil
		}
		line := bytes.TrimSuffix(have[:i], []byte("\r"))
		c.r += i + 1
		if err := b.frame(line); err != nil {
			return nil, err
		}
	}
}

// frame takes one line of chunk framing: the end of a chunk, a chunk's size, or a line of the trailer section.
func (b *body) frame(line []byte) error {
	switch {
	case b.trailer:
		b.done = len(line) == 0
	case b.needCRLF:
		if len(line) > 0 {
			return errChunk
		}
		b.needCRLF = false
	default:
		size, err := chunkSize(line)
		if err != nil {
			return err
		}
		b.left, b.needCRLF, b.trailer = size, size > 0, size == 0
	}
	return nil
}

func chunkSize(line []byte) (int64, error) {
	if i := bytes.IndexByte(line, ';'); i >= 0 {
		line = line[:i]
	}
	line = bytes.TrimRight(line, " \t")
	if len(line) == 0 || len(line) > 15 {
		return 0, errChunk
	}
	var n int64
	for _, ch := range line {
		switch {
		case ch >= '0' && ch <= '9':
			n = n<<4 | int64(ch-'0')
		case ch >= 'a' && ch <= 'f':
			n = n<<4 | int64(ch-'a'+10)
		case ch >= 'A' && ch <= 'F':
			n = n<<4 | int64(ch-'A'+10)
		default:
			return 0, errChunk
		}
	}
	return n, nil
}

// use marks n bytes of the last part as used.
func (b *body) use(c *conn, n int) {
	c.r += n
	if b.untilEOF {
		return
	}
	b.left -= int64(n)
	if !b.chunked && b.left == 0 {
		b.done = true
	}
}

// line returns the next line. It lies in the connection's buffer unless it spans chunks or reads: then it is
// put together in pending.
func (b *body) line(r *Response) ([]byte, error) {
	b.pending = b.pending[:0]
	for {
		part, err := r.more(maxHead)
		if err == io.EOF && len(b.pending) > 0 {
			return b.pending, nil
		}
		if err != nil {
			return nil, err
		}
		i := bytes.IndexByte(part, '\n')
		if i < 0 {
			if len(b.pending)+len(part) > maxLine {
				return nil, errors.New("a line of the reply is too long")
			}
			b.pending = append(b.pending, part...)
			b.use(r.conn, len(part))
			continue
		}
		b.use(r.conn, i+1)
		if len(b.pending) == 0 {
			return part[:i], nil
		}
		b.pending = append(b.pending, part[:i]...)
		return b.pending, nil
	}
}

// ready looks ahead without waiting: is there a whole line of the current chunk, or of the next, in the buffer?
func (b *body) ready(c *conn) bool {
	if b.done {
		return true
	}
	have := c.buf[c.r:c.w]
	switch {
	case b.chunked && b.left > 0:
		have = have[:min(b.left, int64(len(have)))]
	case b.chunked:
		// Between two chunks: framing and the first line of the next chunk each end in a line feed.
		frames := 1
		if b.needCRLF {
			frames = 2
		}
		for range frames {
			i := bytes.IndexByte(have, '\n')
			if i < 0 {
				return false
			}
			have = have[i+1:]
		}
	}
	return bytes.IndexByte(have, '\n') >= 0
}
