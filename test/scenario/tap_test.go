package scenario

import (
	"net"
	"regexp"
	"sync"
	"testing"
)

// tap stands between the router and a node, or between two nodes. It passes bytes on as they are, notes the marks that it sees on
// their way to the node, and holds back what it is told to.
type tap struct {
	addr   string
	target string
	mark   *regexp.Regexp
	ln     net.Listener
	work   sync.WaitGroup

	mu    sync.Mutex
	hold  func(text string) bool // nil: nothing is held
	freed chan struct{}          // closed by release
	held  int
	marks []string // first groups of mark, in order
	conns map[net.Conn]bool
	over  bool
}

// What taps look for: the mark that every request of these tests carries in its text, and the rid of a decode request.
var (
	markOf = regexp.MustCompile(`#(\d{6})#`)
	ridOf  = regexp.MustCompile(`"rid":"(\w+)","first_token_id"`)
)

// newTap looks for mark in what it passes on to target.
func newTap(t testing.TB, target string, mark *regexp.Regexp) *tap {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &tap{addr: ln.Addr().String(), target: target, mark: mark, ln: ln, freed: make(chan struct{}), conns: map[net.Conn]bool{}}
	p.work.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			p.work.Go(func() { p.pass(c) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		p.mu.Lock()
		p.over = true
		for c := range p.conns {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.work.Wait()
	})
	return p
}

// holdBack holds each piece of which f is true, until release.
func (p *tap) holdBack(f func(text string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold, p.freed = f, make(chan struct{})
}

// release lets go of what is held, and holds nothing more.
func (p *tap) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hold == nil {
		return
	}
	p.hold = nil
	close(p.freed)
}

// holding is how many pieces are held, or were since holdBack.
func (p *tap) holding() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

// order gives the marks so far.
func (p *tap) order() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.marks...)
}

// own notes a connection, to be closed at the end; false when that has come.
func (p *tap) own(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		_ = c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

func (p *tap) drop(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// pass serves one connection. The end of either side, a reset too, is one of the other.
func (p *tap) pass(c net.Conn) {
	if !p.own(c) {
		return
	}
	defer p.drop(c)
	up, err := net.Dial("tcp", p.target)
	if err != nil {
		reset(c)
		return
	}
	if !p.own(up) {
		return
	}
	defer p.drop(up)
	var back sync.WaitGroup
	back.Go(func() {
		copyUntilReset(c, up)
		_ = c.Close()
	})
	defer back.Wait()
	defer up.Close()
	p.forward(up, c)
}

// forward passes on what goes to the node. While a piece is held, the end of the connection is noticed all the same.
func (p *tap) forward(up, c net.Conn) {
	pieces, gone := make(chan []byte), make(chan struct{}) // the reader's: the end of what came
	stuck := make(chan struct{})                           // the writer's: no more is wanted
	var writing sync.WaitGroup
	writing.Go(func() {
		defer close(stuck)
		for piece := range pieces {
			if freed := p.look(string(piece)); freed != nil {
				select {
				case <-freed:
				case <-gone:
					return
				}
			}
			if _, err := up.Write(piece); err != nil {
				return
			}
		}
	})
	defer writing.Wait()
	defer close(pieces)
	defer close(gone)
	for {
		buf := make([]byte, 64<<10)
		n, err := c.Read(buf)
		if n > 0 {
			select {
			case pieces <- buf[:n]:
			case <-stuck:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// look notes the marks in a piece, and returns what it has to wait for, or nil.
func (p *tap) look(text string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.mark.FindAllStringSubmatch(text, -1) {
		p.marks = append(p.marks, m[1])
	}
	if p.hold == nil || !p.hold(text) {
		return nil
	}
	p.held++
	return p.freed
}

// copyUntilReset copies to the end of src; a reset of src is passed on as one.
func copyUntilReset(dst, src net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if isReset(err) {
				reset(dst)
			}
			return
		}
	}
}
