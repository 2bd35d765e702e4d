package parser

import (
	"strings"
	"unicode/utf8"
)

const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"
)

// scan finds the first of markers in text: text[:n] is free of them, found is the one at n. When partial is set, text
// ends at n with what may become one. Every marker begins with '<' and none is the beginning of another.
func scan(text string, markers []string) (n int, found string, partial bool) {
	for {
		i := strings.IndexByte(text[n:], '<')
		if i < 0 {
			return len(text), "", false
		}
		n += i
		if found, partial = at(text[n:], markers); found != "" || partial {
			return n, found, partial
		}
		n++
	}
}

// at is scan for a marker that must stand at the very beginning of text, which is not empty.
func at(text string, markers []string) (found string, partial bool) {
	for _, m := range markers {
		if strings.HasPrefix(text, m) {
			return m, false
		}
		partial = partial || strings.HasPrefix(m, text)
	}
	return "", partial
}

// spaces counts the whitespace that text begins with. Between markers the models write ASCII only.
func spaces(text string) int {
	return len(text) - len(strings.TrimLeft(text, " \t\n\v\f\r"))
}

// unfinished counts the bytes at the end of text that are the beginning of a character.
func unfinished(text string) int {
	for i := 1; i < utf8.UTFMax && i <= len(text); i++ {
		if b := text[len(text)-i]; utf8.RuneStart(b) {
			if b < utf8.RuneSelf || utf8.FullRuneInString(text[len(text)-i:]) {
				return 0
			}
			return i
		}
	}
	return 0
}

// carry holds the end of the text that cannot be judged yet. It is shorter than the longest marker.
type carry struct {
	held []byte
	seen int // length of the reply so far
}

// take puts the held text before text, which comes next in the reply, and holds nothing any more.
func (c *carry) take(text string) string {
	c.seen += len(text)
	if len(c.held) == 0 {
		return text
	}
	text = string(c.held) + text
	c.held = c.held[:0]
	return text
}

func (c *carry) keep(text string) { c.held = append(c.held[:0], text...) }

// prose reads what stands outside tool calls, which is alike in both grammars (spec 7.1): reasoning and content, with
// markers between them that are absorbed. With thinking off, think markers are text like any other.
type prose struct {
	carry
	opener    string // the marker that ends prose
	markers   []string
	reasoning bool
}

func newProse(thinking bool, opener string, absorbed ...string) prose {
	p := prose{opener: opener, markers: append([]string{opener}, absorbed...), reasoning: thinking}
	if thinking {
		p.markers = append(p.markers, thinkOpen, thinkClose)
	}
	return p
}

// read gives text out as events, up to the opener if there is one; rest is what follows it.
func (p *prose) read(dst []Event, text string) (events []Event, rest string, opened bool) {
	for {
		n, found, partial := scan(text, p.markers)
		run := text[:n]
		switch {
		case partial:
			p.keep(text[n:])
		case found == "":
			run = text[:n-unfinished(run)]
			p.keep(text[len(run):])
		}
		dst = p.say(dst, run, p.seen-len(text))
		if found == "" {
			return dst, "", false
		}
		text = text[n+len(found):]
		switch found {
		case p.opener:
			p.reasoning = false // a call ends reasoning, and content follows it
			return dst, text, true
		case thinkOpen:
			p.reasoning = true
		case thinkClose:
			p.reasoning = false
		}
	}
}

func (p *prose) say(dst []Event, text string, pos int) []Event {
	switch {
	case text == "":
		return dst
	case p.reasoning:
		return append(dst, Event{Kind: Reasoning, Text: text, Pos: pos})
	}
	return append(dst, Event{Kind: Content, Text: text, Pos: pos})
}

// release gives out the held text: the reply ended, so it is no marker.
func (p *prose) release(dst []Event) []Event {
	text := p.take("")
	return p.say(dst, text, p.seen-len(text))
}
