package sim

import (
	"bytes"
	"encoding/json"
	"errors"
)

// fullCheck is up to which size a body is checked as JSON to its last byte. A prompt of megabytes is only walked through,
// so that the simulator's work does not drown the router's in a measurement.
const fullCheck = 256 << 10

var errNotJSON = errors.New("the body is not a JSON object")

// members returns the top-level members of a JSON object as they stand, the last of each name.
func members(body []byte) (map[string]json.RawMessage, error) {
	if len(body) <= fullCheck && !json.Valid(body) {
		return nil, errNotJSON
	}
	b := bytes.TrimSpace(body)
	if len(b) == 0 || b[0] != '{' {
		return nil, errNotJSON
	}
	out := map[string]json.RawMessage{}
	for b = skipBlank(b[1:]); len(b) > 0 && b[0] != '}'; {
		n := valueLen(b)
		if n < 2 || b[0] != '"' {
			return nil, errNotJSON
		}
		name := string(b[1 : n-1])
		if b = skipBlank(b[n:]); len(b) == 0 || b[0] != ':' {
			return nil, errNotJSON
		}
		b = skipBlank(b[1:])
		if n = valueLen(b); n == 0 {
			return nil, errNotJSON
		}
		out[name] = json.RawMessage(b[:n])
		if b = skipBlank(b[n:]); len(b) > 0 && b[0] == ',' {
			b = skipBlank(b[1:])
		}
	}
	if len(b) == 0 {
		return nil, errNotJSON
	}
	return out, nil
}

// lastElement returns the last element of a JSON array as it stands, and how many there are.
func lastElement(array json.RawMessage) (last json.RawMessage, n int) {
	b := bytes.TrimSpace(array)
	if len(b) == 0 || b[0] != '[' {
		return nil, 0
	}
	for b = skipBlank(b[1:]); len(b) > 0 && b[0] != ']'; n++ {
		size := valueLen(b)
		if size == 0 {
			return nil, 0
		}
		last = json.RawMessage(b[:size])
		if b = skipBlank(b[size:]); len(b) > 0 && b[0] == ',' {
			b = skipBlank(b[1:])
		}
	}
	return last, n
}

// valueLen returns the length of the value at the start of b, 0 if it does not end. It does not check what is inside.
func valueLen(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			n := stringLen(b[i:])
			if n == 0 {
				return 0
			}
			if i += n - 1; depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			} else if depth < 0 {
				return i
			}
		case ',', ':', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
		}
	}
	if depth > 0 {
		return 0
	}
	return len(b)
}

// stringLen returns the length of the string at the start of b with its quotes, 0 if it does not end.
func stringLen(b []byte) int {
	for i := 1; ; {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return 0
		}
		i += n + 1
		slashes := 0
		for j := i - 2; j > 0 && b[j] == '\\'; j-- {
			slashes++
		}
		if slashes%2 == 0 {
			return i
		}
	}
}

func skipBlank(b []byte) []byte { return bytes.TrimLeft(b, " \t\r\n") }

// tailText returns the text of a JSON string, or of the text parts of a message's content. Of a long one it returns the
// last words only.
func tailText(raw json.RawMessage) (s string) {
	const most = 8 << 10
	switch {
	case len(raw) == 0:
		return ""
	case raw[0] == '[':
		var parts []struct {
			Text string `json:"text"`
		}
		if len(raw) > fullCheck || json.Unmarshal(raw, &parts) != nil {
			return ""
		}
		for _, p := range parts {
			s += p.Text
		}
		return s
	case len(raw) > most: // after a blank no escape sequence is cut
		cut := raw[len(raw)-most:]
		i := bytes.IndexByte(cut, ' ')
		if i < 0 {
			return ""
		}
		raw = append([]byte{'"'}, cut[i:]...)
	}
	_ = json.Unmarshal(raw, &s) // another type has no text
	return s
}
