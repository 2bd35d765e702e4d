package tilert

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// MaxFrame is the largest payload of a control-plane frame, in bytes. A longer one ends the connection (spec 2.1).
const MaxFrame = 16 << 20

// ErrFrameTooLong is a declared length above MaxFrame.
var ErrFrameTooLong = errors.New("control frame longer than 16 MiB")

// ReadFrame reads one frame, a 4-byte big-endian length and as many bytes, and returns its payload in buf's memory or in
// larger memory. io.EOF means that the stream ended between frames, io.ErrUnexpectedEOF that it ended inside one. Memory
// grows with the bytes that really came, not with the length that a stranger declares.
func ReadFrame(r io.Reader, buf []byte) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if n > MaxFrame {
		return nil, ErrFrameTooLong
	}
	const step = 64 << 10
	buf = buf[:0]
	for len(buf) < n {
		part := min(n-len(buf), max(step, cap(buf)-len(buf)))
		buf = slices.Grow(buf, part)[:len(buf)+part]
		if _, err := io.ReadFull(r, buf[len(buf)-part:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return buf, nil
}

// WriteFrame writes v as JSON in one frame, in one Write.
func WriteFrame(w io.Writer, v any) error {
	b, err := AppendFrame(nil, v)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// AppendFrame appends the frame that carries v as JSON.
func AppendFrame(dst []byte, v any) ([]byte, error) {
	payload, err := json.Marshal(v)
	if err != nil {
		return dst, fmt.Errorf("control frame: %w", err)
	}
	if len(payload) > MaxFrame {
		return dst, ErrFrameTooLong
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(payload)))
	return append(dst, payload...), nil
}
