package openai

import (
	"bytes"
	"fmt"
	"math"
)

// MaxMembers is how many top-level members a body may have. Each costs 24 bytes of index, so without a limit a body of short
// members would cost a multiple of its own size.
const MaxMembers = 4096

// View is a request body and where its top-level members lie; values are checked, but not decoded. It is small and is passed by
// value. The zero View has no members and is no body: make one with Parse.
type View struct {
	body    []byte
	members []member
	end     uint32 // index of the closing brace
}

// member is one top-level member, as indexes into the body.
type member struct {
	sep             uint32 // the byte before the member and its white space: '{' or ','
	key, keyEnd     uint32 // between the quotes
	value, valueEnd uint32
	escaped         bool // the key contains escapes
}

// Parse checks that the body is one JSON object (invariant 1) and indexes its members. An error is invalid_json with status 400; it
// says what is wrong and at which byte. The View keeps the body, which must not change as long as it is used.
func Parse(body []byte) (View, *Error) {
	v, err := parse(body)
	if err != nil {
		return View{}, Errorf(TypeInvalidJSON, "the request body is not valid: %v", err)
	}
	return v, nil
}

func parse(b []byte) (View, *syntaxError) {
	if uint64(len(b)) > math.MaxUint32 {
		return View{}, &syntaxError{math.MaxUint32, "larger than 4 GiB"}
	}
	v := View{body: b}
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '{' {
		return View{}, notAnObject(b, i)
	}
	sep := i
	i = skipSpace(b, i+1)
	if i >= len(b) || b[i] != '}' {
		v.members = make([]member, 0, 16)
		for {
			m, next, err := parseMember(b, sep, i)
			if err != nil {
				return View{}, err
			}
			if len(v.members) == MaxMembers {
				return View{}, &syntaxError{i, fmt.Sprintf("more than %d members", MaxMembers)}
			}
			v.members = append(v.members, m)
			if i = skipSpace(b, next); i < len(b) && b[i] == '}' {
				break
			}
			if i >= len(b) || b[i] != ',' {
				return View{}, expected(b, i, afterValue(true))
			}
			sep = i
			i = skipSpace(b, i+1)
		}
	}
	v.end = uint32(i)
	if i = skipSpace(b, i+1); i < len(b) {
		return View{}, expected(b, i, "the end of the text")
	}
	return v, nil
}

// parseMember reads the member whose key begins at b[i] and returns the index after its value.
func parseMember(b []byte, sep, i int) (member, int, *syntaxError) {
	value, err := scanKey(b, i)
	if err != nil {
		return member{}, 0, err
	}
	end, err := scanValue(b, value, 1)
	if err != nil {
		return member{}, 0, err
	}
	m := member{sep: uint32(sep), key: uint32(i + 1), value: uint32(value), valueEnd: uint32(end)}
	// scanKey has found the key's end but returns the value's begin: between the two are white space and the colon only.
	keyEnd := i + bytes.LastIndexByte(b[i:value], '"')
	m.keyEnd = uint32(keyEnd)
	m.escaped = bytes.IndexByte(b[i+1:keyEnd], '\\') >= 0
	return m, end, nil
}

// notAnObject is the error of a text that does not begin as an object does.
func notAnObject(b []byte, i int) *syntaxError {
	const want = "it must be a JSON object"
	if i >= len(b) {
		return &syntaxError{i, want + ", but it is empty,"}
	}
	if bytes.HasPrefix(b[i:], []byte("\xEF\xBB\xBF")) {
		return &syntaxError{i, want + " in UTF-8 without a byte order mark, which stands"}
	}
	end, err := scanValue(b, i, 0)
	if err == nil {
		if end = skipSpace(b, end); end < len(b) {
			err = expected(b, end, "the end of the text")
		}
	}
	if err != nil {
		return err
	}
	return &syntaxError{i, want + ", not " + kindOf(b[i:]).String() + ", as begins"}
}

// String says how large the body is, not what is in it: bodies are not for logs.
func (v View) String() string { return fmt.Sprintf("JSON body of %d bytes", len(v.body)) }

// Len is the length of the body in bytes.
func (v View) Len() int { return len(v.body) }

// Body is the whole body, as it came.
func (v View) Body() []byte { return v.body }

// Get returns the raw JSON of a top-level member, without the white space around it. Of several the last counts (invariant 3).
// The slice is part of the body and must not be changed.
func (v View) Get(key string) (raw []byte, ok bool) {
	for i := len(v.members) - 1; i >= 0; i-- {
		if m := &v.members[i]; v.hasKey(m, key) {
			return v.raw(m), true
		}
	}
	return nil, false
}

// Has reports whether the body has that top-level member, be it null.
func (v View) Has(key string) bool {
	_, ok := v.Get(key)
	return ok
}

func (v View) raw(m *member) []byte { return v.body[m.value:m.valueEnd:m.valueEnd] }

func (v View) hasKey(m *member, name string) bool {
	key := v.body[m.key:m.keyEnd]
	if !m.escaped {
		return string(key) == name
	}
	return sameKey(key, name)
}
