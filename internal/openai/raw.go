package openai

// Raw is the JSON of one value inside a body that Parse has checked, for answers of nodes of which a few fields count. A
// value that is absent, or of another kind than asked for, is nil or not ok: what is missing shows at the end of a path.
type Raw []byte

// Top is a top-level member of the body.
func (v View) Top(key string) Raw {
	raw, _ := v.Get(key)
	return raw
}

// Member is a member of an object.
func (r Raw) Member(name string) Raw {
	if len(r) == 0 || r[0] != '{' {
		return nil
	}
	raw, _ := memberOf(r, name)
	return raw
}

// First is the first element of an array.
func (r Raw) First() (first Raw) {
	r.Each(func(e Raw) bool {
		first = e
		return false
	})
	return first
}

// Each calls f with the elements of an array until it returns false.
func (r Raw) Each(f func(Raw) bool) {
	if len(r) > 0 && r[0] == '[' {
		eachElement(r, func(raw []byte) bool { return f(raw) })
	}
}

// Text is the text of a string.
func (r Raw) Text() (s string, ok bool) {
	if len(r) == 0 || r[0] != '"' {
		return "", false
	}
	return unquote(r)
}

// Number is the value of a number that a float64 can hold.
func (r Raw) Number() (f float64, ok bool) {
	if len(r) == 0 {
		return 0, false
	}
	return strictNumber(r)
}

// Null says whether the value is absent or null.
func (r Raw) Null() bool { return len(r) == 0 || r[0] == 'n' }
