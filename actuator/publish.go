package actuator

import (
	"context"
	"encoding/json"
	"fmt"
)

// apply stores what follows from a change of the entries, beside everything else. The caller holds mu.
func (s *session) apply(c changes) {
	s.metrics.open.Set(float64(s.entries.open))
	for _, v := range c.verdicts {
		s.publish(func() { s.conclude(v) })
	}
	for _, e := range c.drop {
		s.publish(func() { s.drop(e) })
	}
}

// publish calls f, which stores something on the bus, as soon as there is a place.
func (s *session) publish(f func()) {
	s.publishing.Go(func() {
		s.publishers <- struct{}{}
		defer func() { <-s.publishers }()
		f()
	})
}

// conclude stores a verdict, and drops its message when it was the last one.
func (s *session) conclude(v verdictOn) {
	e, err := s.report(v.entry.open, v.verdict, v.entry.open.Answer)
	if err != nil {
		return // the session is over, and the next leader finds the intent without a verdict
	}
	s.mu.Lock()
	if x := v.move; x != nil && v.verdict.Outcome.Moves() {
		e.Data = nil
		x.told, x.Cause = true, e
		if s.unfollowed {
			s.moves.remove(x)
			s.releaseFor(x.at)
			x.Settled = true
		}
		s.remember(x, s.cfg.Now())
		s.queues.inFlight.Add(x.uid())
	}
	message, done := s.entries.reported(v.entry, s.cfg.Now())
	s.mu.Unlock()
	if done {
		s.drop(message)
	}
}

// publishEnd stores the verdict that ends a move, and then that the move is settled: if the verdict is not stored, the next leader
// finds the move in flight. The caller holds mu.
func (s *session) publishEnd(x *inFlight, e ended) {
	s.kept[x.uid()], x.ending = x, true
	r, v := x.record, x.verdict(e)
	s.publish(func() {
		if _, err := s.report(r.Open, v, r.Cause); err != nil {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		x.ending = false
		delete(s.kept, x.uid())
		if s.moves.all[x.uid()] == nil { // else it is moved again, and the record is of that
			s.remember(x, s.cfg.Now())
		}
	})
}

// ledgerChange is a change of the ledger: value under key, or nothing when it is nil.
type ledgerChange struct {
	key   string
	value any
}

// unwritten counts the changes of one key that are queued or being made. done is closed when there is none any more.
type unwritten struct {
	changes int
	done    chan struct{}
}

// change queues a change of the ledger. The caller holds mu.
func (s *session) change(c ledgerChange) {
	if s.unwritten[c.key] == nil {
		s.unwritten[c.key] = &unwritten{done: make(chan struct{})}
	}
	s.unwritten[c.key].changes++
	s.ledgerQueue = append(s.ledgerQueue, c)
	s.signalLedger()
}

func (s *session) signalLedger() {
	select {
	case s.queued <- struct{}{}:
	default:
	}
}

// flush lets writeLedger end when it has made all changes.
func (s *session) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushed = true
	s.signalLedger()
}

// writeLedger makes the queued changes of the ledger until flush, in their order.
func (s *session) writeLedger() {
	for range s.queued {
		s.mu.Lock()
		work, last := s.ledgerQueue, s.flushed
		s.ledgerQueue = nil
		s.mu.Unlock()
		for _, c := range work {
			_ = s.write(s.saving, c) // an error: the session is over
			s.written(c.key)
		}
		if last {
			return
		}
	}
}

// written says that a queued change of the key was made, or never will be.
func (s *session) written(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.unwritten[key]
	if u.changes--; u.changes == 0 {
		delete(s.unwritten, key)
		close(u.done)
	}
}

// awaitWritten waits until no change of the key is queued any more, or ctx ends.
func (s *session) awaitWritten(ctx context.Context, key string) error {
	s.mu.Lock()
	u := s.unwritten[key]
	s.mu.Unlock()
	if u == nil {
		return nil
	}
	select {
	case <-u.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("ledger key %s: %w", key, ctx.Err())
	}
}

// write makes a change of the ledger, trying again until it is made or ctx ends.
func (s *session) write(ctx context.Context, c ledgerChange) error {
	if s.lost() {
		return ErrNotLeading
	}
	var value []byte
	if c.value != nil {
		var err error
		if value, err = json.Marshal(c.value); err != nil {
			return fmt.Errorf("ledger key %s: %w", c.key, err)
		}
	}
	return persist(ctx, func() error {
		if value == nil {
			return s.ledger.Delete(ctx, c.key)
		}
		return s.ledger.Put(ctx, c.key, value)
	}, isInvalid, func(err error) {
		if s.busAway.CompareAndSwap(false, true) {
			s.cfg.Log.Warn("ledger cannot be written, trying again", "key", c.key, "error", err)
		}
	})
}
