package main

import (
	"bytes"
	"strconv"
	"sync"
	"time"
)

// slot is what nodes with room for one request see of a router in front of them.
type slot struct {
	mu          sync.Mutex
	marks       []int           // of the requests, in the order in which they were prefilled; see mark
	gaps        []time.Duration // from the end of a decode to the next prefill
	busy        time.Duration   // with decoding
	first, last time.Time       // the first prefill, the end of the last decode
	began       time.Time       // the running decode
	running     int
	overlaps    int // decodes that came while another ran
}

// mark is what a client's prompt begins with, so that the node knows whose turn it is.
func mark(i int) string { return "#" + strconv.Itoa(i) + " " }

func (s *slot) prefill(body []byte) {
	now := time.Now()
	_, rest, _ := bytes.Cut(body[:min(len(body), 256)], []byte(`"#`))
	digits, _, _ := bytes.Cut(rest, []byte{' '})
	i, err := strconv.Atoi(string(digits))
	if err != nil {
		i = -1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks = append(s.marks, i)
	if s.first.IsZero() {
		s.first = now
	}
	if !s.last.IsZero() {
		s.gaps = append(s.gaps, now.Sub(s.last))
	}
}

func (s *slot) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running++; s.running > 1 {
		s.overlaps++
	}
	s.began = time.Now()
}

// end comes before the last bytes are sent: they may be at the other side before this side is told that they are on their way.
func (s *slot) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	s.last = time.Now()
	s.busy += s.last.Sub(s.began)
}

// use is the part of the time in which the slot decoded.
func (s *slot) use() float64 { return s.busy.Seconds() / s.last.Sub(s.first).Seconds() }

// disorder is how many requests were prefilled after one that came later.
func (s *slot) disorder() int {
	n, highest := 0, -1
	for _, i := range s.marks {
		if i < highest {
			n++
		}
		highest = max(highest, i)
	}
	return n
}
