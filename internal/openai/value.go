package openai

import (
	"math"
	"strconv"
	"strings"
)

// The functions of this file read raw JSON values that Parse has checked: they rely on their grammar. Where vLLM or the TileRT
// router would coerce (pydantic's lax mode), they coerce alike.

// kind is the type of a JSON value.
type kind uint8

const (
	kindNull kind = iota
	kindBool
	kindNumber
	kindString
	kindArray
	kindObject
)

var kindNames = [...]string{"null", "a boolean", "a number", "a string", "an array", "an object"}

func (k kind) String() string { return kindNames[k] }

func kindOf(raw []byte) kind {
	switch raw[0] {
	case 'n':
		return kindNull
	case 't', 'f':
		return kindBool
	case '"':
		return kindString
	case '[':
		return kindArray
	case '{':
		return kindObject
	}
	return kindNumber
}

// falsy is Python's idea of it: null, false, a zero, or anything empty.
func falsy(raw []byte) bool {
	switch kindOf(raw) {
	case kindNull:
		return true
	case kindBool:
		return raw[0] == 'f'
	case kindNumber:
		f, ok := finite(raw)
		return ok && f == 0
	case kindString:
		return len(raw) == 2
	}
	end := skipSpace(raw, 1)
	return raw[end] == ']' || raw[end] == '}'
}

// finite is the value of a raw number. It is not ok for a number beyond float64, which Python reads as infinity.
func finite(raw []byte) (f float64, ok bool) {
	f, err := strconv.ParseFloat(string(raw), 64)
	return f, err == nil
}

// strictNumber is the value of a raw JSON number; strings and booleans are none.
func strictNumber(raw []byte) (f float64, ok bool) {
	if kindOf(raw) != kindNumber {
		return 0, false
	}
	return finite(raw)
}

// strictInt is the value of a number written as an integer: no fraction, no exponent. Values beyond int64 are not ok.
func strictInt(raw []byte) (n int64, ok bool) {
	if kindOf(raw) != kindNumber {
		return 0, false
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil
}

// strictBool is the value of true or false.
func strictBool(raw []byte) (value, ok bool) {
	return raw[0] == 't', kindOf(raw) == kindBool
}

// laxBool reads what pydantic's lax mode takes for a boolean: true and false, 1 and 0 in any spelling of the number, and some words
// in any case, without white space around them.
func laxBool(raw []byte) (value, ok bool) {
	switch kindOf(raw) {
	case kindBool:
		return raw[0] == 't', true
	case kindNumber:
		f, ok := finite(raw)
		return f == 1, ok && (f == 0 || f == 1)
	case kindString:
		s, _ := unquote(raw)
		switch strings.ToLower(s) {
		case "true", "yes", "y", "t", "on", "1":
			return true, true
		case "false", "no", "n", "f", "off", "0":
			return false, true
		}
	}
	return false, false
}

// laxInt reads what pydantic's lax mode takes for an integer: integers, numbers without a fractional part, true and false as 1 and
// 0, and strings that spell an integer in decimal (spec 4.4). It is not ok beyond int64.
func laxInt(raw []byte) (n int64, ok bool) {
	switch kindOf(raw) {
	case kindBool:
		if raw[0] == 't' {
			return 1, true
		}
		return 0, true
	case kindNumber:
		if n, ok = strictInt(raw); ok {
			return n, true
		}
		f, ok := finite(raw)
		if !ok || f != math.Trunc(f) || math.Abs(f) >= 1<<63 {
			return 0, false
		}
		return int64(f), true
	case kindString:
		s, _ := unquote(raw)
		return parseLaxInt(s)
	}
	return 0, false
}

// parseLaxInt reads a decimal integer with white space around it, a sign, leading zeros, single underscores between digits, and a
// fraction of zeros only.
func parseLaxInt(s string) (n int64, ok bool) {
	s = strings.TrimSpace(s)
	if whole, fraction, found := strings.Cut(s, "."); found {
		if fraction == "" || strings.Trim(fraction, "0") != "" {
			return 0, false
		}
		s = whole
	}
	s, ok = withoutUnderscores(s)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64) // takes one sign and leading zeros
	return n, err == nil
}

// withoutUnderscores removes underscores that stand between two digits; any other is not ok.
func withoutUnderscores(s string) (string, bool) {
	if !strings.Contains(s, "_") {
		return s, true
	}
	for i := range len(s) {
		if s[i] == '_' && (i == 0 || i == len(s)-1 || !isDigit(s[i-1]) || !isDigit(s[i+1])) {
			return "", false
		}
	}
	return strings.ReplaceAll(s, "_", ""), true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func allDigits(s string) bool { return strings.Trim(s, "0123456789") == "" }

// numeric reads a number, or a string that spells one as Python's float() takes it, and gives it as a JSON number: the client's own
// digits where they already are one. NaN, infinities and numbers beyond float64 are not ok, booleans neither.
func numeric(raw []byte) (number []byte, f float64, ok bool) {
	switch kindOf(raw) {
	case kindNumber:
		f, ok = finite(raw)
		return raw, f, ok
	case kindString:
		s, _ := unquote(raw)
		if number, ok = spellNumber(s); !ok {
			return nil, 0, false
		}
		f, ok = finite(number)
		return number, f, ok
	}
	return nil, 0, false
}

// spellNumber turns a decimal number as people write it (" +.5", "05", "5.", "1_000") into a JSON number of the same value.
func spellNumber(s string) ([]byte, bool) {
	s, ok := withoutUnderscores(strings.TrimSpace(s))
	if !ok {
		return nil, false
	}
	out := make([]byte, 0, len(s)+2)
	if rest, negative := strings.CutPrefix(s, "-"); negative {
		out, s = append(out, '-'), rest
	} else {
		s = strings.TrimPrefix(s, "+")
	}
	end := strings.IndexAny(s, "eE")
	if end < 0 {
		end = len(s)
	}
	whole, fraction, _ := strings.Cut(s[:end], ".")
	if whole == "" && fraction == "" || !allDigits(whole) {
		return nil, false
	}
	if whole = strings.TrimLeft(whole, "0"); whole == "" {
		whole = "0"
	}
	out = append(out, whole...)
	if fraction != "" {
		out = append(append(out, '.'), fraction...)
	}
	out = append(out, s[end:]...)
	if n, err := scanNumber(out, 0); err != nil || n != len(out) {
		return nil, false // the fraction or the exponent is none
	}
	return out, true
}
