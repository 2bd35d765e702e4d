package scenario

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// TestOrderOfArrivalOutlivesAStandstill sends requests while the router does not run, on connections old and new. All of them are there
// when it runs again, and it does not begin to read them in the order in which they came (invariant 2).
func TestOrderOfArrivalOutlivesAStandstill(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{prefill: words("--kv none"), decode: [][]string{words("--kv none")}, tapped: true})
	w.tap.holdBack(func(text string) bool { return strings.Contains(text, mark(0)) })
	var reading sync.WaitGroup
	send := func(i int, c *client) {
		a := short(i)
		c.send(a)
		reading.Go(func() { checkReply(t, i, a, c.readReply(a), true) })
	}
	send(0, w.dial())
	until(t, "the first request is in prefill", func() bool { return w.tap.holding() == 1 })

	const n, rounds = 40, 3
	for round := range rounds {
		var old []*client
		for range n / 2 {
			old = append(old, w.dial().used())
		}
		w.standstill(func() {
			for i := range n {
				c := old[i/2]
				if i%2 == 1 {
					c = w.dial()
				}
				send(round*n+i+1, c)
			}
		})
		w.router.inLine((round + 1) * n)
	}
	w.tap.release()
	reading.Wait()
	inOrder(t, w.tap.order(), rounds*n+1, 0)
	w.settle()
}

// standstill does what it is given while the router does not run.
func (w *world) standstill(meanwhile func()) {
	w.t.Helper()
	p := w.router.proc
	p.signal(syscall.SIGSTOP)
	defer p.signal(syscall.SIGCONT)
	until(w.t, "the router stands still", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid()))
		must(w.t, err)
		_, after, _ := bytes.Cut(stat, []byte(") "))
		return after[0] == 'T'
	})
	meanwhile()
}

// used has a first request and its reply behind it.
func (c *client) used() *client {
	c.w.t.Helper()
	_, err := io.WriteString(c.c, "GET /health HTTP/1.1\r\nHost: router\r\n\r\n")
	must(c.w.t, err)
	a := c.head()
	must(c.w.t, a.err)
	if _, err = io.Copy(io.Discard, a.rest); err != nil || a.status != http.StatusOK {
		c.w.t.Fatalf("GET /health: %d, %v", a.status, err)
	}
	return c
}
