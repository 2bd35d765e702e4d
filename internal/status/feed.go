package status

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"pd-router/internal/router"
)

// Bounds of the feed.
const (
	period      = time.Second
	maxWatchers = 32
	maxBehind   = 3                      // messages that may wait for a watcher
	farewell    = 500 * time.Millisecond // for the last message, when the page closes
)

// The errors of Watch and Run.
var (
	ErrFull   = errors.New("as many pages are watched as may")
	ErrClosed = errors.New("the router is shutting down")
	ErrSlow   = errors.New("the watcher did not take its messages")
)

// Source is where the page looks; *router.Router is one.
type Source interface {
	// Look must cost the same however many requests wait.
	Look(waiters int) router.Look
}

// About is what stays the same while the program runs.
type About struct {
	Version  string
	Settings []Setting // all flags in force; whoever fills them in leaves secrets out
}

// Page is the live page of one router. Its methods may be called from any goroutine.
type Page struct {
	source  Source
	about   About
	started time.Time
	sampler sync.WaitGroup // of goroutines that sample; mostly none or one

	mu       sync.Mutex
	watchers map[*Watcher]struct{}
	stop     chan struct{} // ends the sampler; closed under mu by whoever sets it to nil, which it is while nobody watches
	seen     since         // end of the last message
	closed   bool
}

// New returns a page that nobody watches yet.
func New(source Source, about About) *Page {
	return &Page{source: source, about: about, started: time.Now(), watchers: map[*Watcher]struct{}{}}
}

// JSON is the snapshot of this moment, the body of GET /queue.
func (p *Page) JSON() []byte {
	v := p.source.Look(shownWaiters)
	return encode(p.about.whole(&v, p.started))
}

// Watcher gets the feed. Its messages are the same slices that others get.
type Watcher struct {
	page     *Page
	bound    func(time.Duration)
	messages chan []byte // sent to and closed by the page, under its mu
	slow     bool        // why it was closed; written before that
}

// Watch adds a watcher, who gets the whole state first. bound is called when the watcher must come to its end: a write that
// is under way, and all that follow, must fail after that time. It must not block.
// The error is ErrFull or ErrClosed.
func (p *Page) Watch(bound func(time.Duration)) (*Watcher, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nil, ErrClosed
	case len(p.watchers) >= maxWatchers:
		return nil, ErrFull
	}
	w := &Watcher{page: p, bound: bound, messages: make(chan []byte, 1+maxBehind)}
	v := p.source.Look(shownWaiters) // under mu: no message falls between the whole and the first change (invariant 5)
	w.messages <- event("snapshot", encode(p.about.whole(&v, p.started)))
	p.watchers[w] = struct{}{}
	if p.stop == nil {
		stop := make(chan struct{})
		p.stop, p.seen = stop, end(&v)
		p.sampler.Go(func() { p.sample(stop) }) // ended by the last watcher or Close, awaited by Close
	}
	return w, nil
}

// First is the whole state alone, instead of Run: for a client that takes no stream.
func (w *Watcher) First() []byte { return <-w.messages }

// Run writes messages, one call each, until ctx ends (its cause is the error), a write fails, the watcher is dropped (ErrSlow) or the page
// closes (nil).
func (w *Watcher) Run(ctx context.Context, write func(event []byte) error) error {
	for {
		select {
		case m, ok := <-w.messages:
			switch {
			case !ok && w.slow:
				return ErrSlow
			case !ok:
				return write(event("bye", []byte("{}")))
			}
			if err := write(m); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close ends the watch. A second call does nothing.
func (w *Watcher) Close() {
	w.page.mu.Lock()
	defer w.page.mu.Unlock()
	delete(w.page.watchers, w)
	w.page.restLocked()
}

// Close ends all watches, for good, and returns when no goroutine is left. A second call does nothing.
func (p *Page) Close() {
	p.mu.Lock()
	p.closed = true
	for w := range p.watchers {
		p.endLocked(w, farewell)
	}
	p.restLocked()
	p.mu.Unlock()
	p.sampler.Wait()
}

// endLocked takes w out, who may write for as long as within.
func (p *Page) endLocked(w *Watcher, within time.Duration) {
	delete(p.watchers, w)
	w.bound(within)
	close(w.messages)
}

// restLocked ends the sampler when nobody watches.
func (p *Page) restLocked() {
	if len(p.watchers) == 0 && p.stop != nil {
		close(p.stop)
		p.stop = nil
	}
}

func (p *Page) sample(stop <-chan struct{}) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			p.tell(stop)
		case <-stop:
			return
		}
	}
}

// tell sends what has changed to all watchers. One who has not taken the last few is dropped (invariant 4).
func (p *Page) tell(stop <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-stop: // meanwhile; another sampler may be at work
		return
	default:
	}
	v := p.source.Look(shownWaiters)
	m := event("update", encode(snapshot(&v, p.started, p.seen)))
	p.seen = end(&v)
	for w := range p.watchers {
		select {
		case w.messages <- m:
		default:
			w.slow = true
			p.endLocked(w, 0)
		}
	}
	p.restLocked()
}

func encode(s Snapshot) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic("BUG: a snapshot that is no JSON: " + err.Error())
	}
	return b
}

// event is one message of the feed. data is a single line.
func event(name string, data []byte) []byte {
	var b bytes.Buffer
	b.Grow(len(name) + len(data) + 16)
	b.WriteString("event: ")
	b.WriteString(name)
	b.WriteString("\ndata: ")
	b.Write(data)
	b.WriteString("\n\n")
	return b.Bytes()
}
