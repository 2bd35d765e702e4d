package parser

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// kinds is a set of JSON types that a value may have.
type kinds uint8

const (
	kindNull kinds = 1 << iota
	kindInteger
	kindNumber
	kindBoolean
	kindObject
	kindArray
	kindString
	kindOther // a type name that is none of ours: whatever JSON the text is, else a string
)

var kindNames = map[string]kinds{
	"null":    kindNull,
	"integer": kindInteger, "int": kindInteger, "int32": kindInteger, "int64": kindInteger, "uint": kindInteger,
	"uint32": kindInteger, "uint64": kindInteger, "long": kindInteger, "short": kindInteger, "unsigned": kindInteger,
	"number": kindNumber, "float": kindNumber, "float32": kindNumber, "float64": kindNumber, "double": kindNumber,
	"boolean": kindBoolean, "bool": kindBoolean,
	"object": kindObject, "dict": kindObject,
	"array": kindArray, "arr": kindArray, "list": kindArray, "sequence": kindArray,
	"string": kindString, "str": kindString, "text": kindString, "varchar": kindString, "char": kindString,
	"enum": kindString,
}

// kindOf is the type that a schema names, aliases included.
func kindOf(name string) kinds {
	if k, ok := kindNames[strings.ToLower(strings.TrimSpace(name))]; ok {
		return k
	}
	return kindOther
}

// kindOfValue is the type of a decoded enum member.
func kindOfValue(v any) kinds {
	switch v := v.(type) {
	case nil:
		return kindNull
	case bool:
		return kindBoolean
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return kindNumber
		}
		return kindInteger
	case string:
		return kindString
	case []any:
		return kindArray
	default:
		return kindObject
	}
}

// appendValue appends text, which is valid UTF-8, as JSON of the first of these types that it fits: null, integer,
// number, boolean, object or array, string. When it fits none, it is the JSON that it spells, else a string: a value is
// never lost to its schema. The order is that of vLLM (spec 7.2 T1).
func appendValue(dst, text []byte, k kinds) []byte {
	if k == kindString {
		return appendString(dst, text)
	}
	if k&kindNull != 0 && strings.EqualFold(string(text), "null") {
		return append(dst, "null"...)
	}
	if k&(kindInteger|kindNumber|kindBoolean) != 0 {
		if out, ok := appendScalar(dst, strings.TrimSpace(string(text)), k); ok {
			return out
		}
	}
	// vLLM does not compare the parsed type with the wanted one either.
	if k&kindString == 0 || k&(kindObject|kindArray) != 0 {
		if t := bytes.Trim(text, jsonSpace); plainJSON(t) {
			return append(dst, t...)
		}
	}
	return appendString(dst, text)
}

// appendScalar appends text as an integer, a number or a boolean, if it is one.
func appendScalar(dst []byte, text string, k kinds) ([]byte, bool) {
	if k&(kindInteger|kindNumber) != 0 {
		if n, ok := decimal(text, k&kindNumber != 0); ok {
			return append(dst, n...), true
		}
	}
	if k&kindBoolean != 0 {
		switch strings.ToLower(text) {
		case "true", "1":
			return append(dst, "true"...), true
		case "false", "0":
			return append(dst, "false"...), true
		}
	}
	return dst, false
}

// decimal writes a decimal number as JSON: integers with all their digits, a fraction of zeros dropped (3.0 is 3), all
// else as the model wrote it where JSON allows that. Python's other spellings (1_000, inf, nan, digits of other scripts)
// are not numbers here, nor is one beyond the range of a float64: clients could not read it.
func decimal(text string, fractions bool) (string, bool) {
	sign, digits := "", text
	if strings.HasPrefix(text, "-") {
		sign, digits = "-", text[1:]
	} else if strings.HasPrefix(text, "+") {
		digits = text[1:]
	}
	whole, tail := splitDigits(digits)
	fraction, exponent := "", tail
	if strings.HasPrefix(tail, ".") {
		fraction, exponent = splitDigits(tail[1:])
	}
	if whole+fraction == "" || tail != "" && !fractions || exponent != "" && !isExponent(exponent) {
		return "", false
	}
	f, err := strconv.ParseFloat(sign+digits, 64)
	if err != nil {
		return "", false // beyond the range
	}
	if exponent == "" && strings.Trim(fraction, "0") == "" {
		whole = strings.TrimLeft(whole, "0")
		if whole == "" {
			return "0", true // Python has no -0 either
		}
		return sign + whole, true
	}
	if exponent != "" && f == math.Trunc(f) && math.Abs(f) <= 1<<53 {
		return strconv.FormatInt(int64(f), 10), true // 1e3 is 1000
	}
	if json.Valid([]byte(sign + digits)) {
		return sign + digits, true
	}
	return strconv.FormatFloat(f, 'g', -1, 64), true // .5 and 007.5
}

func splitDigits(s string) (digits, rest string) {
	rest = strings.TrimLeft(s, "0123456789")
	return s[:len(s)-len(rest)], rest
}

// isExponent says whether s is e or E, perhaps a sign, and digits.
func isExponent(s string) bool {
	if s[0] != 'e' && s[0] != 'E' {
		return false
	}
	s = s[1:]
	if s != "" && (s[0] == '+' || s[0] == '-') {
		s = s[1:]
	}
	digits, rest := splitDigits(s)
	return digits != "" && rest == ""
}

const jsonSpace = " \t\r\n"

// maxDepth is how deep JSON in a value may be nested. Clients' parsers recurse: what is deeper stays a string.
const maxDepth = 256

// plainJSON says whether text is JSON that every client can read: not nested too deep, no number beyond a float64.
func plainJSON(text []byte) bool {
	if !json.Valid(text) {
		return false
	}
	depth := 0
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case b == '"':
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case b == '{' || b == '[':
			if depth++; depth > maxDepth {
				return false
			}
		case b == '}' || b == ']':
			depth--
		case b >= '0' && b <= '9':
			number := text[i : len(text)-len(bytes.TrimLeft(text[i:], "0123456789.eE+-"))]
			if len(number) > 300 || bytes.ContainsAny(number, "eE") { // others are in range
				if _, err := strconv.ParseFloat(string(number), 64); err != nil {
					return false
				}
			}
			i += len(number) - 1
		}
	}
	return true
}
