package openai

// Segments are the pieces of a body in their order. They share the memory of the View's body and of what was set, so they must not
// be changed. For writev they convert to net.Buffers, whose WriteTo uses up the list (not the bytes): make a new one for each try.
type Segments [][]byte

// Len is the number of bytes in all pieces: the Content-Length.
func (s Segments) Len() int {
	n := 0
	for _, piece := range s {
		n += len(piece)
	}
	return n
}

// AppendTo appends all pieces to dst.
func (s Segments) AppendTo(dst []byte) []byte {
	for _, piece := range s {
		dst = append(dst, piece...)
	}
	return dst
}

var comma = []byte{','}

// Edit gives the body without the members named in drop, every occurrence of them, and with the members in set at its end. set is
// the inside of a JSON object (`"k":1,"l":2`) or empty. All else stays the client's bytes in the client's order (invariant 2); a
// dropped member takes one comma and the white space on both its sides along. Nothing is copied.
//
// Edit does not look whether a key in set occurs in the body: name it in drop too, or it occurs twice.
func (v View) Edit(drop []string, set []byte) Segments {
	// The body is '{' piece ',' piece … '}': a piece begins behind its separator and ends before the next one. Neighbours that
	// are kept are one segment, with the comma between them and the one before it; only the first piece kept has none before it.
	var lengths uint64
	for _, name := range drop {
		lengths |= 1 << (len(name) & 63)
	}
	out := make(Segments, 0, 8)
	head := skipSpace(v.body, 0) + 1 // behind the opening brace
	kept := false
	run := -1 // where the segment being kept begins; -1 behind a dropped piece
	for i := range v.members {
		m := &v.members[i]
		switch dropped := v.isOneOf(m, drop, lengths); {
		case dropped && run >= 0:
			out = append(out, v.body[run:m.sep])
			run = -1
		case dropped || run >= 0:
		case kept:
			run = int(m.sep)
		case i == 0:
			run, kept = 0, true
		default:
			out = append(out, v.body[:head])
			run, kept = int(m.sep)+1, true
		}
	}
	if !kept {
		out = append(out, v.body[:head])
	}
	switch {
	case run >= 0:
	case len(v.members) == 0: // the white space between the braces is nobody's
		run = head
	default:
		run = int(v.end)
	}
	if len(set) == 0 {
		return append(out, v.body[run:])
	}
	if !kept {
		return append(out, set, v.body[run:])
	}
	if run < int(v.end) {
		out = append(out, v.body[run:v.end])
	}
	return append(out, comma, set, v.body[v.end:])
}

// isOneOf reports whether the member's key is among the names. lengths has a bit for the length of each name, modulo 64: most keys
// are out by that alone.
func (v View) isOneOf(m *member, names []string, lengths uint64) bool {
	if !m.escaped && lengths>>((m.keyEnd-m.key)&63)&1 == 0 {
		return false
	}
	for _, name := range names {
		if v.hasKey(m, name) {
			return true
		}
	}
	return false
}
