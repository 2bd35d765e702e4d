package openai

import (
	"math"
	"strconv"

	"pd-router/internal/token"
)

// Candidate is one of the likeliest tokens at a position. A LogProb that is NaN or infinite is unknown.
type Candidate struct {
	ID      int
	LogProb float64
}

// Rows are the log-probs of one node line, a row per token. LogProbs is nil when the line had none; NaN stands for null. Top is
// nil when the line had no candidates.
type Rows struct {
	LogProbs []float64
	Top      [][]Candidate
}

// Clone returns rows that share no memory with r.
func (r Rows) Clone() Rows {
	out := Rows{LogProbs: append([]float64(nil), r.LogProbs...)}
	for _, row := range r.Top {
		out.Top = append(out.Top, append([]Candidate(nil), row...))
	}
	return out
}

// FirstLogProb is what the prefill node says about token 1, which it has sampled (spec 6.7). A value that it does not say is NaN.
type FirstLogProb struct {
	LogProb float64
	Top     []Candidate
}

// unknownLogprob is how a log-prob that is null or minus infinity is written: JSON has no infinity.
const unknownLogprob = "-9999.0"

// logprobs makes the log-prob entries of a reply and keeps each until its text is out: an entry travels with the chunk that
// has the last byte of its token's text, never earlier (spec 6.7). Positions are bytes of the detokenised text.
type logprobs struct {
	tok   *token.Tokenizer
	n     int // candidates per token
	first FirstLogProb

	queue []logprobEntry // tokens whose entry has not gone out, in order
	json  []byte         // their entries, each with a comma before it
	raw   int            // text so far
	open  int            // queue[len(queue)-open:] end in the middle of a character, which has not come out
	text  []byte         // scratch

	hold []byte // without a parser: text that may be shown and waits for the end of its token
	sent int    // without a parser: position of hold
	out  []byte // without a parser: what show returned last

	align aligner // with a parser
}

// logprobEntry is the entry of one token in the queue.
type logprobEntry struct {
	start, end int // its text, end is not final for open ones
	json       int // where its entry ends in logprobs.json
}

// check says why rows cannot serve for ids (spec 6.7): nothing is padded. first tells that ids begin the reply: there a null is
// right, and for the first token alone no rows at all, as the prefill node has its entry.
func (l *logprobs) check(ids []int, rows Rows, first bool) *Error {
	if first && len(ids) == 1 && rows.LogProbs == nil && rows.Top == nil {
		return nil
	}
	switch {
	case len(rows.LogProbs) != len(ids):
		return Errorf(TypeLogprobsUnavailable, "logprobs: the decode node sent %d log-probs for %d tokens", len(rows.LogProbs), len(ids))
	case l.n > 0 && len(rows.Top) != len(ids):
		return Errorf(TypeLogprobsUnavailable, "top_logprobs: the decode node sent %d rows of candidates for %d tokens", len(rows.Top), len(ids))
	}
	for i, p := range rows.LogProbs {
		if math.IsNaN(p) && !(first && i == 0) {
			return Errorf(TypeLogprobsUnavailable, "logprobs: the decode node sent a token without a log-prob")
		}
	}
	return nil
}

// row picks the values of the i-th token of a line, with those of the prefill node where the node has none for token 1.
func (l *logprobs) row(rows Rows, i int, first bool) (float64, []Candidate) {
	if first && (rows.LogProbs == nil || math.IsNaN(rows.LogProbs[i])) {
		return l.first.LogProb, l.first.Top
	}
	if l.n == 0 {
		return rows.LogProbs[i], nil
	}
	return rows.LogProbs[i], rows.Top[i]
}

// add queues the entry of a token that gave text. pending tells that the token ends inside a character.
func (l *logprobs) add(id int, value float64, top []Candidate, text int, pending bool) {
	l.json = l.appendEntry(append(l.json, ','), id, value)
	l.json = append(l.json, `,"top_logprobs":[`...)
	for i, c := range top[:min(l.n, len(top))] {
		if i > 0 {
			l.json = append(l.json, ',')
		}
		l.json = append(l.appendEntry(l.json, c.ID, c.LogProb), '}')
	}
	l.json = append(l.json, "]}"...)
	start := l.raw
	l.raw += text
	if text > 0 {
		l.settle()
	}
	l.queue = append(l.queue, logprobEntry{start: start, end: l.raw, json: len(l.json)})
	if pending {
		l.open++
	}
}

// settle closes open entries: the character that they were waiting for has come out.
func (l *logprobs) settle() {
	for i := len(l.queue) - l.open; i < len(l.queue); i++ {
		l.queue[i].end = l.raw
	}
	l.open = 0
}

// appendEntry appends an entry up to its candidates, without the closing brace.
func (l *logprobs) appendEntry(dst []byte, id int, value float64) []byte {
	l.text = l.tok.AppendText(l.text[:0], id)
	dst = appendEscaped(append(dst, `{"token":"`...), l.text)
	dst = append(dst, `","logprob":`...)
	if math.IsNaN(value) || math.IsInf(value, 0) {
		dst = append(dst, unknownLogprob...)
	} else {
		dst = strconv.AppendFloat(dst, value, 'g', -1, 64)
	}
	dst = append(dst, `,"bytes":[`...)
	for i, b := range l.text {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(b), 10)
	}
	return append(dst, ']')
}

// take removes the first k entries from the queue and returns them; they are valid until the next add.
func (l *logprobs) take(k int) []byte {
	if k == 0 {
		return nil
	}
	n := l.queue[k-1].json
	l.text = append(l.text[:0], l.json[:n]...)
	l.json = l.json[:copy(l.json, l.json[n:])]
	l.queue = l.queue[:copy(l.queue, l.queue[k:])]
	for i := range l.queue {
		l.queue[i].json -= n
	}
	l.open = min(l.open, len(l.queue))
	return l.text
}

// show takes text that may be shown and returns as much of what is held as ends with a token, and the entries of these tokens.
// With all, the reply has ended (or a stop string has cut it): everything is due.
func (l *logprobs) show(text []byte, all bool) (out, entries []byte) {
	l.hold = append(l.hold, text...)
	until, k := l.sent, 0
	for k < len(l.queue)-l.open && l.queue[k].end <= l.sent+len(l.hold) {
		until = l.queue[k].end
		k++
	}
	if all {
		until, k = l.sent+len(l.hold), len(l.queue)
	}
	if until == l.sent {
		return nil, nil // entries never go out without text while there may be more of it
	}
	n := until - l.sent
	l.out = append(l.out[:0], l.hold[:n]...)
	l.hold = l.hold[:copy(l.hold, l.hold[n:])]
	l.sent = until
	return l.out, l.take(k)
}

// appendLogprobs appends the logprobs object of entries that each have a comma before them.
func appendLogprobs(dst, entries []byte) []byte {
	dst = append(dst, `{"content":[`...)
	if len(entries) > 0 {
		dst = append(dst, entries[1:]...)
	}
	return append(dst, `],"refusal":null}`...)
}
