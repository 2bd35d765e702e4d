package router

import (
	"fmt"
	"time"

	"pd-router/internal/queue"
)

// A client that asks for it is told, while it waits, where it stands: by comments in the event stream, which clients of
// event streams pass over. The status is 200 then before anything is certain, and a refusal comes as an error event; so
// nobody gets this who did not ask.
const (
	tellEvery = 2 * time.Second
	tellLimit = 1000 // places are counted up to here
)

// serveTelling is serve for such a client. The stream is begun with the first comment.
func (l *life) serveTelling(out *flusher) *failure {
	l.tell = out
	defer func() { l.tell = nil }()
	out.buf = append(out.buf, ": accepted\n\n"...)
	if out.flush() != nil {
		return l.writeFailed()
	}
	return l.serve()
}

// acquire takes a slot for want, telling the client where it stands if it asked for that.
func (l *life) acquire(q *queue.Queue, want queue.Want) (*queue.Lease, error) {
	defer l.comeBack()
	if l.tell == nil {
		if l.back != nil {
			want.Joined = func(queue.Ticket) { l.comeBack() }
		}
		return q.Acquire(l.ctx, want)
	}
	joined := make(chan queue.Ticket, 1)
	want.Joined = func(ticket queue.Ticket) { joined <- ticket }
	got := acquiring(l.ctx, q, want)
	ticker := time.NewTicker(tellEvery)
	defer ticker.Stop()
	var ticket queue.Ticket
	for {
		select {
		case a := <-got:
			return a.lease, a.err
		case ticket = <-joined:
			l.comeBack()
		case <-ticker.C:
		}
		l.tellPlace(ticket)
	}
}

// tellPlace writes one comment. A client that has left is the hang-up watcher's to notice.
func (l *life) tellPlace(ticket queue.Ticket) {
	if ticket == (queue.Ticket{}) {
		return
	}
	before := l.r.before(ticket)
	text := fmt.Sprintf(": waiting, %d before", before)
	if before >= tellLimit {
		text += " or more"
	} else if hold := l.r.meanHold(); hold > 0 {
		text += fmt.Sprintf(", about %.0f s", (hold * time.Duration(before+1) / time.Duration(len(l.r.backends))).Seconds())
	}
	l.tell.buf = append(append(l.tell.buf, text...), "\n\n"...)
	_ = l.tell.flush()
}

// meanHold is how long slots were held lately, 0 when nothing is known.
func (r *Router) meanHold() time.Duration {
	var sum time.Duration
	n := 0
	for _, be := range r.backends {
		be.track.mu.Lock()
		for _, h := range be.track.holds[:min(be.track.held, keptHolds)] {
			sum += h
			n++
		}
		be.track.mu.Unlock()
	}
	if n == 0 {
		return 0
	}
	return sum / time.Duration(n)
}
