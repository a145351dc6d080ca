package maintenance

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
)

// verdictDebounce is how long a maintenance waits after a verdict for verdicts on other pods of the node.
const verdictDebounce = time.Second

// verdict handles every verdict.
func (s *session) verdict(e schemas.Event) {
	v, err := schemas.Decode[schemas.Verdict](e)
	if err != nil {
		s.log.Warn("cannot read a verdict", "event", e.ID, "channel", e.Channel, "error", err)
		return
	}
	ours := v.Strategy == schemas.MaintenanceStrategy && v.Scope.Kind == schemas.MaintenanceKind
	if ours && (v.Outcome != schemas.Settled || v.Unmoved()) {
		s.drains.verdict(v, e.Time, s.cfg.View.BudgetAllows, s.now())
	}
	switch {
	case v.Outcome == schemas.Settled:
		s.enqueue(maintenanceKey, s.drains.settled(v, e.Time)...)
	case ours:
		delay := verdictDebounce
		if v.Outcome == schemas.Withdrawn || v.Outcome.Moves() { // a node may be waiting for it before it is given back
			delay = 0
		}
		s.queue.AddAfter(key{maintenanceKey, v.Scope.Key}, delay)
	}
}

// verdict records the verdict on an intent, or the end of a move whose pod still runs, and the time of the next try, see
// [delivery.RetryDelay].
func (d *drains) verdict(v schemas.Verdict, at time.Time, free func(namespace, name string) bool, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.byName[v.Scope.Key]
	if x == nil || x.entries[v.Intent.Pod.UID] == nil {
		return
	}
	e := x.entries[v.Intent.Pod.UID]
	if v.Outcome == schemas.Settled && v.Intent.ID != e.move && (e.move != "" || e.mayMove()) {
		return // an older move has ended
	}
	e.open, e.blockers = false, nil
	e.uncertain = v.Scope.Sequence < e.sequence && !v.Outcome.Moves() && v.Outcome != schemas.Settled
	switch {
	case v.Outcome == schemas.Withdrawn:
		e.retryAt, e.renew = now, false
		return
	case v.Outcome == schemas.Expired: // a pod of a move in flight has no intent that can expire
		e.attempts++
		e.retryAt, e.moving, e.move = now.Add(delivery.RetryDelay(v, e.attempts, free, now)), false, ""
		return
	case v.Outcome.Moves(): // the pod goes, or the move is canceled
		e.retryAt, e.lastVerdict, e.moving, e.move = now.Add(delivery.FirstRetry), nil, !v.DryRun, ""
		e.renew, e.evicted = false, v.Outcome == schemas.Evicted
		if e.moving {
			e.move = v.Intent.ID
		}
		return
	}
	e.stays(v, now)
	e.moving, e.move = v.Reason == schemas.ReasonMoving && at.After(e.settled), ""
	e.attempts++
	e.retryAt = now.Add(delivery.RetryDelay(v, e.attempts, free, now))
}

// stays records a verdict that began no move.
func (e *entry) stays(v schemas.Verdict, now time.Time) {
	since := now.UTC()
	if e.lastVerdict != nil && e.lastVerdict.Outcome == v.Outcome && e.lastVerdict.Reason == v.Reason {
		since = e.lastVerdict.Since
	}
	e.lastVerdict = &plan.LastVerdict{Outcome: v.Outcome, Reason: v.Reason, Message: v.Message, Blockers: v.Blockers, Since: since}
	for _, b := range v.Blockers {
		e.blockers = append(e.blockers, b.Named())
	}
}

// settled records the end of a move at a time, makes the pods that it blocked retry now, and returns the maintenances of
// all these pods, sorted. The end of a move can arrive after the beginning of the next one.
func (d *drains) settled(v schemas.Verdict, at time.Time) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := d.free(delivery.Freed(v)...)
	for name, x := range d.byName {
		if e := x.entries[v.Intent.Pod.UID]; e != nil && (e.move == "" || e.move == v.Intent.ID) {
			e.moving, e.renew, names[name] = false, false, true
			if at.After(e.settled) {
				e.settled = at
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// freed makes the pods that the object blocked retry now, and returns their maintenances, sorted.
func (d *drains) freed(by schemas.ObjectRef) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.free(by)))
}

// free makes the pods that one of the objects blocked retry now, and returns their maintenances. The caller holds mu.
func (d *drains) free(by ...schemas.ObjectRef) map[string]bool {
	names := map[string]bool{}
	for name, x := range d.byName {
		for _, e := range x.entries {
			if !e.open && slices.ContainsFunc(e.blockers, func(b schemas.ObjectRef) bool { return slices.Contains(by, b) }) {
				e.retryAt, e.blockers, names[name] = time.Time{}, nil, true
			}
		}
	}
	return names
}

// lastVerdict returns the last verdict on a pod of a maintenance if it began no move, and whether the pod is moving.
func (d *drains) lastVerdict(name string, pod types.UID) (lastVerdict *plan.LastVerdict, moving bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if x := d.byName[name]; x != nil && x.entries[pod] != nil {
		return x.entries[pod].lastVerdict, x.entries[pod].moving
	}
	return nil, false
}

// podGone forgets the verdicts on a pod.
func (d *drains) podGone(pod types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, x := range d.byName {
		if e := x.entries[pod]; e != nil {
			e.lastVerdict, e.moving, e.renew = nil, false, false
		}
	}
}
