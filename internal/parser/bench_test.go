package parser

import (
	"fmt"
	"strings"
	"testing"
)

// benchPush pushes the pieces of a reply over and over, one per iteration, with a new parser for each reply.
func benchPush(b *testing.B, parser string, o Options, pieces []string) {
	b.Helper()
	b.ReportAllocs()
	events := make([]Event, 0, 64)
	p, _ := New(parser, o)
	i := 0
	for b.Loop() {
		if i == len(pieces) {
			events = p.Finish(events[:0])
			p, _ = New(parser, o)
			i = 0
		}
		events = p.Push(events[:0], pieces[i])
		i++
	}
}

func BenchmarkPush(b *testing.B) {
	var pairs []string
	for i := range 100 {
		pairs = append(pairs, fmt.Sprintf("key%d", i), strings.Repeat("some value ", 10))
	}
	typed := on
	typed.Tools = someTools
	for _, bc := range []struct {
		name, parser string
		o            Options
		text         string
	}{
		{"content", "glm47", off, strings.Repeat("tok ", 10_000)},
		{"content not ASCII", "glm47", off, strings.Repeat("世 ", 10_000)},
		{"content with angle brackets", "glm47", off, strings.Repeat("i < n;", 10_000)},
		{"reasoning", "glm47", on, strings.Repeat("tok ", 10_000)},
		{"call", "glm47", on, "</think>" + glmCall("f", pairs...)},
		{"call with tools", "glm47", typed, "</think>" + glmCall("f", pairs...)},
		{"large value", "glm47", on, "</think>" + glmCall("f", "a", strings.Repeat("tok ", 10_000))},
		{"content", "dsml", off, strings.Repeat("tok ", 10_000)},
		{"large value", "dsml", off, dsmlBlockOf(invoke("f", param("a", "true", strings.Repeat("tok ", 10_000))))},
	} {
		b.Run(bc.parser+" "+bc.name, func(b *testing.B) { benchPush(b, bc.parser, bc.o, cut(bc.text, 4)) })
	}
}

// A blocking reply is pushed in one piece.
func BenchmarkWhole(b *testing.B) {
	text := strings.Repeat("plain text of a long answer. ", 10_000)
	b.SetBytes(int64(len(text)))
	benchPush(b, "glm47", off, []string{text})
}
