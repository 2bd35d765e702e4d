package token

import "unicode/utf8"

// sequence looks at the first character of b, which is not empty. It returns the length of the character when it is whole
// and valid; or, with bad, the length of the longest start of a character that is there (at least 1): what one U+FFFD stands
// for; or, with open, that b ends inside a character that more bytes could complete. These are the rules of Unicode's
// "maximal subpart" practice, which Go's own decoding does not follow.
func sequence(b []byte) (n int, bad, open bool) {
	var need int
	low, high := byte(0x80), byte(0xBF) // of the second byte
	switch c := b[0]; {
	case c < 0x80:
		return 1, false, false
	case c < 0xC2:
		return 1, true, false
	case c < 0xE0:
		need = 2
	case c < 0xF0:
		need = 3
		if c == 0xE0 {
			low = 0xA0
		} else if c == 0xED {
			high = 0x9F
		}
	case c < 0xF5:
		need = 4
		if c == 0xF0 {
			low = 0x90
		} else if c == 0xF4 {
			high = 0x8F
		}
	default:
		return 1, true, false
	}
	for n = 1; n < need; n++ {
		if n == len(b) {
			return n, false, true
		}
		if b[n] < low || b[n] > high {
			return n, true, false
		}
		low, high = 0x80, 0xBF
	}
	return need, false, false
}

const replacement = string(utf8.RuneError)

// appendLossy appends b as valid UTF-8, each bad part as one U+FFFD. It returns the length of an unfinished character at the
// end of b, which is not appended.
func appendLossy(dst, b []byte) ([]byte, int) {
	start := 0
	for i := 0; i < len(b); {
		n, bad, open := sequence(b[i:])
		if open {
			return append(dst, b[start:i]...), n
		}
		if bad {
			dst = append(append(dst, b[start:i]...), replacement...)
			start = i + n
		}
		i += n
	}
	return append(dst, b[start:]...), 0
}
