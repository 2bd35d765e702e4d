package token

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner walks over JSON without building values. The big parts of a tokenizer.json, the vocabulary and the merges, are
// hundreds of thousands of small strings; walking over them is twenty times faster than decoding them. It checks the
// structure that it needs and no more: what is skipped only has to have balanced brackets and closed strings.
type scanner struct {
	b []byte
	i int
}

var errEnd = errors.New("unexpected end of JSON")

func (s *scanner) errorf(format string, args ...any) error {
	return fmt.Errorf("byte %d: %s", s.i, fmt.Sprintf(format, args...))
}

// peek returns the next byte that is not white space, or 0 at the end.
func (s *scanner) peek() byte {
	for ; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; c {
		case ' ', '\n', '\t', '\r':
		default:
			return c
		}
	}
	return 0
}

// take consumes the byte c, after white space.
func (s *scanner) take(c byte) error {
	switch got := s.peek(); got {
	case c:
		s.i++
		return nil
	case 0:
		return errEnd
	default:
		return s.errorf("want %q, got %q", c, got)
	}
}

// list walks over the comma-separated items between open and end; item consumes one.
func (s *scanner) list(open, end byte, item func() error) error {
	if err := s.take(open); err != nil {
		return err
	}
	if s.peek() == end {
		s.i++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		switch c := s.peek(); c {
		case ',':
			s.i++
		case end:
			s.i++
			return nil
		case 0:
			return errEnd
		default:
			return s.errorf("want ',' or %q, got %q", end, c)
		}
	}
}

// object walks over an object; value consumes the value of key.
func (s *scanner) object(value func(key text) error) error {
	return s.list('{', '}', func() error {
		key, err := s.string()
		if err != nil {
			return err
		}
		if err := s.take(':'); err != nil {
			return err
		}
		return value(key)
	})
}

// array walks over an array; element consumes one element.
func (s *scanner) array(element func() error) error { return s.list('[', ']', element) }

// text is a JSON string as it stands in the file: b[start:end] is what the quotes enclose.
type text struct {
	start, end uint32
	escaped    bool // holds a backslash, so that it must be decoded
}

// string consumes a string.
func (s *scanner) string() (text, error) {
	if err := s.take('"'); err != nil {
		return text{}, err
	}
	b, i := s.b, s.i // in registers
	t := text{start: uint32(i)}
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			t.end, s.i = uint32(i), i+1
			return t, nil
		case '\\':
			t.escaped = true
			i++
		}
	}
	return text{}, errEnd
}

// decode returns the text's bytes: a part of the file, or appended to scratch[:0] when there are escapes.
func (s *scanner) decode(scratch []byte, t text) ([]byte, error) {
	raw := s.b[t.start:t.end]
	if !t.escaped {
		return raw, nil
	}
	return unescape(scratch[:0], raw)
}

// is tells whether an object's key is name. Keys with escapes never are: no writer escapes the names used here.
func (s *scanner) is(t text, name string) bool {
	return !t.escaped && string(s.b[t.start:t.end]) == name
}

// uint consumes a non-negative integer that is at most limit.
func (s *scanner) uint(limit int) (int, error) {
	s.peek()
	start, n := s.i, 0
	for ; s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9'; s.i++ {
		if n = n*10 + int(s.b[s.i]-'0'); n > limit {
			return 0, s.errorf("token id %s... is more than %d", s.b[start:s.i+1], limit)
		}
	}
	if s.i == start {
		return 0, s.errorf("want a token id")
	}
	if s.i < len(s.b) && bytes.IndexByte([]byte(".eE"), s.b[s.i]) >= 0 {
		return 0, s.errorf("a token id must be an integer")
	}
	return n, nil
}

// skip consumes any value and returns its bytes.
func (s *scanner) skip() ([]byte, error) {
	first, start := s.peek(), s.i
	switch first {
	case 0:
		return nil, errEnd
	case '"':
		_, err := s.string()
		return s.b[start:s.i], err
	case '{', '[':
		return s.skipNested(start)
	}
	for ; s.i < len(s.b); s.i++ { // a number, true, false or null
		switch s.b[s.i] {
		case ',', ']', '}', ' ', '\n', '\t', '\r':
			return s.b[start:s.i], nil
		}
	}
	return s.b[start:s.i], nil
}

func (s *scanner) skipNested(start int) ([]byte, error) {
	b, depth := s.b, 0
	for i := start; i < len(b); i++ {
		switch b[i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				s.i = i + 1
				return b[start:s.i], nil
			}
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		}
	}
	return nil, errEnd
}

// simpleEscapes maps the letter after a backslash to its meaning; 0 is no escape.
var simpleEscapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// unescape appends the meaning of a JSON string's inside.
func unescape(dst, raw []byte) ([]byte, error) {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(dst, raw...), nil
		}
		dst, raw = append(dst, raw[:i]...), raw[i:]
		if len(raw) < 2 {
			return nil, errEnd
		}
		if c := simpleEscapes[raw[1]]; c != 0 {
			dst, raw = append(dst, c), raw[2:]
			continue
		}
		r, ok := hex4(raw)
		if !ok {
			return nil, fmt.Errorf("bad escape %q in a string", raw[:2])
		}
		raw = raw[6:]
		if utf16.IsSurrogate(r) {
			low, ok := hex4(raw)
			if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
				return nil, errors.New("half of a surrogate pair in a string")
			}
			raw = raw[6:]
		}
		dst = utf8.AppendRune(dst, r)
	}
}

// hex4 reads the \uXXXX that raw begins with.
func hex4(raw []byte) (r rune, ok bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	for _, c := range raw[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
