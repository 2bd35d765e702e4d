package token

import "slices"

// StopMatcher finds stop strings in a text that comes in pieces (spec 6.6). The stop that ends first wins; of several that
// end at the same byte, the first in the list. A nil StopMatcher has no stops and lets all text through.
//
// It is an Aho-Corasick automaton over bytes. Its state is the longest end of the text that begins a stop string, which is
// just the text that must be held back; as that text is the beginning of a known string, nothing is ever buffered, and a
// reply of any length needs the same memory.
type StopMatcher struct {
	stops   []string
	include bool
	nodes   []node
	root    [256]int32 // the root's edges: where most bytes of a text are looked up
	state   int32
	done    bool
}

// node is a beginning of one or more stop strings. Node 0 is the empty one. Its edges are a linked list: stop strings come
// from clients, and a table of 256 edges for each of their bytes would let a short request ask for much memory.
type node struct {
	fail    int32 // the longest other beginning that this one ends in
	match   int32 // first stop in the list that this beginning ends in, or -1
	depth   int32 // length in bytes
	source  int32 // a stop that starts with this beginning
	child   int32 // first edge's node, 0 for none
	sibling int32 // next edge of the same parent, 0 for none
	label   byte  // byte on the edge to this node
}

// NewStopMatcher returns a matcher for stops, none of which may be empty. With include the stop string itself stays in the
// text. No stops: nil.
func NewStopMatcher(stops []string, include bool) *StopMatcher {
	if len(stops) == 0 {
		return nil
	}
	m := &StopMatcher{stops: slices.Clone(stops), include: include, nodes: []node{{match: -1}}}
	for i, s := range m.stops {
		m.insert(int32(i), s)
	}
	m.link()
	return m
}

func (m *StopMatcher) insert(index int32, s string) {
	at := int32(0)
	for i := range len(s) {
		next := m.edge(at, s[i])
		if next == 0 {
			next = int32(len(m.nodes))
			m.nodes = append(m.nodes, node{
				match: -1, depth: int32(i + 1), source: index, sibling: m.nodes[at].child, label: s[i],
			})
			m.nodes[at].child = next
			if at == 0 {
				m.root[s[i]] = next
			}
		}
		at = next
	}
	if at != 0 && m.nodes[at].match < 0 {
		m.nodes[at].match = index
	}
}

// link sets fail and match, breadth first: a node's fail is shorter than the node and so is complete before it.
func (m *StopMatcher) link() {
	order := make([]int32, 1, len(m.nodes))
	for i := 0; i < len(order); i++ {
		parent := order[i]
		for at := m.nodes[parent].child; at != 0; at = m.nodes[at].sibling {
			order = append(order, at)
			if parent == 0 {
				continue
			}
			n := &m.nodes[at]
			n.fail = m.step(m.nodes[parent].fail, n.label)
			if other := m.nodes[n.fail].match; other >= 0 && (n.match < 0 || other < n.match) {
				n.match = other
			}
		}
	}
}

// edge returns the node that the byte c leads to from at, or 0.
func (m *StopMatcher) edge(at int32, c byte) int32 {
	if at == 0 {
		return m.root[c]
	}
	next := m.nodes[at].child
	for next != 0 && m.nodes[next].label != c {
		next = m.nodes[next].sibling
	}
	return next
}

// step returns the state after the byte c.
func (m *StopMatcher) step(state int32, c byte) int32 {
	for {
		if next := m.edge(state, c); next != 0 || state == 0 {
			return next
		}
		state = m.nodes[state].fail
	}
}

// Append takes the next piece of the text and appends to dst what may be shown: with include all of it, else all but an end
// that may still begin a stop string. When a stop string has been completed it says which, and the text is cut before it (or
// after it, with include); from then on every piece is ignored and stopped stays true.
func (m *StopMatcher) Append(dst, text []byte) (out []byte, stop string, stopped bool) {
	if m == nil {
		return append(dst, text...), "", false
	}
	if m.done {
		return dst, "", true
	}
	before := m.state // held until now, and not part of text
	for i := 0; i < len(text); i++ {
		if m.state = m.step(m.state, text[i]); m.state == 0 {
			continue
		}
		if match := m.nodes[m.state].match; match >= 0 {
			m.done = true
			stop = m.stops[match]
			cut := len(stop)
			if m.include {
				cut = 0
			}
			return m.show(dst, text[:i+1], before, cut), stop, true
		}
	}
	return m.show(dst, text, before, int(m.nodes[m.state].depth)), "", false
}

// show appends what was held in the state before, then text, less the last hide bytes of both together. With include,
// nothing was held.
func (m *StopMatcher) show(dst, text []byte, before int32, hide int) []byte {
	if m.include {
		return append(dst, text...)
	}
	held := m.held(before)
	if hide <= len(text) {
		return append(append(dst, held...), text[:len(text)-hide]...)
	}
	return append(dst, held[:len(held)+len(text)-hide]...)
}

func (m *StopMatcher) held(state int32) string {
	n := &m.nodes[state]
	return m.stops[n.source][:n.depth]
}

// Held is the number of bytes that are held back.
func (m *StopMatcher) Held() int {
	if m == nil || m.include || m.done {
		return 0
	}
	return int(m.nodes[m.state].depth)
}

// Flush appends the text that is still held at the end: it was no stop string after all.
func (m *StopMatcher) Flush(dst []byte) []byte {
	if m.Held() > 0 {
		dst = append(dst, m.held(m.state)...)
	}
	if m != nil {
		m.done = true
	}
	return dst
}
