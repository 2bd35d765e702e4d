package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"pd-router/internal/nodes"
)

// session is what the checks of one Run share.
type session struct {
	opts Options

	mu      sync.Mutex
	running map[*running]struct{}
}

// running is a check that has begun and not ended.
type running struct {
	node, check string
	since       time.Time
}

func newSession(o Options) *session { return &session{opts: o, running: map[*running]struct{}{}} }

// progressPeriod is how often Progress is told, and how long a check runs before it is told of.
const progressPeriod = 3 * time.Second

// tellProgress starts the goroutine that tells Progress; stop ends it and waits for that.
func (s *session) tellProgress() (stop func()) {
	if s.opts.Progress == nil {
		return func() {}
	}
	end, ended := make(chan struct{}), make(chan struct{}) // closed by stop, by the goroutine
	go func() {
		defer close(ended)
		tick := time.NewTicker(progressPeriod)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				for _, r := range s.slow() {
					s.opts.Progress(r.node, r.check, time.Since(r.since))
				}
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// slow are the checks that have been running for a period.
func (s *session) slow() (out []running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range s.running {
		if time.Since(r.since) >= progressPeriod {
			out = append(out, *r)
		}
	}
	return out
}

// list are the checks of one node in the order of the report. One goroutine at a time uses it.
type list struct {
	*session
	node   string
	checks []CheckResult
}

// check looks at one thing within the limit, and says whether what depends on it can be looked at too.
func (l *list) check(ctx context.Context, name string, limit time.Duration, look func(context.Context) finding) bool {
	r := &running{l.node, name, time.Now()}
	l.mu.Lock()
	l.running[r] = struct{}{}
	l.mu.Unlock()
	bounded, cancel := context.WithTimeoutCause(ctx, limit, lateError(limit))
	f := look(bounded)
	cancel()
	l.mu.Lock()
	delete(l.running, r)
	l.mu.Unlock()
	l.add(name, f, time.Since(r.since))
	return f.status == OK || f.status == Warn
}

// add puts down what was found.
func (l *list) add(name string, f finding, took time.Duration) {
	if l.node != groupAll { // what stands there is made of short pieces, one for each node
		f.detail = plain(f.detail)
	}
	l.checks = append(l.checks, CheckResult{Node: l.node, Check: name, Status: f.status, Detail: f.detail, Advice: f.advice, TookMS: milliseconds(took)})
}

// amend replaces what was found by a check that was well, in the light of others.
func (l *list) amend(name string, f finding) {
	for i := range l.checks {
		if c := &l.checks[i]; c.Check == name && c.Status == OK {
			c.Status, c.Detail, c.Advice = f.status, plain(f.detail), f.advice
		}
	}
}

// skip puts down checks that were not made.
func (l *list) skip(why string, names ...string) {
	for _, name := range names {
		l.add(name, unchecked("%s", why), 0)
	}
}

// get reads a page.
func get(ctx context.Context, up *nodes.Upstream, path string, header []byte) (status int, page []byte, err error) {
	return ask(ctx, up, &nodes.Call{Method: "GET", Path: path, Header: header})
}

// maxPage bounds an answer; pages and one-token replies are far below it.
const maxPage = 4 << 20

func ask(ctx context.Context, up *nodes.Upstream, call *nodes.Call) (status int, page []byte, err error) {
	resp, err := up.Do(ctx, call)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Close()
	page, err = resp.ReadAll(maxPage)
	return resp.Status, page, err
}

// lateError is the end of a limit.
type lateError time.Duration

func (e lateError) Error() string { return fmt.Sprintf("no answer within %v", time.Duration(e)) }

// why is an error of a connection in few words.
func why(ctx context.Context, err error) string {
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		<-ctx.Done() // a dialer may notice the deadline a moment before the context's own timer does
	}
	if ctx.Err() != nil { // what broke then is an effect
		err = context.Cause(ctx)
	}
	var (
		late  lateError
		errno syscall.Errno
		dns   *net.DNSError
		lost  *nodes.Error
	)
	switch {
	case errors.As(err, &late):
		return late.Error()
	case errors.Is(err, context.Canceled):
		return "the probe was stopped"
	case errors.As(err, &dns):
		return dns.Error()
	case errors.As(err, &errno):
		return errno.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was closed without a whole answer"
	case errors.As(err, &lost):
		return lost.Err.Error()
	}
	return err.Error()
}
