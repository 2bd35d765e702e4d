package openai

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"unicode/utf8"
)

// Long strings are nearly all of a large body, so they are read eight bytes at a time: arithmetic on a word tells whether one of its
// bytes needs a look.
const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special has the high bit set of the first byte of w that is no plain character of a string: a quote, a backslash, a control
// character, or part of a character outside ASCII (from 0xA0 the first difference shows it, below that both others do). Bits above
// that one may be wrong, as borrows run upwards; none is missing.
func special(w uint64) uint64 {
	quote, backslash := w^('"'*ones), w^('\\'*ones) // a zero byte where one stands
	return ((w - ' '*ones) | (quote - ones) | (backslash - ones)) & highs
}

// firstByte is the index of the lowest byte of a word that has a bit set.
func firstByte(mask uint64) int { return bits.TrailingZeros64(mask) / 8 }

func word(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[i : i+8]) }

// scanString checks the rest of a string, from the byte after its opening quote, and returns the index after its closing quote.
func scanString(b []byte, i int) (int, *syntaxError) {
	for {
		if len(b)-i >= 8 {
			m := special(word(b, i))
			if m == 0 {
				i = skipPlain(b, i+8)
				continue
			}
			i += firstByte(m)
		} else if i = skipPlainBytes(b, i); i >= len(b) {
			return 0, &syntaxError{len(b), "the text ends inside a string"}
		}
		switch c := b[i]; {
		case c == '\\':
			if i+1 < len(b) && shortEscape[b[i+1]] {
				i += 2
			} else if _, ok := hex4(b[min(i+2, len(b)):]); ok && b[i+1] == 'u' {
				i += 6
			} else {
				return 0, &syntaxError{i, "a wrong escape in a string"}
			}
		case c == '"':
			return i + 1, nil
		case c < ' ':
			return 0, &syntaxError{i, fmt.Sprintf("control character 0x%02x in a string", c)}
		default:
			end, ok := skipMultibyte(b, i)
			if !ok {
				return 0, &syntaxError{end, "bytes that are not UTF-8"}
			}
			i = end
		}
	}
}

// skipPlain goes over plain ASCII characters of a string, 32 at a time. The next 32 need a look, or there are no 32.
func skipPlain(b []byte, i int) int {
	for len(b)-i >= 32 {
		block := b[i : i+32]
		if special(word(block, 0)) != 0 || special(word(block, 8))|special(word(block, 16))|special(word(block, 24)) != 0 {
			return i
		}
		i += 32
	}
	return i
}

// skipPlainBytes returns the index of the first byte from i on that is no plain ASCII character of a string, or len(b).
func skipPlainBytes(b []byte, i int) int {
	for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' && b[i] < utf8.RuneSelf {
		i++
	}
	return i
}

// shortEscape has the characters that make an escape with the backslash before them alone.
var shortEscape = [256]bool{'"': true, '\\': true, '/': true, 'b': true, 'f': true, 'n': true, 'r': true, 't': true}

// hex4 reads the four hexadecimal digits of a \u escape.
func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case 'A' <= c && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// Two characters of three bytes in the low six bytes of a word, as in Chinese and Japanese text; four of two bytes in all eight, as
// in Russian and Greek.
const (
	threeByteMask  = 0x0000C0C0F0C0C0F0
	threeByteShape = 0x00008080E08080E0
	twoByteMask    = 0xC0E0C0E0C0E0C0E0
	twoByteShape   = 0x80C080C080C080C0
	twoByteLead    = 0x001E001E001E001E // no bit of a lead byte set here: it is C0 or C1, which are none
)

// skipMultibyte goes over characters outside ASCII, from b[i] on, and over single plain ones between them (a space, a comma). If
// the bytes are not UTF-8 it returns the index of the first wrong one and false.
func skipMultibyte(b []byte, i int) (int, bool) {
	for len(b)-i >= 8 {
		w := word(b, i)
		switch {
		// Lead bytes E0 and ED restrict what may follow and are left to the general way.
		case w&threeByteMask == threeByteShape && (1<<(w&15)|1<<(w>>24&15))&(1<<0|1<<13) == 0:
			i += 6
		case w&twoByteMask == twoByteShape && zeroLane(w&twoByteLead) == 0:
			i += 8
		case w&0xC0E0 == 0x80C0 && w&0x1E != 0: // one of two bytes
			i += 2
		case w&0x80 == 0:
			if special(w)&0x80 != 0 || w&0x8000 == 0 {
				return i, true
			}
			i++
		default:
			r, size := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && size == 1 {
				return i, false
			}
			i += size
		}
	}
	for i < len(b) && b[i] >= utf8.RuneSelf {
		r, size := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && size == 1 {
			return i, false
		}
		i += size
	}
	return i, true
}

// zeroLane is not 0 if one of the four 16-bit lanes of w, each at most 0x1E, is 0.
func zeroLane(w uint64) uint64 { return ^(w + 0x007E007E007E007E) & 0x0080008000800080 }
