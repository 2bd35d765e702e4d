package staging

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
)

const (
	// calmGrace is how long transfers that outlive their request may take to come to their own end. Most do at once; after it
	// the agent is replaced.
	calmGrace = time.Second
	// renewPause is between attempts to close or make an agent.
	renewPause = time.Second
)

// keep brings the slot back from quarantine, each time, until ctx ends.
func (s *Slot) keep(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
			if s.State() == Quarantined {
				s.cleanse(ctx)
			}
		}
	}
}

// cleanse frees a quarantined slot as soon as the end of all its transfers is known: because they have come to it, or because the agent that
// they went over is no more (invariant 3).
func (s *Slot) cleanse(ctx context.Context) {
	grace := time.NewTimer(s.grace)
	defer grace.Stop()
	for {
		s.mu.Lock()
		why := s.suspect
		if why == nil && s.calmLocked() {
			s.setLocked(Free)
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		if why != nil {
			s.renew(ctx, why)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-grace.C:
			s.renew(ctx, errors.New("transfers go on after the end of their request"))
			return
		}
	}
}

// renew gives the slot's memory to another agent. When the old one is closed, nothing writes or reads the memory any more.
func (s *Slot) renew(ctx context.Context, why error) {
	log := s.a.log.With(zap.String("slot", s.name))
	began := time.Now()
	s.mu.Lock()
	s.old, s.end = s.end, nil // enter turns connections away
	s.closeVisitsLocked()
	s.mu.Unlock()
	for {
		err := s.oldGone()
		if err == nil {
			break
		}
		log.Error("a staging slot stays quarantined", zap.Error(err))
		if !sleep(ctx, renewPause) {
			return
		}
	}
	for {
		end, err := s.a.newEndpoint(ctx, s)
		if err == nil {
			s.mu.Lock()
			s.end, s.suspect = end, nil
			s.mu.Unlock()
			break
		}
		log.Error("a staging slot stays quarantined", zap.Error(err))
		if !sleep(ctx, renewPause) {
			return
		}
	}
	for !s.back() { // the goroutines of the closed connections are about to end
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
	}
	log.Warn("a staging slot has a new agent", zap.NamedError("because", why), zap.Duration("took", time.Since(began)))
}

// back frees the slot once everybody has left.
func (s *Slot) back() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calmLocked() {
		s.setLocked(Free)
	}
	return s.state == Free
}

// oldGone closes the agent that is being replaced.
func (s *Slot) oldGone() error {
	s.mu.Lock()
	old := s.old
	s.mu.Unlock()
	if old == nil {
		return nil
	}
	if err := old.agent.Close(); err != nil {
		return err
	}
	s.mu.Lock()
	s.old = nil
	s.mu.Unlock()
	return nil
}

// endpointGone closes the slot's agents for good.
func (s *Slot) endpointGone() error {
	err := s.oldGone()
	s.mu.Lock()
	end := s.end
	s.end = nil
	s.mu.Unlock()
	if end != nil {
		err = errors.Join(err, end.agent.Close())
	}
	return err
}
