package scenario

import (
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// loaded is a router with two running replies, one of them streamed, and waiters behind them. Its decode nodes stand still until goOn, so
// that no reply ends before its test wants it to.
type loaded struct {
	*world
	running []*client
	asks    []*ask
	begun   *answer // of the streamed one
	waiters []*client
}

func load(t *testing.T, tokens int, flags string) *loaded {
	slow := words("--tokens-per-second 20 --per-token")
	l := &loaded{world: newWorld(t, setup{decode: [][]string{slow, slow}, router: words(flags)})}
	const waiters = 200
	for i := range 2 {
		a, c := say(i, i == 0, strings.Repeat("word ", tokens)), l.dial()
		l.asks, l.running = append(l.asks, a), append(l.running, c)
		c.send(a)
	}
	until(t, "both nodes decode", func() bool { return l.slots("decode") == 2 })
	l.begun = l.running[0].begun()
	for _, n := range l.decode {
		n.proc.signal(syscall.SIGSTOP)
	}
	for i := range waiters {
		c := l.dial()
		c.send(say(2+i, i%2 == 0, "never said"))
		l.waiters = append(l.waiters, c)
	}
	l.router.inLine(waiters)
	return l
}

func (l *loaded) goOn() {
	for _, n := range l.decode {
		n.proc.signal(syscall.SIGCONT)
	}
}

// refused checks that all waiters are told to come again.
func (l *loaded) refused() {
	l.t.Helper()
	var reading sync.WaitGroup
	for _, c := range l.waiters {
		reading.Go(func() {
			a := c.read()
			if a.err != nil || a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" || !strings.Contains(string(a.body), `"draining"`) {
				l.t.Errorf("a waiter was told %d, %v, %v: %s", a.status, a.header, a.err, a.body)
			}
		})
	}
	reading.Wait()
}

// over checks the end of the process: its code, its log, and the nodes, which must be idle.
func (l *loaded) over() {
	l.t.Helper()
	if code := l.router.proc.exit(); code != 0 {
		l.t.Errorf("exit code %d", code)
	}
	l.quiet()
	if logged := l.router.log.requests(); total(logged) != int(l.sent.Load()) {
		l.t.Errorf("%d requests, logged %v", l.sent.Load(), logged)
	}
	for _, n := range l.decode {
		until(l.t, n.name+" is idle", n.idle)
	}
	until(l.t, "no connection is left", func() bool {
		upstream, between := l.ports()
		for _, p := range append(upstream, between...) {
			if server, client := sockets(l.t, p); server+client > 0 {
				return false
			}
		}
		return true
	})
}

// TestSignalUnderLoad ends a router with waiters and running replies: promise 10 of the design, at once and for all of them.
func TestSignalUnderLoad(t *testing.T) {
	t.Parallel()
	l := load(t, 60, "--drain-timeout 120")
	l.router.proc.signal(syscall.SIGTERM)
	l.refused()
	if c, err := net.Dial("tcp", l.router.addr); err == nil {
		_ = c.Close()
		t.Error("a router that was told to end still listens")
	}
	l.goOn()
	for i, c := range l.running {
		r := l.judge(i, c)
		if r.failure != "" {
			t.Errorf("a running reply: %d %s: %s", r.status, r.failure, r.message)
		} else if what := l.asks[i].wrong(r); what != "" {
			t.Errorf("a running reply: %s", what)
		}
	}
	l.over()
	if got := l.router.log.requests(); got["ok"] != 2 || got["draining"] != len(l.waiters) {
		t.Errorf("outcomes: %v", got)
	}
}

// TestSecondSignalEndsAtOnce does not wait for replies that take long.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	l := load(t, 2000, "--drain-timeout 3600")
	l.router.proc.signal(syscall.SIGTERM)
	l.refused()
	select {
	case <-l.router.proc.ended:
		t.Fatal("the first signal ended the running replies")
	default:
	}
	l.goOn() // with 100 s of tokens to go
	start := time.Now()
	l.router.proc.signal(syscall.SIGTERM)
	for i, c := range l.running {
		r := l.judge(i, c)
		if r.failure != "draining" {
			t.Errorf("a running reply: %d %q: %.100q", r.status, r.failure, r.text)
		}
	}
	l.over()
	t.Logf("ended %s after the second signal", time.Since(start))
	if got := l.router.log.requests(); got["draining"] != len(l.waiters)+2 {
		t.Errorf("outcomes: %v", got)
	}
}

// judge reads the rest of a running reply.
func (l *loaded) judge(i int, c *client) *reply {
	if l.asks[i].stream {
		return c.judge(l.asks[i], c.finish(l.begun))
	}
	return c.readReply(l.asks[i])
}
