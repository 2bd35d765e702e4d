package nixl

import (
	"runtime"
	"sync"
	"time"
)

// How often the library is asked. Asking also drives a write on, so at first nothing else is done: most writes end within eagerStart, on the
// goroutine that began them. Then it is the poller's turn, eager as well for eagerTicks, and then with pauses that grow, as the
// library's own thread drives the rest. One call into C stays below the 20 microseconds after which Go's scheduler takes
// the processor away from it, which costs more than the call. Go's timers are too coarse for the pauses (1.1 ms), hence a sleep in C on
// a thread of the poller's own.
const (
	spin       = 10 * time.Microsecond
	eagerStart = 20 * time.Millisecond
	eagerTicks = 100
	minPause   = 20 * time.Microsecond
	maxPause   = 100 * time.Microsecond
	// lazyPause is for writes that nobody waits for any more, to a peer that hangs.
	lazyPause = 20 * time.Millisecond
)

// tick is how one look at all requests goes: sleep for pause, then look until one has ended or spin is over, but once at least.
type tick struct {
	pause, spin time.Duration
}

// poller completes the writes of one agent. While there are none it waits on a channel.
type poller struct {
	drv    driver
	agent  handle
	settle func(t *transfer, err error, peerLost bool)
	wake   chan struct{} // of one place: something changed in what mu guards
	done   chan struct{} // closed when run returns

	mu    sync.Mutex
	inbox []*transfer
	drops []dropping
	quit  bool

	// Of run alone; of stop after done.
	live   []*transfer
	reqs   []handle
	status []Code
}

// dropping asks the poller to let go of a peer's writes. The poller closes answered.
type dropping struct {
	peer     *Peer
	answered chan struct{}
	left     *[]*transfer
}

func newPoller(drv driver, agent handle) *poller {
	return &poller{drv: drv, agent: agent, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// add gives a write in progress to the poller, which from then on alone touches its request.
func (p *poller) add(t *transfer) {
	p.mu.Lock()
	p.inbox = append(p.inbox, t)
	p.mu.Unlock()
	p.nudge()
}

// drop takes the writes to a peer away from the poller, which will not touch their requests again.
func (p *poller) drop(peer *Peer) []*transfer {
	var left []*transfer
	d := dropping{peer, make(chan struct{}), &left}
	p.mu.Lock()
	p.drops = append(p.drops, d)
	p.mu.Unlock()
	p.nudge()
	<-d.answered
	return left
}

// stop ends run and returns the writes that are still in progress. Nothing may be added or dropped any more.
func (p *poller) stop() []*transfer {
	p.mu.Lock()
	p.quit = true
	p.mu.Unlock()
	p.nudge()
	<-p.done
	return p.live
}

func (p *poller) nudge() {
	select {
	case p.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// run is the poller's goroutine. NewAgentNamed starts it, stop ends and awaits it.
func (p *poller) run() {
	defer close(p.done)
	runtime.LockOSThread() // it sleeps in C: a thread of its own keeps the others free
	defer runtime.UnlockOSThread()
	lazy := time.NewTimer(0)
	defer lazy.Stop()
	ticks := 0 // since the last change
	for {
		news, quit := p.take()
		if quit {
			return
		}
		if news {
			ticks = 0
		}
		switch {
		case len(p.live) == 0:
			<-p.wake
			continue
		case !p.awaited():
			lazy.Reset(lazyPause)
			select {
			case <-p.wake:
				continue
			case <-lazy.C:
				p.look(tick{})
			}
		case p.look(next(ticks)):
			ticks = 0
		default:
			ticks++
		}
	}
}

// next is the rhythm: eager at first, then with pauses that grow.
func next(ticks int) tick {
	if ticks < eagerTicks {
		return tick{spin: spin}
	}
	return tick{pause: min(maxPause, minPause*time.Duration(1+ticks-eagerTicks))}
}

// take reads the mailbox.
func (p *poller) take() (news, quit bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	news = len(p.inbox) > 0
	for _, t := range p.inbox {
		p.live, p.reqs, p.status = append(p.live, t), append(p.reqs, t.req), append(p.status, InProgress)
	}
	clear(p.inbox)
	p.inbox = p.inbox[:0]
	for _, d := range p.drops {
		for i := len(p.live) - 1; i >= 0; i-- {
			if p.live[i].peer == d.peer {
				*d.left = append(*d.left, p.live[i])
				p.remove(i)
			}
		}
		close(d.answered)
	}
	p.drops = nil
	return news, p.quit
}

func (p *poller) awaited() bool {
	for _, t := range p.live {
		if !t.abandoned.Load() {
			return true
		}
	}
	return false
}

// look asks the library about all requests and ends those that are at their end; it tells whether there were any.
func (p *poller) look(t tick) bool {
	p.drv.poll(p.agent, p.reqs, p.status, t)
	ended := false
	for i := len(p.live) - 1; i >= 0; i-- {
		if code := p.status[i]; code != InProgress {
			p.end(i, code)
			ended = true
		}
	}
	return ended
}

func (p *poller) end(i int, code Code) {
	t := p.live[i]
	p.remove(i)
	_ = p.drv.release(p.agent, t.req) // the end is known, and there is nobody to whom a leak of the library would matter
	if code == Success {
		p.settle(t, nil, false)
		return
	}
	p.settle(t, lost("get_xfer_status", t.peer.name, code), true)
}

func (p *poller) remove(i int) {
	last := len(p.live) - 1
	p.live[i], p.reqs[i], p.status[i] = p.live[last], p.reqs[last], p.status[last]
	p.live[last] = nil
	p.live, p.reqs, p.status = p.live[:last], p.reqs[:last], p.status[:last]
}
