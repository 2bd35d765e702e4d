package tilert

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
)

// DefaultAttempts is how often a rank asks for admission (tilert_admission_attempts of the connector).
const DefaultAttempts = 5

// firstPause is the pause after the first refusal; each further one is twice as long.
const firstPause = 200 * time.Millisecond

// AdmissionWindow is the sum of all pauses of a rank that asks so many times: 3 s for 5 attempts.
func AdmissionWindow(attempts int) time.Duration {
	return firstPause * time.Duration(1<<max(attempts-1, 0)-1)
}

// Want is what a sender needs its receiver to be.
type Want struct {
	Protocol      Protocol
	LayoutVersion int
	Senders       int // 0: not compared, as in the older 0.1.6 senders
	Transport     string
	SeqLen        int
}

// HelloError is a receiver that is not the right one. Nothing is written and nothing is tried again.
type HelloError struct {
	Field     string // name of the hello's field
	Got, Want string
}

func (e *HelloError) Error() string {
	return fmt.Sprintf("hello: %s is %s, want %s", e.Field, e.Got, e.Want)
}

// Check compares a hello with what the sender needs, in the real sender's order; the first difference is the error.
func (w Want) Check(h *Hello) error {
	num := strconv.Itoa
	switch {
	case h.Magic != Magic:
		return &HelloError{"magic", strconv.Quote(h.Magic), Magic}
	case w.Protocol != Protocol1 && h.Protocol != w.Protocol: // protocol 1 never looked
		return &HelloError{"protocol_version", num(int(h.Protocol)), num(int(w.Protocol))}
	case h.LayoutVersion != w.LayoutVersion:
		return &HelloError{"layout_version", num(h.LayoutVersion), num(w.LayoutVersion)}
	case w.Senders != 0 && h.Senders != w.Senders:
		return &HelloError{"senders", num(h.Senders), num(w.Senders)}
	case h.Transport != w.Transport:
		return &HelloError{"transport", strconv.Quote(h.Transport), w.Transport}
	case w.SeqLen > h.MaxSeqLen:
		return &HelloError{"max_seq_len", num(h.MaxSeqLen), "at least " + num(w.SeqLen)}
	}
	return nil
}

// Sender is one rank's part in one request: which connection may write, and when to try another one.
type Sender struct {
	Request       // RID, Rank, SeqLen and so on; AdmissionWindow is filled in
	Want     Want // SeqLen is filled in
	Attempts int  // 0 means DefaultAttempts

	tries int           // connections that asked so far
	pause time.Duration // before the next one
}

// ErrRefused is wrapped by every refusal that Send gives up on.
var ErrRefused = errors.New("receiver refuses the transfer")

// ErrRankDone is the refusal of a rank that has said done before: the receiver has its bytes.
var ErrRankDone = errors.New(ReasonDuplicateRank)

// RetryError is a refusal that another connection may overcome, after the pause.
type RetryError struct {
	Pause  time.Duration
	Reason string
	Detail string // NoConsumer: it will not, unless somebody asks the receiver for the rid
}

func (e *RetryError) Error() string { return "receiver is not ready: " + e.Reason }

// Converse runs one connection of the rank: hello, request, answer, writes, done. write moves the rank's bytes to where
// the hello says and returns when all of them have arrived; it is called at most once, and only after an accept that
// matches in every field (protocol 1: right after the request). A *RetryError asks for a new connection after its pause;
// any other error is final. The caller closes rw.
func (s *Sender) Converse(rw io.ReadWriter, write func(h *Hello) error) error {
	b, err := ReadFrame(rw, nil)
	if err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	h, err := ParseHello(b)
	if err != nil {
		return err
	}
	s.Want.SeqLen = s.SeqLen
	if err := s.Want.Check(h); err != nil {
		return err
	}
	if err := WriteFrame(rw, s.ask()); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	done := Done{Done: true, RID: s.RID, Rank: s.Rank}
	if s.Want.Protocol != Protocol1 {
		if b, err = ReadFrame(rw, b); err != nil {
			return fmt.Errorf("reply: %w", err)
		}
		if done.Generation, err = s.judge(b); err != nil {
			return err
		}
	}
	if err := write(h); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err := WriteFrame(rw, done); err != nil {
		return fmt.Errorf("done: %w", err)
	}
	return nil
}

// ask returns the request for the next connection and counts it.
func (s *Sender) ask() *Request {
	if s.Attempts == 0 {
		s.Attempts = DefaultAttempts
	}
	if s.tries++; s.tries == 1 {
		s.pause = firstPause
	}
	q := s.Request
	if s.Want.Protocol == Protocol1 {
		q.AdmissionWindow, q.PromptTokenIDs, q.KVScales = 0, nil, nil
		return &q
	}
	q.AdmissionWindow = Seconds(AdmissionWindow(s.Attempts))
	if s.Rank != 0 {
		q.PromptTokenIDs = nil
	}
	return &q
}

// judge reads the receiver's answer. Anything but a full accept or one of the two passing reasons is final.
func (s *Sender) judge(b []byte) (generation uint64, err error) {
	a, err := parseReply(b, s.RID, s.Rank)
	switch {
	case err != nil:
		return 0, err
	case a.admitted:
		return a.reply.Generation, nil
	case a.reply.Accepted:
		return 0, fmt.Errorf("%w: its accept is for another request: %.200s", ErrRefused, b)
	}
	reason := a.reply.Reason
	if reason == ReasonDuplicateRank {
		return 0, fmt.Errorf("%w: %w, after %d attempts", ErrRefused, ErrRankDone, s.tries)
	}
	if (reason == ReasonBusy || reason == ReasonCancelling) && s.tries < s.Attempts {
		pause := s.pause
		s.pause *= 2
		return 0, &RetryError{Pause: pause, Reason: reason, Detail: a.reply.Detail}
	}
	return 0, fmt.Errorf("%w: %s, after %d attempts", ErrRefused, reason, s.tries)
}
