package openai

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// unquote decodes a raw JSON string. whole is false if it contains half of a surrogate pair, which is no text: it cannot be
// written in UTF-8 and U+FFFD stands in its place.
func unquote(raw []byte) (s string, whole bool) {
	inside := raw[1 : len(raw)-1]
	if bytes.IndexByte(inside, '\\') < 0 {
		return string(inside), true
	}
	decoded, whole := appendUnescaped(make([]byte, 0, len(inside)), inside)
	return string(decoded), whole
}

// appendUnescaped appends the text of a string, given what stands between its quotes.
func appendUnescaped(dst, inside []byte) (text []byte, whole bool) {
	whole = true
	for {
		i := bytes.IndexByte(inside, '\\')
		if i < 0 {
			return append(dst, inside...), whole
		}
		dst = append(dst, inside[:i]...)
		c := inside[i+1]
		inside = inside[i+2:]
		switch c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, size := unescapeRune(inside)
			if r == utf8.RuneError && size == 0 {
				whole, size = false, 4
			}
			dst = utf8.AppendRune(dst, r)
			inside = inside[size:]
		default: // a quote, a backslash, a slash
			dst = append(dst, c)
		}
	}
}

// unescapeRune reads the digits of a \u escape, and the second half of a surrogate pair behind them. A lone half is size 0.
func unescapeRune(b []byte) (r rune, size int) {
	r, _ = hex4(b)
	if !utf16.IsSurrogate(r) {
		return r, 4
	}
	if len(b) >= 10 && b[4] == '\\' && b[5] == 'u' {
		if low, ok := hex4(b[6:]); ok {
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				return pair, 10
			}
		}
	}
	return utf8.RuneError, 0
}
