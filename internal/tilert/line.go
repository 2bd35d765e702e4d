package tilert

import (
	"errors"
	"fmt"
	"math"
)

// LineKind says what one line of a /pd/decode stream is.
type LineKind uint8

const (
	TokenLine LineKind = iota // {"t":[...]}: tokens, with log-probs if they were asked for
	DoneLine                  // {"done":true,...}: the reply is complete
	ErrorLine                 // {"error":"..."}: the reply has failed
)

// Candidate is one entry of a row of top log-probs.
type Candidate struct {
	ID      int
	LogProb float64 // NaN or minus infinity unless Valid
	Valid   bool    // false where the node sent null or no finite number
}

// Line is one line of a /pd/decode stream (spec 1.3). A Line is reused for all lines of a stream; Parse overwrites it and
// keeps its memory, so what it held is good until the next Parse only. The zero Line is ready for use.
//
// Parse checks the form of a line and nothing between lines or fields: whether log-probs are as many as tokens, or
// whether N is the number of tokens that arrived, is the reader's to judge.
type Line struct {
	Kind LineKind

	IDs         []int     // token line: the tokens in order, 0..2^31-1
	LogProbs    []float64 // token line: one a token; NaN for null; minus infinity is a value
	HasLogProbs bool      // the line had log-probs; false for a null in their place
	Top         [][]Candidate
	HasTop      bool // the line had rows of candidates; a null row is an empty one

	N            int    // done line: number of tokens of the whole reply, if HasN
	SeqLen       int    // done line: prompt length that the node received, 0 if it did not say
	HasN         bool   // done line: the node counted
	FinishReason string // done line: stop, length or cancelled; empty if the node gave none
	Timing       []byte // done line: the object of timing_ms as the node wrote it, nil if there was none

	Error     string // error line: text for a person
	ErrorType string // error line: class of the error, empty if the node gave none

	timing []byte // memory of Timing
}

var errShape = errors.New("neither tokens nor done nor error")

// Parse reads one line, with or without its line feed. An error means that the stream cannot be understood any more:
// not JSON, not UTF-8, a field of another type than the protocol's (an id that is no integer, say), more than one line,
// or an object that is none of the three kinds. The Line's content is undefined then. Unknown members are skipped.
func (l *Line) Parse(b []byte) error {
	l.IDs, l.LogProbs, l.Top, l.Timing = l.IDs[:0], l.LogProbs[:0], l.Top[:0], nil
	l.HasLogProbs, l.HasTop, l.HasN = false, false, false
	l.N, l.SeqLen, l.FinishReason, l.Error, l.ErrorType = 0, 0, "", "", ""
	if l.plain(b) {
		return nil
	}
	l.IDs = l.IDs[:0]
	s := scanner{b: b}
	var seen [3]bool // by LineKind
	s.need('{')
	for first := true; s.next(&first, '}'); {
		switch name := s.key(); string(name) {
		case "t":
			l.tokens(&s)
			seen[TokenLine] = true
		case "lp":
			l.logProbs(&s)
		case "tp":
			l.rows(&s)
		case "done":
			seen[DoneLine] = l.done(&s)
		case "n":
			if l.HasN = !s.literal("null"); l.HasN {
				l.N = s.integer("a count of tokens")
			}
		case "seq_len":
			if !s.literal("null") {
				l.SeqLen = s.integer("a length")
			}
		case "finish_reason":
			if !s.literal("null") {
				l.FinishReason = finishReason(&s)
			}
		case "timing_ms":
			l.readTiming(&s)
		case "error":
			if seen[ErrorLine] = !s.literal("null"); seen[ErrorLine] {
				l.Error = s.str()
			}
		case "error_type":
			if !s.literal("null") {
				l.ErrorType = s.str()
			}
		default:
			s.value(0)
		}
	}
	s.end()
	if s.err == nil {
		s.err = l.kind(seen)
	}
	if s.err != nil {
		return fmt.Errorf("decode line: %w", s.err)
	}
	return nil
}

// plain reads the line that nearly all are, {"t":[...]} and nothing else, in one pass. It reports false for any other line
// and for any doubt, which Parse then settles; FuzzLine holds the two against each other.
func (l *Line) plain(b []byte) bool {
	const start = `{"t":`
	if len(b) < len(start)+4 || string(b[:len(start)]) != start {
		return false
	}
	i := len(start)
	if b[i] == ' ' {
		i++
	}
	if b[i] != '[' {
		return false
	}
	ids := l.IDs
	for i++; i < len(b); i++ {
		n, from := 0, i
		for i < len(b) && b[i]-'0' <= 9 {
			n = n*10 + int(b[i]-'0')
			i++
		}
		if i == from || i-from > 9 || i-from > 1 && b[from] == '0' || i >= len(b) {
			return false
		}
		ids = append(ids, n)
		if b[i] == ']' {
			i++
			break
		}
		if b[i] != ',' {
			return false
		}
		if i+1 < len(b) && b[i+1] == ' ' {
			i++
		}
	}
	rest := b[i:]
	if len(rest) == 2 && rest[1] == '\n' {
		rest = rest[:1]
	}
	if len(rest) != 1 || rest[0] != '}' {
		return false
	}
	l.Kind, l.IDs = TokenLine, ids
	return true
}

// kind settles Kind: each line is exactly one thing.
func (l *Line) kind(seen [3]bool) error {
	n := 0
	for k, ok := range seen {
		if ok {
			l.Kind = LineKind(k)
			n++
		}
	}
	if n != 1 {
		return errShape
	}
	return nil
}

func (l *Line) tokens(s *scanner) {
	l.IDs = l.IDs[:0]
	s.array()
	for first := true; s.next(&first, ']'); {
		l.IDs = append(l.IDs, s.integer("a token id"))
	}
}

func (l *Line) logProbs(s *scanner) {
	l.LogProbs = l.LogProbs[:0]
	if l.HasLogProbs = !s.literal("null"); !l.HasLogProbs {
		return
	}
	s.array()
	for first := true; s.next(&first, ']'); {
		l.LogProbs = append(l.LogProbs, s.logProb())
	}
}

func (l *Line) rows(s *scanner) {
	l.Top = l.Top[:0]
	if l.HasTop = !s.literal("null"); !l.HasTop {
		return
	}
	s.array()
	for first := true; s.next(&first, ']'); {
		if len(l.Top) < cap(l.Top) {
			l.Top = l.Top[:len(l.Top)+1] // takes up the row's old memory
		} else {
			l.Top = append(l.Top, nil)
		}
		row := &l.Top[len(l.Top)-1]
		*row = (*row)[:0]
		if s.literal("null") {
			continue
		}
		s.array()
		for first := true; s.next(&first, ']'); {
			s.array()
			c := Candidate{ID: s.integer("a token id")}
			s.need(',')
			c.LogProb = s.logProb()
			s.need(']')
			c.Valid = !math.IsNaN(c.LogProb) && !math.IsInf(c.LogProb, -1)
			*row = append(*row, c)
		}
	}
}

// done is true on the last line; false and null are as if the member were not there.
func (l *Line) done(s *scanner) bool {
	switch {
	case s.literal("true"):
		return true
	case !s.literal("false") && !s.literal("null"):
		s.wrong("true or false")
	}
	return false
}

func (l *Line) readTiming(s *scanner) {
	l.Timing = nil
	if s.literal("null") {
		return
	}
	if s.peek() != '{' {
		s.wrong("an object")
		return
	}
	l.timing = append(l.timing[:0], s.value(0)...)
	l.Timing = l.timing
}

// finishReason reads a string; the usual ones cost no allocation.
func finishReason(s *scanner) string {
	start := s.i
	raw, escaped := s.rawString()
	switch string(raw) {
	case "stop":
		return "stop"
	case "length":
		return "length"
	case "cancelled":
		return "cancelled"
	}
	if escaped && s.err == nil {
		s.i = start
		return s.str()
	}
	return string(raw)
}

// array consumes the bracket that opens an array.
func (s *scanner) array() {
	if !s.take('[') {
		s.wrong("an array")
	}
}
