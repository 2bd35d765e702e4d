package sim

import (
	"io"
	"net"
	"time"
)

// lines is the stream of one reply: fasthttp reads lines from it and writes each read to the client at once. It owns the slot from
// the moment it is made, and lets go of it after the last line, or when the client is gone.
type lines struct {
	node  *Decode
	job   *job
	conn  net.Conn
	r     *reply
	seq   int
	fault string

	begin time.Time // of the first token
	sent  int       // tokens written so far
	last  time.Time // when something was written last
	ready []byte    // lines that have not been read yet
	buf   []byte
	over  bool // the last line is in ready, or was read
}

// Read returns whole lines as far as they fit. It waits until there is something to say.
func (s *lines) Read(p []byte) (int, error) {
	for len(s.ready) == 0 {
		if s.over {
			s.node.finish(s.job)
			return 0, io.EOF
		}
		if err := s.more(len(p)); err != nil {
			s.node.finish(s.job)
			return 0, err
		}
	}
	n := copy(p, s.ready)
	s.ready = s.ready[n:]
	return n, nil
}

// Close is called by fasthttp when the reply has been written, or could not be.
func (s *lines) Close() error {
	s.node.finish(s.job)
	return nil
}

// more makes the next lines, room being how many bytes can be used at once.
func (s *lines) more(room int) error {
	s.buf = s.buf[:0]
	now := time.Now()
	switch {
	case s.begin.IsZero():
		s.begin, s.last = now, now
		s.first()
	case s.job.cancelled():
		s.emit(s.r.due(now.Sub(s.begin)), room)
		s.end("cancelled")
	case s.sent >= s.r.n || s.r.eos || s.r.silent:
		s.end(s.r.finish)
	default:
		if err := s.pause(now); err != nil {
			return err
		}
		s.emit(s.r.due(time.Since(s.begin)), room)
		if s.broken() {
			return s.breakOff()
		}
		if s.sent >= s.r.n && !s.job.cancelled() {
			s.end(s.r.finish)
		}
	}
	s.ready = s.buf
	return nil
}

// first is what comes at once: the first token on a line of its own. Generation V5 has no such rule.
func (s *lines) first() {
	switch {
	case s.r.silent:
		s.end(s.r.finish)
	case s.r.eos:
		s.buf = append(s.r.appendTokens(append(s.buf, '{'), 0, 1), "}\n"...)
	default:
		s.emitLine(0, 1)
	}
}

// pause waits until the next write is due: the next token, or the poll interval, or the end of the reply.
func (s *lines) pause(now time.Time) error {
	due := s.begin.Add(s.r.at(s.r.n - 1))
	if s.node.o.PerToken {
		due = s.begin.Add(s.r.at(s.sent))
	} else if tick := s.last.Add(s.node.o.Poll); tick.Before(due) {
		due = tick
	}
	if s.fault == faultStall {
		due = now.Add(stallTime)
	}
	switch s.node.life.wait(due.Sub(now), s.conn, s.job.cancel) {
	case leftUs:
		return io.ErrClosedPipe
	case shutDown:
		return errClosed
	case timeUp:
		if s.fault == faultStall {
			s.buf = append(s.buf, "{\"error\": \"decode stalled\"}\n"...)
			s.over = true
		}
	}
	s.last = time.Now()
	return nil
}

// stallTime is how long the node waits for an engine that says nothing.
const stallTime = 600 * time.Second

// emit writes the tokens that are there: in one line, or in lines of one as far as there is room.
func (s *lines) emit(have, room int) {
	if s.over {
		return
	}
	if !s.node.o.PerToken {
		if have > s.sent {
			s.emitLine(s.sent, have)
		}
		return
	}
	for s.sent < have && len(s.buf) < room/2 {
		s.emitLine(s.sent, s.sent+1)
	}
}

func (s *lines) emitLine(from, to int) {
	s.buf = append(s.r.appendTokens(append(s.buf, '{'), from, to), "}\n"...)
	s.sent = to
	s.node.tokens.Add(uint64(to - from))
}

// end writes the done line.
func (s *lines) end(finish string) {
	s.r.timings.decode = time.Since(s.begin)
	n := s.sent
	if s.r.silent {
		n = 1
	}
	s.buf = s.r.appendDone(s.buf, n, s.seq, finish)
	s.over = true
}

// broken reports that the request has a fault which shows now, half way through.
func (s *lines) broken() bool {
	switch s.fault {
	case faultTruncate, faultGarbage, faultError:
		return !s.over && s.sent*2 >= s.r.n
	}
	return false
}

func (s *lines) breakOff() error {
	s.over = true
	switch s.fault {
	case faultTruncate:
		return io.ErrUnexpectedEOF // the connection then ends without the end of the body
	case faultGarbage:
		s.buf = append(s.buf, "this is no JSON\n"...)
	case faultError:
		s.buf = append(s.buf, "{\"error\": \"engine exploded\"}\n"...)
	}
	s.ready = s.buf
	return nil
}
