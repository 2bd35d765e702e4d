package openai

import (
	"bytes"

	"pd-router/internal/parser"
)

// aligner finds out which tokens the content of a parsed reply came from. A parser takes text and gives events without saying
// where in the text they were, so the texts of the events are looked for in what it was given: they are parts of it, in its
// order, and between them are only markers. The search goes backwards, because what comes out of a push stands at the end of
// what went in, but for a beginning of a marker that the parser holds.
type aligner struct {
	markers []string
	text    []byte // given to the parser and not yet accounted for
	base    int    // position of text
	spans   []span // of the events of one push
}

// span is where in the text an event's text stands; of an event of a tool call it is empty.
type span struct{ start, end int }

// find gives a span for each of events, which the parser made of text. With final it holds nothing any more.
func (a *aligner) find(events []parser.Event, text []byte, final bool) []span {
	a.text = append(a.text, text...)
	a.spans = append(a.spans[:0], make([]span, len(events))...)
	end, decided := len(a.text), 0
	limit := end
	if !final {
		limit -= a.held()
	}
	for i := len(events) - 1; i >= 0; i-- {
		e := events[i]
		if e.Kind != parser.Content && e.Kind != parser.Reasoning {
			if decided == 0 { // all that came before the call's last event belongs to it
				decided = end
			}
			continue
		}
		at := bytes.LastIndex(a.text[:min(end, limit)], []byte(e.Text))
		if at < 0 {
			at = bytes.LastIndex(a.text[:end], []byte(e.Text))
		}
		last := at + len(e.Text)
		if at < 0 { // not the text as it came: take all
			at, last = 0, end
		}
		a.spans[i] = span{a.base + at, a.base + last}
		decided = max(decided, last)
		end = at
	}
	a.base += decided
	a.text = a.text[:copy(a.text, a.text[decided:])]
	return a.spans
}

// held is the length of the end of text that may become a marker.
func (a *aligner) held() int {
	for n := min(len(a.text), 32); n > 0; n-- {
		end := a.text[len(a.text)-n:]
		for _, m := range a.markers {
			if m[0] == end[0] && len(m) > n && m[:n] == string(end) {
				return n
			}
		}
	}
	return 0
}

// of takes the entries of the tokens that a span of content came from, and drops those before it: they were of reasoning or
// of markup.
func (l *logprobs) of(s span) []byte {
	l.drop(s.start, false)
	k := 0
	for k < len(l.queue)-l.open && l.queue[k].start < s.end {
		k++
	}
	return l.take(k)
}

// drop drops the entries of tokens that end before a position, or with touching at it.
func (l *logprobs) drop(position int, touching bool) {
	k := 0
	for k < len(l.queue)-l.open {
		e := l.queue[k]
		if e.end > position || e.end == position && e.start == e.end && !touching {
			break
		}
		k++
	}
	l.take(k)
}

// trailing takes the entries of tokens without text that follow the last content. Give has dropped those that follow anything
// else.
func (l *logprobs) trailing() []byte {
	k := 0
	for k < len(l.queue) && l.queue[k].start == l.align.base && l.queue[k].end == l.align.base {
		k++
	}
	return l.take(k)
}
