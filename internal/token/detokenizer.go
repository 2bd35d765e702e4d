package token

import "bytes"

// Detokenizer turns the ids of one reply into text, one at a time.
type Detokenizer struct {
	t    *Tokenizer
	skip Skip

	busy  bool    // something below or in the plan is not neutral: the next token takes the long way
	begun bool    // a token has left something, so that the next is not the first
	lead  int     // characters that may still vanish at the start of the text
	bad   bool    // byte fallback: the running run can no longer be text, each of its bytes is U+FFFD
	n     int     // byte level: bytes in part
	part  [4]byte // byte level: start of a character whose end has not come
	run   []byte  // byte fallback: bytes of the running run, all of them valid so far
	tail  int     // where in run the last, unfinished character begins
}

// NewDetokenizer returns a Detokenizer at the start of a text.
func (t *Tokenizer) NewDetokenizer(skip Skip) *Detokenizer {
	d := &Detokenizer{t: t, skip: skip}
	d.init()
	return d
}

func (d *Detokenizer) init() {
	d.lead = d.t.plan.leadMax
	d.settle()
}

// settle works out whether the next token may take the short way.
func (d *Detokenizer) settle() {
	p := d.t.plan
	d.busy = p.separated || p.metaspace != nil || d.lead > 0 || d.n > 0 || d.bad || len(d.run) > 0
}

// Append appends the text that became final with id. An id outside the vocabulary, or that of a skipped special token,
// changes nothing at all: it does not even end a run of byte tokens.
func (d *Detokenizer) Append(dst []byte, id int) []byte {
	t := d.t
	if uint(id) >= uint(len(t.flags)) {
		return dst
	}
	if t.flags[id] == present && !d.busy {
		return append(dst, t.arena[t.offsets[id]:t.offsets[id+1]]...)
	}
	f := t.flags[id]
	if f&present == 0 || f&isSpecial != 0 && d.skip.skips(id) {
		return dst
	}
	start := len(dst)
	switch p := t.plan; {
	case f&isByte != 0:
		dst = d.appendByte(dst, t.arena[t.offsets[id]])
	case p.byteLevel:
		dst = d.appendBytes(dst, t.bytes(id))
	default:
		if p.separated && d.begun {
			dst = append(dst, ' ')
		}
		dst = d.endRun(dst)
		dst = d.appendToken(dst, t.bytes(id))
	}
	d.begun = true
	return d.finish(dst, start)
}

// finish takes the lead off what came out since start.
func (d *Detokenizer) finish(dst []byte, start int) []byte {
	if d.lead > 0 && len(dst) > start {
		dst = d.stripLead(dst, start)
	}
	d.settle()
	return dst
}

// Flush appends what is held at the end of the text: an unfinished character comes out as U+FFFD. The Detokenizer is then
// spent.
func (d *Detokenizer) Flush(dst []byte) []byte {
	start := len(dst)
	if d.n > 0 {
		dst, d.n = append(dst, replacement...), 0
	}
	return d.finish(d.endRun(dst), start)
}

// Pending tells whether bytes are held that have given no text yet.
func (d *Detokenizer) Pending() bool { return d.n > 0 || len(d.run) > 0 }

// appendToken appends a token that is text.
func (d *Detokenizer) appendToken(dst, token []byte) []byte {
	p := d.t.plan
	if p.metaspace == nil {
		return append(dst, token...)
	}
	if !d.begun && p.dropFirst {
		return appendReplaced(dst, token, p.metaspace, nil)
	}
	return appendReplaced(dst, token, p.metaspace, []byte{' '})
}

// appendBytes appends bytes of a byte-level token: whole characters, and U+FFFD for what can be none.
func (d *Detokenizer) appendBytes(dst, b []byte) []byte {
	for d.n > 0 && len(b) > 0 {
		d.part[d.n] = b[0]
		n, bad, open := sequence(d.part[:d.n+1])
		switch {
		case open:
			d.n, b = d.n+1, b[1:]
		case bad: // the byte that came may begin a character of its own: it is looked at again
			dst, d.n = append(dst, replacement...), 0
		default:
			dst, d.n, b = append(dst, d.part[:n]...), 0, b[1:]
		}
	}
	if len(b) == 0 {
		return dst
	}
	dst, open := appendLossy(dst, b)
	d.n = copy(d.part[:], b[len(b)-open:])
	return dst
}

// appendByte takes a byte token. The run that it belongs to is text only as a whole: while it may still be, it is held.
func (d *Detokenizer) appendByte(dst []byte, b byte) []byte {
	if d.bad {
		return append(dst, replacement...)
	}
	d.run = append(d.run, b)
	n, bad, open := sequence(d.run[d.tail:])
	switch {
	case bad:
		d.bad = true
		for range d.run {
			dst = append(dst, replacement...)
		}
		d.run, d.tail = d.run[:0], 0
	case !open:
		d.tail += n
	}
	return dst
}

// endRun appends the run of byte tokens that has ended: its text, or one U+FFFD for each byte.
func (d *Detokenizer) endRun(dst []byte) []byte {
	if d.tail == len(d.run) {
		dst = append(dst, d.run...)
	} else {
		for range d.run {
			dst = append(dst, replacement...)
		}
	}
	d.run, d.tail, d.bad = d.run[:0], 0, false
	return dst
}

// stripLead removes characters of the plan's lead from the start of the text, of which dst[start:] is the first part.
func (d *Detokenizer) stripLead(dst []byte, start int) []byte {
	char, cut := d.t.plan.lead, start
	for d.lead > 0 && bytes.HasPrefix(dst[cut:], char) {
		d.lead, cut = d.lead-1, cut+len(char)
	}
	if cut < len(dst) {
		d.lead = 0
	}
	return append(dst[:start], dst[cut:]...)
}
