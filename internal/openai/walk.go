package openai

import "bytes"

// eachElement calls f with the raw value of each element of an array that Parse has checked, until f returns false.
func eachElement(array []byte, f func(raw []byte) bool) {
	for i := skipSpace(array, 1); array[i] != ']'; {
		end, _ := scanValue(array, i, 0)
		if !f(array[i:end:end]) {
			return
		}
		if i = skipSpace(array, end); array[i] == ',' {
			i = skipSpace(array, i+1)
		}
	}
}

// memberOf is the raw value of a member of an object that Parse has checked. Of several the last counts.
func memberOf(object []byte, name string) (raw []byte, ok bool) {
	for i := skipSpace(object, 1); object[i] != '}'; {
		key, value := keyAt(object, i)
		end, _ := scanValue(object, value, 0)
		if sameKey(key, name) {
			raw, ok = object[value:end:end], true
		}
		if i = skipSpace(object, end); object[i] == ',' {
			i = skipSpace(object, i+1)
		}
	}
	return raw, ok
}

// keyAt is what stands between the quotes of the key at b[i], and the index of its value.
func keyAt(b []byte, i int) (inside []byte, value int) {
	value, _ = scanKey(b, i)
	return b[i+1 : i+bytes.LastIndexByte(b[i:value], '"')], value
}

// sameKey compares what stands between the quotes of a key with a name.
func sameKey(inside []byte, name string) bool {
	if bytes.IndexByte(inside, '\\') < 0 {
		return string(inside) == name
	}
	var buf [64]byte
	decoded, whole := appendUnescaped(buf[:0], inside)
	return whole && string(decoded) == name
}
