package openai

import "fmt"

// MaxDepth is how deep a body may be nested, its own braces included. Real requests stay below 50 (tool schemas); Python's JSON
// reader at the nodes gives up near 1,000, and then with a server error.
const MaxDepth = 1000

// syntaxError says what is wrong with a JSON text, and at which byte.
type syntaxError struct {
	at   int
	what string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("%s at byte %d", e.what, e.at) }

// expected is the error of a place where something else had to stand. The offending byte is named if it can be printed.
func expected(b []byte, i int, what string) *syntaxError {
	if i >= len(b) {
		return &syntaxError{len(b), "the text ends where " + what + " is expected"}
	}
	if c := b[i]; c > ' ' && c < 0x7F {
		return &syntaxError{i, fmt.Sprintf("'%c' where %s is expected", c, what)}
	}
	return &syntaxError{i, fmt.Sprintf("byte 0x%02x where %s is expected", b[i], what)}
}

// skipSpace returns the index of the first byte from i on that is not JSON white space, or len(b).
func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// scanValue checks the value that begins at b[i] and returns the index after it. depth is how many containers are open around it.
func scanValue(b []byte, i, depth int) (int, *syntaxError) {
	if i < len(b) {
		switch b[i] {
		case '"':
			return scanString(b, i+1)
		case '{', '[':
			return scanNested(b, i, depth)
		}
	}
	return scanScalar(b, i)
}

// nesting is the stack of open containers: one bit each, set for an object.
type nesting struct {
	bits  [(MaxDepth + 63) / 64]uint64
	depth int
}

func (n *nesting) push(object bool) {
	word, bit := n.depth/64, uint64(1)<<(n.depth%64)
	if object {
		n.bits[word] |= bit
	} else {
		n.bits[word] &^= bit
	}
	n.depth++
}

// object reports whether the innermost open container is one.
func (n *nesting) object() bool {
	top := n.depth - 1
	return n.bits[top/64]>>(top%64)&1 == 1
}

// scanNested checks the object or array that begins at b[i], with all that it contains, and returns the index after it.
func scanNested(b []byte, i, outside int) (int, *syntaxError) {
	n := nesting{depth: outside}
	var err *syntaxError
	for {
		// Each turn begins where a value must stand.
		opened := false
		if i < len(b) && (b[i] == '{' || b[i] == '[') {
			if n.depth >= MaxDepth {
				return 0, &syntaxError{i, fmt.Sprintf("nested deeper than %d levels", MaxDepth)}
			}
			n.push(b[i] == '{')
			i, opened = skipSpace(b, i+1), true
		} else if i < len(b) && b[i] == '"' {
			i, err = scanString(b, i+1)
		} else {
			i, err = scanScalar(b, i)
		}
		if err != nil {
			return 0, err
		}
		if i, err = n.closeOrNext(b, i, outside, opened); err != nil || n.depth == outside {
			return i, err
		}
	}
}

// closeOrNext goes from the end of a value, or from behind an opening bracket, to where the next value must begin. It closes what
// ends there; when nothing is left open, it returns the index after the whole.
func (n *nesting) closeOrNext(b []byte, i, outside int, opened bool) (int, *syntaxError) {
	var err *syntaxError
	for {
		object := n.object()
		if !opened {
			i = skipSpace(b, i)
		}
		if i < len(b) && (object && b[i] == '}' || !object && b[i] == ']') {
			n.depth--
			i, opened = i+1, false
			if n.depth == outside {
				return i, nil
			}
			continue
		}
		if !opened {
			if i >= len(b) || b[i] != ',' {
				return 0, expected(b, i, afterValue(object))
			}
			i = skipSpace(b, i+1)
		}
		if object {
			if i, err = scanKey(b, i); err != nil {
				return 0, err
			}
		}
		return i, nil
	}
}

func afterValue(object bool) string {
	if object {
		return "',' or '}'"
	}
	return "',' or ']'"
}

// scanKey checks the key at b[i] with its colon and returns the index of the value.
func scanKey(b []byte, i int) (int, *syntaxError) {
	if i >= len(b) || b[i] != '"' {
		return 0, expected(b, i, "a key in double quotes")
	}
	i, err := scanString(b, i+1)
	if err != nil {
		return 0, err
	}
	if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
		return 0, expected(b, i, "':'")
	}
	return skipSpace(b, i+1), nil
}

// scanScalar checks the number or literal at b[i] and returns the index after it.
func scanScalar(b []byte, i int) (int, *syntaxError) {
	if i < len(b) {
		switch c := b[i]; {
		case c == '-' || '0' <= c && c <= '9':
			return scanNumber(b, i)
		case c == 't':
			return scanLiteral(b, i, "true")
		case c == 'f':
			return scanLiteral(b, i, "false")
		case c == 'n':
			return scanLiteral(b, i, "null")
		}
	}
	return 0, expected(b, i, "a value")
}

func scanLiteral(b []byte, i int, literal string) (int, *syntaxError) {
	if end := i + len(literal); end <= len(b) && string(b[i:end]) == literal {
		return end, nil
	}
	return 0, expected(b, i, "a value")
}

func scanNumber(b []byte, i int) (int, *syntaxError) {
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if j := skipDigits(b, i); j > i {
		i = j
	} else {
		return 0, expected(b, i, "a digit")
	}
	if i < len(b) && b[i] == '.' {
		j := skipDigits(b, i+1)
		if j == i+1 {
			return 0, expected(b, j, "a digit")
		}
		i = j
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		j := skipDigits(b, i)
		if j == i {
			return 0, expected(b, j, "a digit")
		}
		i = j
	}
	return i, nil
}

func skipDigits(b []byte, i int) int {
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	return i
}
