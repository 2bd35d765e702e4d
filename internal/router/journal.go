package router

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"pd-router/internal/openai"
	"pd-router/internal/tilert"
)

// How many finished requests are remembered. Those that never had a slot stand apart: a flood of refusals pushes out
// none of the others.
const (
	keptServed   = 40
	keptUnserved = 24
)

// Finished is a request that has ended, as a status page shows it. It holds nothing that a client wrote.
type Finished struct {
	Seq      uint64 // counts the requests that ended, from 1
	End      time.Time
	Endpoint openai.Endpoint
	Outcome  Outcome
	Status   int // that the client saw, or would have seen
	Stream   bool
	Attempts int    // pairs of legs
	Node     string // of the last attempt, "" when there was none
	RID      string // of the last attempt, "" before prefill has told it

	BodyBytes        int
	PromptTokens     int
	CompletionTokens int

	// What the phases took, 0 for one that was not reached. Of several attempts they add up.
	ReadBody, Queue, Prefill, KVWait, Decode, Total time.Duration

	ErrorType string // one of openai's closed set, "" when all went well
	Param     string // the field that was at fault, "" for none
	Error     string // for people; "" when the text may quote what a client or a node wrote
}

// journal remembers the requests that ended last. It is written once a request and read when somebody looks.
type journal struct {
	mu       sync.Mutex
	seq      uint64
	served   ring
	unserved ring
	seconds  [64]tally
}

// tally counts what ended in one second.
type tally struct {
	at      int64 // unix second
	ended   int
	refused int // with 429
}

// ring holds the last few requests. Its space is made at its first use and never grows.
type ring struct {
	rows []Finished
	next int
}

func (g *ring) add(size int, row *Finished) {
	if g.rows == nil {
		g.rows = make([]Finished, 0, size)
	}
	if len(g.rows) < size {
		g.rows = append(g.rows, *row)
		return
	}
	g.rows[g.next] = *row
	g.next = (g.next + 1) % size
}

// finished notes the end of a life. finish calls it, once.
func (j *journal) finished(l *life, f *failure) {
	row := l.row(f)
	served := !l.times.granted.IsZero()
	second := row.End.Unix()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seq++
	row.Seq = j.seq
	if served {
		j.served.add(keptServed, &row)
	} else {
		j.unserved.add(keptUnserved, &row)
	}
	t := &j.seconds[second%int64(len(j.seconds))]
	if t.at != second {
		*t = tally{at: second}
	}
	t.ended++
	if row.Status == 429 {
		t.refused++
	}
}

// row is the life as the journal keeps it.
func (l *life) row(f *failure) Finished {
	row := Finished{
		End: l.times.end, Endpoint: l.call.Endpoint, Outcome: f.outcome, Status: l.status(f), Attempts: l.attempts,
		Node: l.nodeName, RID: l.rid(), BodyBytes: len(l.call.Body),
		ReadBody: l.call.ReadBody, Queue: l.times.queue, Prefill: l.times.prefill, KVWait: l.times.kvWait,
		Decode: l.times.decodeTime(), Total: l.times.end.Sub(l.times.start), Error: l.publicText(f),
	}
	if l.req != nil {
		row.Stream = l.req.Stream
	}
	if l.prefilled != nil {
		row.PromptTokens = l.prefilled.PromptTokens
	}
	if l.reply != nil {
		row.CompletionTokens = l.reply.CompletionTokens()
	}
	if f.err != nil {
		row.ErrorType, row.Param = f.err.Type, f.err.Param
	}
	return row
}

// publicText is what went wrong in words of our own. The client's message may quote its request, or what a node said of
// it; a page that anybody on the network may read must not.
func (l *life) publicText(f *failure) string {
	switch f.outcome {
	case QueueFull, QueueTimeout, Draining, ClientGone, DecodeBusy, Internal:
		return f.err.Message
	case DecodeRefused:
		return "the decode node refused the request"
	case PrefillFailed, DecodeFailed, StreamFailed:
	default:
		return "" // OK has none, the others are about the request: type and field tell
	}
	var answer *statusError
	switch {
	case errors.As(f.cause, &answer):
		return fmt.Sprintf("the %s node answered %d", answer.leg, answer.status)
	case f.cause != nil && l.line.Kind == tilert.ErrorLine && f.cause.Error() == l.line.Error:
		return "the decode node ended the request with an error"
	case f.cause != nil && f.cause.Error() == f.err.Message:
		return "the prefill node's answer cannot be used"
	}
	return f.err.Message
}

// read gives the remembered requests, oldest first, and what ended in the whole minute before now.
func (j *journal) read(now time.Time) (rows []Finished, minute tally) {
	j.mu.Lock()
	defer j.mu.Unlock()
	rows = make([]Finished, 0, len(j.served.rows)+len(j.unserved.rows))
	rows = append(append(rows, j.served.rows...), j.unserved.rows...)
	slices.SortFunc(rows, func(a, b Finished) int { return cmp.Compare(a.Seq, b.Seq) })
	minute.at = now.Unix() - 60
	for _, t := range j.seconds {
		if t.at >= minute.at && t.at < now.Unix() {
			minute.ended += t.ended
			minute.refused += t.refused
		}
	}
	return rows, minute
}
