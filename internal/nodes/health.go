package nodes

import (
	"context"
	"sync"
	"time"
)

// Polling of one upstream. While it is up a look now and then finds a node that died idle; while it is down the
// looks are close together, so that service goes on soon after it is back.
const (
	pollUp       = 2 * time.Second
	pollDownMin  = 50 * time.Millisecond
	pollDownMax  = time.Second
	probeTimeout = 5 * time.Second
	// maxPenalty bounds how long a node that fails every request is left alone after each failure.
	maxPenalty = 2 * time.Second
	// lateLimit is how many probes in a row may time out before a node that was up counts as down: a busy
	// engine may be late once.
	lateLimit = 2
)

// health is what is known of whether one upstream answers, and the loop that keeps that knowledge fresh.
type health struct {
	probe    func(context.Context) error // one look; nil error: it answers
	onChange func(up bool, err error)    // called from the goroutine of Run or of Failed
	wake     chan struct{}               // asks for a look; sent by nudge, never closed

	mu      sync.Mutex
	up      bool
	seen    bool // has answered at least once
	told    bool // the first look is over, of which onChange is told whatever it found: a node may be down from the start
	err     error
	strikes int // failed requests since the last good one
	late    int // probes in a row that timed out
}

func newHealth(probe func(context.Context) error, onChange func(bool, error)) *health {
	return &health{probe: probe, onChange: onChange, wake: make(chan struct{}, 1)}
}

// Up says whether the upstream answered when it was last asked.
func (h *health) Up() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.up
}

// Seen says whether the upstream has ever answered.
func (h *health) Seen() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen
}

// Err is why the upstream is down, nil while it is up.
func (h *health) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// Failed reports that the upstream could not be reached: it is down until a probe finds it answering again.
func (h *health) Failed(err error) {
	h.mu.Lock()
	was := h.up
	h.up, h.err = false, err
	h.mu.Unlock()
	if was {
		h.onChange(false, err)
	}
	h.nudge()
}

// nudge asks for a look at once.
func (h *health) nudge() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// Struck counts a request that the upstream failed although it can be reached, and returns how long it should be
// left alone for it. The first failure costs nothing; further ones without a good request between cost more each time, so
// that a node that fails fast cannot draw the whole line to itself.
func (h *health) Struck() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.strikes++
	if h.strikes == 1 {
		return 0
	}
	return min(maxPenalty, 100*time.Millisecond<<min(h.strikes-2, 10))
}

// Succeeded reports a request that went well.
func (h *health) Succeeded() {
	h.mu.Lock()
	h.strikes = 0
	h.mu.Unlock()
}

// Run probes until ctx ends.
func (h *health) Run(ctx context.Context) {
	down := pollDownMin
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
			down = pollDownMin
		case <-timer.C:
		}
		if h.look(ctx) {
			down = pollDownMin
			timer.Reset(pollUp)
		} else {
			timer.Reset(down)
			down = min(2*down, pollDownMax)
		}
	}
}

// look probes once and says whether the upstream counts as up afterwards.
func (h *health) look(ctx context.Context) bool {
	probing, cancel := context.WithTimeoutCause(ctx, probeTimeout, ErrTimeout)
	err := h.probe(probing)
	cancel()
	if ctx.Err() != nil {
		return false
	}
	h.mu.Lock()
	was, first := h.up, !h.told
	h.told = true
	if IsTimeout(err) {
		h.late++
	} else {
		h.late = 0
	}
	switch {
	case err == nil:
		h.up, h.seen, h.err = true, true, nil
	case was && IsTimeout(err) && h.late < lateLimit:
	default:
		h.up, h.err = false, err
	}
	up := h.up
	h.mu.Unlock()
	if up != was || first {
		h.onChange(up, err)
	}
	return up
}
