package staging

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"go.uber.org/zap"

	"pd-router/internal/tilert"
)

const (
	// requestLimit is how long a connection may take to say what it wants; senders ask at once.
	requestLimit = 10 * time.Second
	// acceptPause follows an accept that failed for want of something, such as file descriptors.
	acceptPause = 100 * time.Millisecond
)

// maxVisits bounds the connections of one slot: all ranks twice, and some that only look at the hello.
func (s *Slot) maxVisits() int { return 2*s.a.o.Senders + 16 }

// accept takes connections until the listener is closed; then it closes those that are left and awaits their goroutines.
func (s *Slot) accept(ctx context.Context) {
	var visits sync.WaitGroup
	for {
		conn, err := s.ln.Accept()
		switch {
		case err == nil:
			if v := s.enter(conn); v != nil {
				visits.Go(v.serve)
			}
			continue
		case ctx.Err() == nil && !errors.Is(err, net.ErrClosed):
			s.a.log.Warn("control port of a staging slot", zap.String("slot", s.name), zap.Error(err))
			sleep(ctx, acceptPause)
			continue
		}
		s.mu.Lock()
		s.closeVisitsLocked()
		s.mu.Unlock()
		visits.Wait()
		return
	}
}

// visit is one connection to the control port. It is the tilert.Host of its conversation, so that what a connection was told and what it did
// stay together.
type visit struct {
	s    *Slot
	conn net.Conn
	end  *endpoint // that its hello names

	// Guarded by s.mu.
	in   *arrival // what it was let in to
	done bool
}

// enter makes the connection a visit, or closes it: when there are too many, or while there is no endpoint to tell of.
func (s *Slot) enter(conn net.Conn) *visit {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end == nil || len(s.visits) >= s.maxVisits() {
		_ = conn.Close()
		return nil
	}
	v := &visit{s: s, conn: conn, end: s.end}
	s.visits[v] = struct{}{}
	return v
}

func (s *Slot) closeVisitsLocked() {
	for v := range s.visits {
		_ = v.conn.Close()
	}
}

func (v *visit) serve() {
	_ = v.conn.SetDeadline(time.Now().Add(requestLimit))
	err := tilert.Serve(v.conn, tilert.Protocol2, v)
	_ = v.conn.Close()
	v.s.mu.Lock()
	delete(v.s.visits, v)
	v.s.mu.Unlock()
	if err != nil && !errors.Is(err, io.EOF) {
		v.s.a.log.Info("a sender was not served to its end", zap.String("slot", v.s.name), zap.Stringer("from", v.conn.RemoteAddr()), zap.Error(err))
	}
}

// Hello is what a sender is told first.
func (v *visit) Hello() tilert.Hello {
	o := &v.s.a.o
	h := tilert.Hello{
		Magic: tilert.Magic, Protocol: tilert.Protocol2, LayoutVersion: o.Layout.Version, Transport: transport, Senders: o.Senders,
		NixlMeta: v.end.meta, Busy: v.s.State() != Reserved,
	}
	h.SetRegion(v.end.planes)
	return h
}

// Admit decides about one rank's request (invariant 1). It is stricter than the books, which would give a complete or an old tenancy to
// the next rid.
func (v *visit) Admit(q *tilert.Request) (tilert.Reply, *tilert.Writer) {
	s := v.s
	s.mu.Lock()
	defer s.mu.Unlock()
	reply := tilert.Reply{RID: q.RID, Rank: q.Rank, Protocol: tilert.Protocol2}
	kv := s.kv
	if kv == nil || s.books.Buried(time.Now(), q.RID) { // for good: a sender that may come again does so for 3 s, and all KV behind it waits
		reply.Reason = tilert.NoConsumer
		return reply, nil
	}
	if s.end != v.end || !kv.wantsLocked(q.RID) {
		reply.Reason, reply.Detail = tilert.ReasonCancelling, tilert.NoConsumer
		return reply, nil
	}
	if state, rid := s.books.State(); state != tilert.Free && rid != q.RID {
		reply.Reason, reply.BusyRID, reply.BusyState = tilert.ReasonBusy, rid, state.String()
		return reply, nil
	}
	if q.Rank < 0 || q.Rank >= s.a.o.Senders || q.SeqLen < 1 {
		reply.Reason = fmt.Sprintf("rank %d of %d with %d tokens", q.Rank, s.a.o.Senders, q.SeqLen)
		return reply, nil
	}
	if kv.in.ridOf() == q.RID {
		if r := &kv.in.ranks[q.Rank]; r.writing || r.done {
			reply.Reason = tilert.ReasonDuplicateRank
			return reply, nil
		}
		if n := kv.in.seqLen; n != q.SeqLen {
			reply.Reason = fmt.Sprintf("rank %d has %d tokens, others %d", q.Rank, q.SeqLen, n)
			kv.failLocked(Refused, errors.New(reply.Reason))
			return reply, nil
		}
	}
	reply, w := s.books.Admit(time.Now(), q)
	if w != nil {
		v.joinLocked(kv, w, q)
	}
	return reply, w
}

// joinLocked makes the connection a writer.
func (v *visit) joinLocked(kv *KV, w *tilert.Writer, q *tilert.Request) {
	if kv.in == nil || kv.in.generation != w.Generation {
		kv.in = &arrival{rid: w.RID, generation: w.Generation, seqLen: q.SeqLen, began: time.Now(), ranks: make([]rank, v.s.a.o.Senders)}
	}
	v.in = kv.in
	v.in.ranks[q.Rank] = rank{request: q, writing: true}
	v.s.writers++
	v.s.setLocked(Receiving)
	_ = v.conn.SetDeadline(time.Now().Add(tilert.TenancyAge)) // for its done, as the decode node allows
}

// Done notes that the rank has written all it had. When it was the last, the KV is complete.
func (v *visit) Done(w *tilert.Writer) {
	s := v.s
	s.mu.Lock()
	defer s.mu.Unlock()
	v.done = true
	v.in.ranks[w.Rank].done = true
	if t, complete := s.books.Done(w); complete && s.kv != nil && s.kv.in == v.in {
		v.in.transfer, v.in.took = t, time.Since(v.in.began)
		s.setLocked(Held)
		s.kv.tell()
	}
}

// Leave notes that the connection of a writer has ended. Without a done before it, writes may still be under way (invariants 2, 3).
func (v *visit) Leave(w *tilert.Writer) {
	s := v.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.books.Leave(w)
	s.writers--
	v.in.ranks[w.Rank].writing = false
	if !v.done && v.end == s.end {
		s.suspect = fmt.Errorf("rank %d of %s left before it was done", w.Rank, w.RID)
	}
	if s.kv != nil {
		s.kv.tell()
	}
	s.nudge()
}
