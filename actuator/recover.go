package actuator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

// remember queues what the ledger is to know of a move. The caller holds mu.
func (s *session) remember(x *inFlight, now time.Time) {
	e := ledgerChange{key: x.key(), value: x.record}
	if x.Settled {
		if due := s.forgottenAt(x, now); now.Before(due) {
			s.kept[x.Open.Intent.Pod.UID] = x
			s.forgetAt = sooner(s.forgetAt, due)
		} else {
			e.value = nil
		}
	}
	s.change(e)
}

// forgottenAt is when the ledger forgets a settled move at the earliest: when no limit counts it, no cooldown follows from
// it, and the intents message that asked for it is out of the table, from which the next leader would else carry it out again.
func (s *session) forgottenAt(x *inFlight, now time.Time) time.Time {
	due := x.Moved.Add(s.windows.Pause)
	if s.windows.Any() {
		due = x.Moved.Add(max(s.windows.Over(), s.windows.Pause))
	}
	inTable := x.message != nil && !x.message.closed
	others := x.Replacement != "" && s.moves.workloads[x.at.workload] != nil // which it must not end under the next leader
	if (inTable || others || x.Pending || x.ending) && due.Before(now.Add(sweepEvery)) {
		due = now.Add(sweepEvery)
	}
	if due.Before(x.recovered) {
		due = x.recovered
	}
	return due
}

// sooner is the earlier of two times, of which the zero time is none.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) && !b.IsZero() {
		return b
	}
	return a
}

// forgetKept deletes the settled moves that nothing follows from any more. The caller holds mu.
func (s *session) forgetKept(now time.Time) {
	if s.forgetAt.IsZero() || now.Before(s.forgetAt) {
		return
	}
	s.forgetAt = time.Time{}
	for uid, x := range s.kept {
		if due := s.forgottenAt(x, now); now.Before(due) {
			s.forgetAt = sooner(s.forgetAt, due)
			continue
		}
		delete(s.kept, uid)
		if s.moves.all[uid] == nil { // else it is moved again, and the entry is of that
			s.change(ledgerChange{key: x.key()})
		}
	}
}

// keptEntry is what the ledger is to have of a pod of which no move is in flight.
func (s *session) keptEntry(pod types.UID) ledgerChange {
	if x := s.kept[pod]; x != nil {
		return ledgerChange{key: x.key(), value: x.record}
	}
	return ledgerChange{key: keyMove + string(pod)}
}

// begun returns the move that was begun for an intent. nil: none is remembered.
func (s *session) begun(o Open) *inFlight {
	for _, x := range []*inFlight{s.moves.all[o.Intent.Pod.UID], s.kept[o.Intent.Pod.UID]} {
		if x != nil && x.Open.Intent.ID == o.Intent.ID {
			return x
		}
	}
	return nil
}

// recover begins the session with what the ledger has of the ones before, trying again until it has it or ctx ends.
func (s *session) recover(ctx context.Context) error {
	return persist(ctx, func() error { return s.recoverOnce(ctx) }, func(error) bool { return false }, func(err error) {
		s.cfg.Log.Warn("what was going on cannot be read yet, trying again", "error", err)
	})
}

func (s *session) recoverOnce(ctx context.Context) error {
	entries, err := s.ledger.Entries(ctx)
	if err != nil {
		return fmt.Errorf("read the ledger: %w", err)
	}
	records, loops, storm, bad := readLedger(entries)
	s.setBadRecords(bad)
	moves, verdicts, never, err := s.resolve(ctx, records)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range never {
		s.change(ledgerChange{key: r.key()})
	}
	s.restore(moves, loops)
	s.apply(changes{verdicts: verdicts})
	for key := range entries {
		if strings.HasPrefix(key, keyClear) {
			s.clear(key) // a wish that nobody was there to hear
		}
	}
	s.refresh(s.cfg.Now())
	if len(storm.Conditions) > 0 && len(s.open) == 0 {
		s.change(ledgerChange{key: keyStorm}) // that brake is looked at anew
	}
	return nil
}

// readTableWithin is how long after its beginning a term has surely read the table of intents messages.
const readTableWithin = time.Minute

// resolve finds out what became of the moves in the ledger: which are to be followed or counted, which of them need the
// verdict that may be lost, and which were never made. It changes nothing.
func (s *session) resolve(ctx context.Context, records []record) (open []*inFlight, verdicts []verdictOn, never []record, err error) {
	slices.SortFunc(records, func(a, b record) int {
		return cmp.Or(a.Begun.Compare(b.Begun), cmp.Compare(a.Open.Intent.ID, b.Open.Intent.ID))
	})
	for _, r := range records {
		x := &inFlight{
			record: r, at: keysOf(r.Open, s.cfg.View), saved: true, told: true, recovered: s.cfg.Now().Add(readTableWithin),
		}
		if x.at.workload == "" && r.Workload != nil {
			x.at.workload = r.Workload.UID
		}
		if r.Moved.IsZero() {
			v, happened, err := s.doubtful(ctx, r)
			if err != nil {
				return nil, nil, nil, err
			}
			if !happened {
				never = append(never, r)
				continue
			}
			x.Moved, x.told = s.cfg.Now(), false // not yet in flight: moves are counted by restore
			verdicts = append(verdicts, verdictOn{&entry{open: r.Open, state: entryDone}, v, x})
		}
		open = append(open, x)
	}
	return open, verdicts, never, nil
}

// doubtful says what became of a move that was begun and has no verdict: it happened if the pod is gone or going, or if
// its method has more steps to take.
func (s *session) doubtful(ctx context.Context, r record) (schemas.Verdict, bool, error) {
	if r.State != nil {
		outcome, reason := move.Accepted(r.Method)
		v := r.Open.Verdict(outcome, reason, "begun before a restart of the actuator")
		v.Method, v.Workload, v.Instead = r.Method, r.Workload, r.Instead
		return v, true, nil
	}
	pod, err := s.look(ctx, r.Open.Intent.Pod, latest)
	if err != nil {
		return schemas.Verdict{}, false, fmt.Errorf("look at pod %s: %w: %w", r.Open.Intent.Pod, ErrUnavailable, err)
	}
	if _, going := ask([]Gate{exists, notTerminating}, Situation{Open: r.Open, Pod: pod}); !going {
		return schemas.Verdict{}, false, nil
	}
	v := r.Open.Verdict(schemas.Evicted, schemas.ReasonEvictionAccepted,
		"evicted from "+r.Open.Intent.Node+"; the answer was lost in a restart of the actuator")
	v.Method, v.Workload, v.Instead = schemas.MethodEviction, r.Workload, r.Instead
	return v, true, nil
}

// restore takes over the moves and the loop breakers of the terms before. The caller holds mu.
func (s *session) restore(moves []*inFlight, loops []loopRecord) {
	now := s.cfg.Now()
	s.windows.Restart()
	slices.SortStableFunc(moves, func(a, b *inFlight) int { return a.Moved.Compare(b.Moved) }) // as limits expect it
	for _, x := range moves {
		s.windows.Begin(originOf(x.Open))
		s.windows.End(originOf(x.Open), true, x.Moved)
		if x.at.workload != "" {
			s.moves.last[x.at.workload] = x.Moved
		}
		if !s.unfollowed {
			s.departures.end(x.Open.Intent.Pod.UID, x.Open.Scope, x.at.workload, x.Moved)
		}
		if x.Settled {
			if x.Pending {
				s.pending[x.Open.Intent.Pod.UID] = x
			}
			if x.Replacement != "" {
				s.replacements[x.Replacement] = now
			}
			s.kept[x.Open.Intent.Pod.UID] = x
			s.forgetAt = sooner(s.forgetAt, s.forgottenAt(x, now))
			continue
		}
		s.moves.add(x, s.cfg.View)
		if x.replacement = x.Replacement; x.replacement != "" {
			s.moves.replacing[x.replacement] = x
		}
		s.queues.inFlight.Add(x.uid())
	}
	for _, x := range moves {
		if w := s.moves.workloads[x.at.workload]; w != nil && !x.Settled {
			w.first = 0
			s.await(x)
		}
	}
	for uid, w := range s.moves.workloads {
		s.matchAll(uid, w)
	}
	s.moves.forgetCooldowns(s.windows.Pause, now)
	for _, l := range loops {
		s.loop.Restore(l.BreakerKey, l.BreakerRecord)
		if l.Name != nil {
			s.names[l.Workload] = *l.Name
		}
		s.forgetLoops(l.BreakerKey)
	}
	s.metrics.moving.Set(float64(len(s.moves.all)))
	s.metrics.loopsOpen.Set(float64(s.loopsOpen()))
}
