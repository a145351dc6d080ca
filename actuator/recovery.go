package actuator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/actuator/move/eviction"
	"github.com/rehome-dev/rehome/schemas"
)

// recover initializes the session from the ledger. It retries until the ledger is read or ctx ends.
func (s *session) recover(ctx context.Context) error {
	return persist(ctx, func() error { return s.recoverOnce(ctx) }, func(err error) {
		s.cfg.Log.Warn("cannot read the moves in flight yet; retrying", "error", err)
	})
}

func (s *session) recoverOnce(ctx context.Context) error {
	var entries map[string][]byte
	if s.ledger != nil {
		var err error
		if entries, err = s.ledger.Entries(ctx); err != nil {
			return fmt.Errorf("read the ledger: %w", err)
		}
	}
	records, loops, storm, invalid := readLedger(entries)
	found, err := s.resolve(ctx, records)
	if err != nil {
		return err
	}
	s.setInvalidRecords(append(invalid, found.invalid...))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range records {
		if r.begun {
			_ = s.begun.add(r) // cannot fail: it was read a moment ago
		}
	}
	s.begun.due = entries[keyBegun] != nil // some may have a key of their own
	s.restore(found.moves)
	for _, l := range loops {
		if s.loop.Restore(l.BreakerKey, l.BreakerRecord); s.policy.Load().CircuitBreakers.Workload.Delay <= 0 {
			s.change(loopKey(l.BreakerKey), nil) // the breaker is off
		}
	}
	for _, v := range found.verdicts {
		s.decided(v)
	}
	for key, value := range entries {
		if !strings.HasPrefix(key, keyClear) {
			continue
		}
		switch at, err := readClear(value); {
		case err != nil:
			s.dropClear(key)
		case s.cfg.Now().Sub(at) > clearFor:
			s.change(key, nil) // the command has ended
		default:
			s.clear(key) // requested while there was no leader
		}
	}
	s.checkCluster(s.cfg.Now())
	if len(storm.Conditions) > 0 && len(s.cluster.Open()) == 0 {
		s.change(keyStorm, nil)
	}
	return nil
}

// setInvalidRecords reports the records that were set aside in the log, in a metric, and in [Actuator.Ready].
func (a *Actuator) setInvalidRecords(invalid []error) {
	for _, err := range invalid {
		if apierrors.IsForbidden(err) {
			a.cfg.Log.Error("cannot check the pod of a ledger record; grant the actuator the right to get pods", "error", err)
			continue
		}
		a.cfg.Log.Error("cannot read a ledger record; delete the key that the error names from the bucket", "error", err)
	}
	a.metrics.invalid.Set(float64(len(invalid)))
	a.invalid.Store(&invalid)
}

// readTableWithin is the time within which a session has surely read the table of intents messages.
const readTableWithin = time.Minute

// resolved are the moves of the ledger by their state.
type resolved struct {
	moves    []*inFlight // in flight, counted, or unanswered
	verdicts []verdictOn // the verdict may be lost
	invalid  []error     // errors about records whose pods the actuator may not read
}

// resolve determines the state of the moves in the ledger. It changes nothing.
func (s *session) resolve(ctx context.Context, records []record) (found resolved, err error) {
	for _, r := range records {
		x := &inFlight{
			record: r, at: keysOf(r.Intent, s.cfg.View), reported: true,
			recovered: s.cfg.Now().Add(readTableWithin),
		}
		if x.at.workload == "" && r.Workload != nil {
			x.at.workload = r.Workload.UID
		}
		if r.Moved.IsZero() {
			v, happened, err := s.lostVerdict(ctx, r)
			switch {
			case apierrors.IsForbidden(err):
				found.invalid = append(found.invalid, fmt.Errorf("ledger record %s is set aside: %w", r.key(), err))
				continue
			case err != nil:
				return resolved{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
			}
			if x.reported = false; happened {
				x.Moved = s.cfg.Now()
				found.verdicts = append(found.verdicts, verdictOn{&entry{intent: r.Intent, state: entryDone}, v, x})
			} else {
				x.unanswered = s.cfg.Now().Add(answeredWithin)
			}
		}
		found.moves = append(found.moves, x)
	}
	return found, nil
}

// lostVerdict returns the verdict on a move that was begun and has none. The move happened if the pod is gone or
// terminating, or if its method has more steps.
func (s *session) lostVerdict(ctx context.Context, r record) (v schemas.Verdict, happened bool, err error) {
	if r.State != nil {
		outcome, reason := move.Accepted(r.Method)
		v = r.Intent.Verdict(outcome, reason, "begun before the actuator restarted")
		v.Method = r.Method
	} else {
		pod, err := s.look(ctx, r.Intent.Pod, storage)
		if err != nil {
			return v, false, fmt.Errorf("look at pod %s: %w", r.Intent.Pod, err)
		}
		if pod != nil && pod.UID == r.Intent.Pod.UID && pod.DeletionTimestamp == nil {
			return v, false, nil
		}
		v = r.Intent.Verdict(schemas.Evicted, schemas.ReasonEvictionAccepted,
			"evicted from "+r.Intent.Node+"; the answer was lost when the actuator restarted")
		v.Method = schemas.MethodEviction
	}
	v.Workload, v.Instead = r.Workload, r.Instead
	return v, true, nil
}

// restore adds the moves of earlier sessions. The caller holds mu.
func (s *session) restore(moves []*inFlight) {
	now := s.cfg.Now()
	slices.SortStableFunc(moves, func(a, b *inFlight) int { return a.Moved.Compare(b.Moved) }) // the cooldown counts from the last
	for _, x := range moves {
		if x.at.workload != "" && !x.Moved.IsZero() {
			s.moves.last[x.at.workload] = x.Moved
		}
		if s.follows {
			s.departures.add(x)
		}
		if x.Settled {
			s.settled[x.uid()] = x
		} else {
			s.moves.add(x, s.cfg.View)
			if s.cfg.Capacity != nil {
				s.cfg.Capacity.ReserveMoved(x.uid(), s.scheduler.Load())
			}
			s.queues.inFlight.Add(x.uid())
		}
	}
	for _, x := range moves {
		w := s.moves.workloads[x.at.workload]
		if w == nil {
			continue
		}
		if x.Replacement != "" {
			w.replacements[x.Replacement] = x
		}
		if x.replacement, w.first = x.Replacement, 0; !x.Settled && !x.Moved.IsZero() {
			s.await(x)
		}
	}
	for uid, w := range s.moves.workloads {
		s.matchAll(uid, w)
	}
	s.moves.forgetCooldowns(s.policy.Load().Limits.Pause, now)
	s.cancelDisabled(s.policy.Load())
}

// answeredWithin is how long after the start of a session the API server may still carry out an eviction call of the
// session before. It is as long as a call may take.
const answeredWithin = eviction.Timeout

// awaitAnswer determines whether the API server carried out an eviction call of an earlier session. Until then the move
// counts against the limits, and its pod is not moved.
func (s *session) awaitAnswer(ctx context.Context, x *inFlight, r record) {
	v, happened, err := s.lostVerdict(ctx, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	now, e := s.cfg.Now(), s.entries.byID(x.Intent.Intent)
	switch {
	case s.moves.all[x.uid()] != x || !x.Moved.IsZero():
	case happened:
		if e != nil {
			s.entries.remove(e)
			x.message = e.message
		} else { // a newer evaluation replaced its message
			e = &entry{intent: x.Intent, state: entryDone}
		}
		s.moves.accepted(x, now)
		s.await(x)
		s.decided(verdictOn{e, v, x})
		s.entries.finish(e, v.Outcome, true)
	case err == nil && !now.Before(x.unanswered):
		s.abandon(x)
		if !x.begun {
			s.change(x.key(), nil)
		}
		if e != nil {
			s.entries.putBack(e)
		}
		s.entries.next(x.uid())
		s.release(podBlocker(x.uid()))
	default:
		s.queues.inFlight.AddAfter(x.uid(), time.Second)
	}
}
