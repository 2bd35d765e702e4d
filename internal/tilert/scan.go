package tilert

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// maxDepth bounds the nesting of a value that is skipped or kept raw.
const maxDepth = 64

var (
	errSyntax = errors.New("not valid JSON")
	errUTF8   = errors.New("not valid UTF-8")
	errDepth  = errors.New("nested too deep")
)

// scanner reads one JSON text of known shape without building values. The first error sticks: every later call returns
// a zero value, so that callers check once, at the end.
type scanner struct {
	b   []byte
	i   int
	err error
}

func (s *scanner) fail(err error) {
	if s.err == nil {
		s.err = err
	}
	s.i = len(s.b) // nothing more is read
}

// wrong reports a value of another type than the named field has.
func (s *scanner) wrong(want string) { s.fail(fmt.Errorf("at byte %d: want %s", s.i, want)) }

// peek skips white space and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\r', '\n':
			s.i++
		default:
			return c
		}
	}
	return 0
}

// take consumes c if it is next.
func (s *scanner) take(c byte) bool {
	if s.peek() != c || s.i >= len(s.b) {
		return false
	}
	s.i++
	return true
}

func (s *scanner) need(c byte) {
	if !s.take(c) {
		s.fail(errSyntax)
	}
}

// next steps through the elements of an array or object that ends with closer. first is true until one was read.
func (s *scanner) next(first *bool, closer byte) bool {
	if s.err != nil {
		return false
	}
	if s.take(closer) {
		return false
	}
	if !*first {
		s.need(',')
		if s.peek() == closer {
			s.fail(errSyntax)
		}
	}
	*first = false
	return s.err == nil
}

// literal consumes word if it is next; a longer word is an error of whatever is read afterwards.
func (s *scanner) literal(word string) bool {
	s.peek()
	if len(s.b)-s.i < len(word) || string(s.b[s.i:s.i+len(word)]) != word {
		return false
	}
	s.i += len(word)
	return true
}

// rawString returns the bytes between the quotes, escapes unresolved but checked.
func (s *scanner) rawString() (raw []byte, escaped bool) {
	if s.peek() != '"' {
		s.wrong("a string")
		return nil, false
	}
	start, ascii := s.i+1, true
	for i := start; i < len(s.b); i++ {
		switch c := s.b[i]; {
		case c == '"':
			s.i = i + 1
			raw = s.b[start:i]
			if !ascii && !utf8.Valid(raw) {
				s.fail(errUTF8)
			}
			return raw, escaped
		case c == '\\':
			escaped = true
			if i++; i < len(s.b) && s.b[i] == 'u' {
				for range 4 {
					if i++; i >= len(s.b) || !isHex(s.b[i]) {
						s.fail(errSyntax)
						return nil, false
					}
				}
			} else if i >= len(s.b) || !isEscape(s.b[i]) {
				s.fail(errSyntax)
				return nil, false
			}
		case c < ' ':
			s.fail(errSyntax)
			return nil, false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	s.fail(errSyntax)
	return nil, false
}

// str returns a string value.
func (s *scanner) str() string {
	start := s.i
	raw, escaped := s.rawString()
	if s.err != nil || !escaped {
		return string(raw)
	}
	for s.b[start] != '"' { // white space before it
		start++
	}
	var text string
	if err := json.Unmarshal(s.b[start:s.i], &text); err != nil {
		s.fail(errSyntax)
	}
	return text
}

// key returns a member's name with its colon consumed. Names with escapes match nothing that we know, whatever they say.
func (s *scanner) key() []byte {
	name, _ := s.rawString()
	s.need(':')
	return name
}

// integer returns a number without fraction and exponent, in the range of int32 and not negative.
func (s *scanner) integer(what string) int {
	s.peek()
	start, n := s.i, 0
	for s.i < len(s.b) && s.b[s.i]-'0' <= 9 {
		n = n*10 + int(s.b[s.i]-'0')
		if s.i++; n > math.MaxInt32 {
			s.wrong(what)
			return 0
		}
	}
	if s.i == start || s.i-start > 1 && s.b[start] == '0' {
		s.i = start
		s.wrong(what)
		return 0
	}
	if s.i < len(s.b) && (s.b[s.i] == '.' || s.b[s.i]|0x20 == 'e') {
		s.wrong(what)
		return 0
	}
	return n
}

// logProb returns a number; minus infinity, which Python writes as -Infinity and which is the log-prob of a token that cannot be; or
// NaN for what says nothing: null, and Python's NaN and Infinity.
func (s *scanner) logProb() float64 {
	switch c := s.peek(); c {
	case 'n', 'N', 'I':
		if s.literal("null") || s.literal("NaN") || s.literal("Infinity") {
			return math.NaN()
		}
	case '-':
		if s.literal("-Infinity") {
			return math.Inf(-1)
		}
	}
	raw := s.number()
	if s.err != nil {
		return 0
	}
	if f, ok := shortDecimal(raw); ok {
		return f
	}
	f, err := strconv.ParseFloat(string(raw), 64) // the conversion does not escape
	if err != nil {
		s.wrong("a number in the range of a double")
	}
	return f
}

// shortDecimal is exact for numbers of at most 15 digits without an exponent: the quotient of two integers that a
// double holds exactly is rounded once, as ParseFloat does.
func shortDecimal(raw []byte) (float64, bool) {
	var n, scale float64 = 0, 0
	digits, neg := 0, raw[0] == '-'
	if neg {
		raw = raw[1:]
	}
	for _, c := range raw {
		switch {
		case c == '.':
			scale = 1
			continue
		case c < '0' || c > '9':
			return 0, false
		}
		if digits++; digits > 15 {
			return 0, false
		}
		n = n*10 + float64(c-'0')
		scale *= 10
	}
	if scale != 0 {
		n /= scale
	}
	if neg {
		n = -n
	}
	return n, true
}

// number returns the bytes of a number as JSON spells it.
func (s *scanner) number() []byte {
	s.peek()
	start := s.i
	if s.i < len(s.b) && s.b[s.i] == '-' {
		s.i++
	}
	whole := s.digits()
	ok := whole == 1 || whole > 1 && s.b[s.i-whole] != '0'
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		ok = s.digits() > 0 && ok
	}
	if s.i < len(s.b) && s.b[s.i]|0x20 == 'e' {
		if s.i++; s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		ok = s.digits() > 0 && ok
	}
	raw := s.b[start:s.i]
	if !ok {
		s.wrong("a number")
	}
	return raw
}

func (s *scanner) digits() int {
	start := s.i
	for s.i < len(s.b) && s.b[s.i]-'0' <= 9 {
		s.i++
	}
	return s.i - start
}

// value checks one value of any type and returns its bytes.
func (s *scanner) value(depth int) []byte {
	c := s.peek()
	start := s.i
	switch {
	case depth > maxDepth:
		s.fail(errDepth)
	case c == '"':
		s.rawString()
	case c == '{':
		s.i++
		for first := true; s.next(&first, '}'); {
			s.key()
			s.value(depth + 1)
		}
	case c == '[':
		s.i++
		for first := true; s.next(&first, ']'); {
			s.value(depth + 1)
		}
	case c == '-' || c-'0' <= 9:
		s.number()
	case !s.literal("true") && !s.literal("false") && !s.literal("null"):
		s.fail(errSyntax)
	}
	if s.err != nil {
		return nil
	}
	return s.b[start:s.i]
}

// end fails if anything but white space follows.
func (s *scanner) end() {
	if s.peek(); s.i < len(s.b) {
		s.fail(errSyntax)
	}
}

func isHex(c byte) bool {
	return c-'0' <= 9 || c|0x20 >= 'a' && c|0x20 <= 'f'
}

func isEscape(c byte) bool {
	switch c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	}
	return false
}
