package watcher

import (
	"context"
	"time"

	policyv1 "k8s.io/api/policy/v1"

	"github.com/rehome-dev/rehome/schemas"
)

// overlap is how far before its start a new leader reads verdicts, for clocks that differ. Reading one twice does no
// harm.
const overlap = 5 * time.Second

// freed makes the evaluations pending whose pods the budget held.
func (l *lead) freed(b *policyv1.PodDisruptionBudget) {
	now := l.w.now()
	cause := schemas.Cause{
		Kind:   schemas.CauseBudgetFreed,
		Object: &schemas.ObjectRef{Kind: "PodDisruptionBudget", Namespace: b.Namespace, Name: b.Name, UID: b.UID},
		Time:   now.UTC(),
	}
	for _, ev := range l.held.freed(holder(budgetKind, b.Namespace, b.Name)) {
		l.queue.add(ev, now.Add(l.w.config.Settle), cause, schemas.Event{})
	}
}

func (l *lead) followVerdicts(ctx context.Context) {
	since := overlap
	if len(l.scopes.plan.measures()) > 0 {
		since = loadSettles // what was moved by load shows in the load that long after
	}
	err := l.w.config.Bus.FollowVerdicts(ctx, l.began.Add(-since), l.verdict)
	if err != nil && ctx.Err() == nil {
		l.w.log.Error("verdicts cannot be followed; deferred pods wait for the resync", "error", err)
	}
}

// verdict takes note of what became of an intent. A deferred pod is evaluated again later, and so is one whose move was
// taken back or whose intent expired; any other verdict ends what is remembered of the pod. An actuator that does not know the
// profile or the strategy has not read the policy yet that the watcher has, so that pod is evaluated again later, too.
func (l *lead) verdict(e schemas.Event) {
	v, err := schemas.Decode[schemas.Verdict](e)
	if err != nil {
		l.w.log.Warn("verdict is not readable", "error", err)
		return
	}
	if v.Strategy == schemas.MaintenanceStrategy { // the maintenance role tries again; what was moved holds for everyone
		switch {
		case v.Outcome == schemas.Settled && v.Reason != schemas.ReasonTakenBack:
			l.arrivedSomewhere(v, e)
		case v.Outcome.Moves() && !v.DryRun:
			l.promise(v)
		}
		return
	}
	ev := evaluation{profile: v.Profile, strategy: v.Strategy, kind: v.Scope.Kind, key: v.Scope.Key}
	if asked := v.Intent.Asked; v.Outcome.Moves() && (asked == nil || !asked.DryRun) {
		l.movedByLoad(ev, e.Time)
	}
	if e.Time.Before(l.began.Add(-overlap)) {
		return // of the leader before, who saw to it
	}
	var delay time.Duration
	again := l.requests.Verdict(v)
	_, wanted := l.scopes.plan.find(ev)
	switch {
	case v.Outcome == schemas.Settled && v.Reason != schemas.ReasonTakenBack:
		l.arrivedSomewhere(v, e)
		return
	case v.Outcome == schemas.Deferred, v.Outcome == schemas.Expired, v.Outcome == schemas.Settled, wanted && v.Reason == schemas.ReasonProfileUnknown, again:
		delay = l.held.deferred(v, ev, l.w.allows, l.w.now())
	default:
		if asked := v.Intent.Asked; v.Outcome.Moves() && (asked == nil || !asked.DryRun) {
			l.promise(v)
		}
		l.held.forget(v.Intent.Pod.UID)
		return
	}
	now := l.w.now()
	e.Data = nil
	l.queue.add(ev, now.Add(delay), schemas.Cause{
		Kind: schemas.CauseRetry, Event: e.ID, Time: now.UTC(),
		Object: &schemas.ObjectRef{
			Kind: "Pod", Namespace: v.Intent.Pod.Namespace, Name: v.Intent.Pod.Name, UID: v.Intent.Pod.UID,
		},
	}, e)
}

// arrivedSomewhere makes the evaluations pending whose pods were held by moves in flight, of which one is over: those of
// the same workload, off the same node or out of the same namespace.
func (l *lead) arrivedSomewhere(v schemas.Verdict, e schemas.Event) {
	by := []schemas.ObjectRef{holder("Node", "", v.Intent.Node), holder("Namespace", "", v.Intent.Pod.Namespace)}
	if w := v.Workload; w != nil {
		by = append(by, holder(w.Kind, w.Namespace, w.Name))
	}
	now := l.w.now()
	e.Data = nil
	cause := schemas.Cause{Kind: schemas.CauseRetry, Event: e.ID, Time: now.UTC(), Object: v.Workload}
	for _, what := range by {
		for _, ev := range l.held.freed(what) {
			l.queue.add(ev, now.Add(l.w.config.Settle), cause, e)
		}
	}
}

// movedByLoad takes note of a pod that was moved because of what nodes use.
func (l *lead) movedByLoad(ev evaluation, at time.Time) {
	e, ok := l.scopes.plan.find(ev)
	if !ok || !e.grouped() {
		return
	}
	l.groups.moved(e, at)
	if e.measured() {
		l.w.moves.note(e, at)
	}
}
