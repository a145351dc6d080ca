package actuator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

// entryChange is a change of the ledger: value under key, or nothing when it is nil.
type entryChange struct {
	key   string
	value any
}

// unwritten counts the changes of one key that are queued or being made. done is closed when there is none any more.
type unwritten struct {
	changes int
	done    chan struct{}
}

// change queues a change of the ledger. The caller holds mu.
func (t *term) change(e entryChange) {
	if t.unwritten[e.key] == nil {
		t.unwritten[e.key] = &unwritten{done: make(chan struct{})}
	}
	t.unwritten[e.key].changes++
	t.queue.ledger = append(t.queue.ledger, e)
	t.signalQueue()
}

// written says that a queued change of the key was made, or never will be.
func (t *term) written(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.unwritten[key]
	if u.changes--; u.changes == 0 {
		delete(t.unwritten, key)
		close(u.done)
	}
}

// awaitWritten waits until no change of the key is queued any more, or ctx ends.
func (t *term) awaitWritten(ctx context.Context, key string) error {
	t.mu.Lock()
	u := t.unwritten[key]
	t.mu.Unlock()
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
func (t *term) write(ctx context.Context, e entryChange) error {
	if t.lost() {
		return ErrNotLeading
	}
	var value []byte
	if e.value != nil {
		var err error
		if value, err = json.Marshal(e.value); err != nil {
			return fmt.Errorf("ledger key %s: %w", e.key, err)
		}
	}
	return persist(ctx, func() error {
		if value == nil {
			return t.ledger.Delete(ctx, e.key)
		}
		return t.ledger.Put(ctx, e.key, value)
	}, isInvalid, func(err error) {
		if t.busAway.CompareAndSwap(false, true) {
			t.cfg.Log.Warn("ledger cannot be written, trying again", "key", e.key, "error", err)
		}
	})
}

// remember queues what the ledger is to know of a move. The caller holds mu.
func (t *term) remember(x *moving, now time.Time) {
	e := entryChange{key: x.key(), value: x.record}
	if x.Settled {
		if due := t.forgottenAt(x, now); now.Before(due) {
			t.kept[x.Open.Intent.Pod.UID] = x
			t.forgetAt = sooner(t.forgetAt, due)
		} else {
			e.value = nil
		}
	}
	t.change(e)
}

// forgottenAt is when the ledger forgets a settled move at the earliest: when no limit counts it, no cooldown follows from
// it, and the intents message that asked for it is out of the table, from which the next leader would else carry it out again.
func (t *term) forgottenAt(x *moving, now time.Time) time.Time {
	due := x.Moved.Add(t.limits.Pause)
	if t.limits.Any() {
		due = x.Moved.Add(max(t.limits.Over(), t.limits.Pause))
	}
	inTable := x.answer != nil && !x.answer.closed
	others := x.Replacement != "" && len(t.moves.workloads[x.at.workload]) > 0 // which it must not end under the next leader
	if (inTable || others || x.Pending) && due.Before(now.Add(sweepEvery)) {
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
func (t *term) forgetKept(now time.Time) {
	if t.forgetAt.IsZero() || now.Before(t.forgetAt) {
		return
	}
	t.forgetAt = time.Time{}
	for uid, x := range t.kept {
		if due := t.forgottenAt(x, now); now.Before(due) {
			t.forgetAt = sooner(t.forgetAt, due)
			continue
		}
		delete(t.kept, uid)
		if t.moves.all[uid] == nil { // else it is moved again, and the entry is of that
			t.change(entryChange{key: x.key()})
		}
	}
}

// keptEntry is what the ledger is to have of a pod of which no move is in flight.
func (t *term) keptEntry(pod types.UID) entryChange {
	if x := t.kept[pod]; x != nil {
		return entryChange{key: x.key(), value: x.record}
	}
	return entryChange{key: keyMove + string(pod)}
}

// begun returns the move that was begun for an intent. nil: none is remembered.
func (t *term) begun(o Open) *moving {
	for _, x := range []*moving{t.moves.all[o.Intent.Pod.UID], t.kept[o.Intent.Pod.UID]} {
		if x != nil && x.Open.Intent.ID == o.Intent.ID {
			return x
		}
	}
	return nil
}

// recall begins the term with what the ledger has of the ones before, trying again until it has it or ctx ends.
func (t *term) recall(ctx context.Context) error {
	return persist(ctx, func() error { return t.recallOnce(ctx) }, func(error) bool { return false }, func(err error) {
		t.cfg.Log.Warn("what was going on cannot be read yet, trying again", "error", err)
	})
}

func (t *term) recallOnce(ctx context.Context) error {
	entries, err := t.ledger.Entries(ctx)
	if err != nil {
		return fmt.Errorf("read the ledger: %w", err)
	}
	records, loops, storm, bad := readLedger(entries)
	t.setBadRecords(bad)
	moves, verdicts, never, err := t.resolve(ctx, records)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range never {
		t.change(entryChange{key: r.key()})
	}
	t.begin(moves, loops)
	t.apply(changes{verdicts: verdicts})
	for key := range entries {
		if strings.HasPrefix(key, keyClear) {
			t.clear(key) // a wish that nobody was there to hear
		}
	}
	if len(storm.Conditions) > 0 {
		t.change(entryChange{key: keyStorm}) // that brake is looked at anew
	}
	return nil
}

// readTableWithin is how long after its beginning a term has surely read the table of intents messages.
const readTableWithin = time.Minute

// resolve finds out what became of the moves in the ledger: which are to be followed or counted, which of them need the
// verdict that may be lost, and which were never made. It changes nothing.
func (t *term) resolve(ctx context.Context, records []record) (open []*moving, verdicts []decided, never []record, err error) {
	slices.SortFunc(records, func(a, b record) int {
		return cmp.Or(a.Begun.Compare(b.Begun), cmp.Compare(a.Open.Intent.ID, b.Open.Intent.ID))
	})
	for _, r := range records {
		x := &moving{
			record: r, at: marked(r.Open, t.cfg.View), claimed: true, told: true, recovered: t.cfg.Now().Add(readTableWithin),
		}
		if x.at.workload == "" && r.Workload != nil {
			x.at.workload = r.Workload.UID
		}
		if r.Moved.IsZero() {
			v, happened, err := t.doubtful(ctx, r)
			if err != nil {
				return nil, nil, nil, err
			}
			if !happened {
				never = append(never, r)
				continue
			}
			x.Moved, x.told = t.cfg.Now(), false
			verdicts = append(verdicts, decided{&claim{open: r.Open, state: claimSettled}, v, x})
		}
		open = append(open, x)
	}
	return open, verdicts, never, nil
}

// doubtful says what became of a move that was begun and has no verdict: it happened if the pod is gone or going, or if
// its method has more steps to take.
func (t *term) doubtful(ctx context.Context, r record) (schemas.Verdict, bool, error) {
	if r.State != nil {
		outcome, reason := move.Accepted(r.Method)
		v := r.Open.Verdict(outcome, reason, "begun before a restart of the actuator")
		v.Method, v.Workload, v.Instead = r.Method, r.Workload, r.Instead
		return v, true, nil
	}
	pod, err := t.look(ctx, r.Open.Intent.Pod, latest)
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

// begin takes over the moves and the loop breakers of the terms before. The caller holds mu.
func (t *term) begin(moves []*moving, loops []loopRecord) {
	now := t.cfg.Now()
	t.limits.Restart()
	slices.SortStableFunc(moves, func(a, b *moving) int { return a.Moved.Compare(b.Moved) }) // as limits expect it
	for _, x := range moves {
		t.limits.Begin(originOf(x.Open))
		t.limits.End(originOf(x.Open), true, x.Moved)
		t.moves.accepted(x)
		if !t.unfollowed {
			t.departures.end(x.Open.Intent.Pod.UID, x.Open.Scope, x.at.workload, x.Moved)
		}
		if x.Settled {
			if x.Pending {
				t.pending[x.Open.Intent.Pod.UID] = x
			}
			if x.Replacement != "" {
				t.replacements[x.Replacement] = now
			}
			t.kept[x.Open.Intent.Pod.UID] = x
			t.forgetAt = sooner(t.forgetAt, t.forgottenAt(x, now))
			continue
		}
		t.moves.add(x)
		if x.at.workload != "" {
			t.dirty[x.at.workload] = true
		}
	}
	t.moves.forgetPauses(t.limits.Pause, now)
	for _, l := range loops {
		t.loop.Restore(l.BreakerKey, l.BreakerRecord)
		if l.Name != nil {
			t.names[l.Workload] = *l.Name
		}
		t.forgetLoops(l.BreakerKey)
	}
	t.metrics.moving.Set(float64(len(t.moves.all)))
	t.metrics.loopsOpen.Set(float64(t.loopsOpen()))
}
