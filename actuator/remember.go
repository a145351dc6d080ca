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
		if now.Before(x.Moved.Add(t.kept())) {
			t.counted.add(x.record)
		} else {
			e.value = nil
		}
	}
	t.change(e)
}

// kept is how long the ledger has a move that has settled: as long as a limit counts it, or a pause follows from it.
func (t *term) kept() time.Duration {
	if t.limits.Any() {
		return max(t.limits.Over(), t.limits.Pause)
	}
	return t.limits.Pause
}

// forgetCounted deletes the settled moves that nothing follows from any more. The caller holds mu.
func (t *term) forgetCounted(now time.Time) {
	for len(t.counted.list) > 0 && !now.Before(t.counted.list[0].Moved.Add(t.kept())) {
		old := t.counted.drop()
		if t.moves.all[old.Open.Intent.Pod.UID] == nil { // else it is moved again, and the entry is of that
			t.change(t.counted.entry(old.key()))
		}
	}
}

// lookBack is how much of the history is read when a term begins: what is older has expired, or is in the ledger.
const lookBack = remember + 2*time.Minute

// recall begins the term with what the ledger and the history have of the ones before, trying again until it has both or
// ctx ends.
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
	chronicle := newChronicle()
	if err := t.cfg.Bus.History(ctx, t.cfg.Now().Add(-lookBack), chronicle.add); err != nil {
		return fmt.Errorf("read the history: %w", err)
	}
	records, loops, storm, bad := readLedger(entries)
	for _, err := range bad {
		t.cfg.Log.Error("ledger entry is ignored", "error", err)
	}
	open, verdicts, never, err := t.resolve(ctx, records, chronicle)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range never {
		t.change(entryChange{key: r.key()})
	}
	for uid := range chronicle.replaced {
		t.replacements[uid] = t.cfg.Now()
	}
	t.departures = chronicle.departures
	t.begin(open, loops)
	c := t.table.seed(chronicle.past(), t.cfg.Now())
	t.apply(changes{verdicts: append(verdicts, c.verdicts...)})
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

// resolve finds out what became of the moves in the ledger: which are to be followed or counted, which of them need a
// verdict that was not stored, and which were never made. It changes nothing but c, which takes those verdicts as given.
func (t *term) resolve(
	ctx context.Context, records []record, c *chronicle,
) (open []*moving, verdicts []decided, never []record, err error) {
	slices.SortFunc(records, func(a, b record) int {
		return cmp.Or(a.Begun.Compare(b.Begun), cmp.Compare(a.Open.Intent.ID, b.Open.Intent.ID))
	})
	for _, r := range records {
		x := &moving{record: r, at: marked(r.Open, t.cfg.View), claimed: true, told: true}
		if x.at.workload == "" && r.Workload != nil {
			x.at.workload = r.Workload.UID
		}
		id := r.Open.Intent.ID
		moved, told := c.moves[id]
		if told && x.Moved.IsZero() {
			x.Moved = moved.Time
		}
		switch {
		case c.settled[id]:
			x.Settled = true
		case told:
			x.Cause = moved
		case r.Moved.IsZero() && c.judged[id]:
			never = append(never, r) // it has another verdict: it was not moved
			continue
		case r.Moved.IsZero():
			v, happened, err := t.doubtful(ctx, r)
			if err != nil {
				return nil, nil, nil, err
			}
			if !happened {
				never = append(never, r)
				continue
			}
			x.Moved, x.told = t.cfg.Now(), false
			c.verdict(v)
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
		v := r.Open.Verdict(schemas.Restarted, schemas.ReasonRestartAccepted, "begun before a restart of the actuator")
		switch r.Method {
		case schemas.MethodSurge:
			v.Reason = schemas.ReasonSurgeAccepted
		case schemas.MethodBackground:
			v.Outcome, v.Reason = schemas.Requested, schemas.ReasonBackgroundAccepted
		case schemas.MethodEvictionRequest:
			v.Outcome, v.Reason = schemas.Requested, schemas.ReasonEvictionRequestAccepted
		case schemas.MethodRestart, schemas.MethodEviction:
		}
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
	t.limits.restart()
	slices.SortStableFunc(moves, func(a, b *moving) int { return a.Moved.Compare(b.Moved) }) // as limits expect it
	for _, x := range moves {
		t.limits.begin(originOf(x.Open))
		t.limits.end(originOf(x.Open), true, x.Moved)
		t.moves.accepted(x)
		if !t.unfollowed {
			t.departures.end(x.Open.Intent.Pod.UID, x.Open.Scope, x.at.workload, x.Moved)
		}
		if x.Settled {
			t.remember(x, now)
			continue
		}
		t.moves.add(x)
		if x.at.workload != "" {
			t.dirty[x.at.workload] = true
		}
	}
	t.moves.forgetPauses(t.limits.Pause, now)
	for _, l := range loops {
		t.loop.Restore(l.Key, l.Record)
		if l.Name != nil {
			t.names[l.Workload] = *l.Name
		}
		t.forgetLoops(l.Key)
	}
	t.metrics.moving.Set(float64(len(t.moves.all)))
	t.metrics.loopsOpen.Set(float64(t.loopsOpen()))
}

// counts are settled moves that a limit still counts, in the order in which they were settled. Not safe for concurrent use.
// newCounts makes one.
type counts struct {
	list []record
	last map[string]record // the latest of each key
}

func newCounts() counts { return counts{last: map[string]record{}} }

func (c *counts) add(r record) {
	c.list = append(c.list, r)
	c.last[r.key()] = r
}

// drop takes out the first.
func (c *counts) drop() record {
	r := c.list[0]
	c.list = c.list[1:]
	if c.last[r.key()].Open.Intent.ID == r.Open.Intent.ID {
		delete(c.last, r.key())
	}
	return r
}

func (c *counts) has(pod types.UID) bool {
	_, ok := c.last[keyMove+string(pod)]
	return ok
}

// entry is what the ledger is to have under the key when no move of the pod is in flight.
func (c *counts) entry(key string) entryChange {
	if r, ok := c.last[key]; ok {
		return entryChange{key: key, value: r}
	}
	return entryChange{key: key}
}
