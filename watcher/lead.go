package watcher

import (
	"context"
	"sync"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
)

// batch bounds how many scopes are built and published together: enough to share the cost of a write to disk, few
// enough that 110 pods in each stay far below the memory that matters.
const batch = 64

// overlap is how far before its start a new leader reads verdicts, for clocks that differ. Reading one twice does no
// harm.
const overlap = 5 * time.Second

// lead is the work of one watcher while it leads under one policy. Nothing of it outlives [lead.run] but the outbox.
type lead struct {
	w       *Watcher
	before  *plan // the one that this one's replaced while the watcher led; nil: none
	scopes  scopes
	queue   *queue
	held    *held
	outbox  *outbox
	backoff backoff
}

func newLead(w *Watcher, p *plan, o *outbox) *lead {
	return &lead{
		w:      w,
		scopes: scopes{cluster: w.cluster, plan: p, usable: w.usable},
		queue:  newQueue(), held: newHeld(), outbox: o,
	}
}

// run evaluates everything, then what changes, until ctx ends.
func (l *lead) run(ctx context.Context) {
	l.begin()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { l.followVerdicts(ctx) })
	wg.Go(func() { l.resync(ctx) })
	for {
		due := l.queue.take(ctx, batch)
		if due == nil {
			return
		}
		l.publish(ctx, due)
	}
}

// publish builds and publishes the scopes of what is due. What could not be published stays pending.
func (l *lead) publish(ctx context.Context, due []*pending) {
	now := time.Now()
	events := make([]schemas.Event, 0, len(due))
	for _, p := range due {
		b, err := l.scopes.build(p, now)
		if err == nil && b.scope == nil {
			continue
		}
		if !b.again.IsZero() {
			l.queue.add(p.evaluation, b.again, schemas.Cause{Kind: schemas.CauseDue, Time: b.again.UTC()}, schemas.Event{})
		}
		var e schemas.Event
		if err == nil {
			e, err = schemas.NewEvent(l.w.config.Source, b.scope, now, p.first)
		}
		if err != nil {
			l.w.log.Error("scope could not be built", "strategy", p.strategy, "scope", p.key, "error", err)
			continue
		}
		e.Expires = now.Add(l.w.config.Resync).UTC()
		events = append(events, e)
		l.w.metrics.scopes.WithLabelValues(p.strategy, p.profile).Inc()
	}
	if err := l.w.config.Bus.PublishAll(ctx, events); err != nil && ctx.Err() == nil {
		delay := l.backoff.next()
		if l.backoff.first() {
			l.w.log.Warn("scopes could not be published and stay pending until they can", "count", len(due), "error", err)
		}
		l.queue.restore(due, time.Now().Add(delay))
		return
	}
	if len(events) > 0 {
		l.backoff.reset()
	}
}

// observed publishes a delta, if it is to be, and makes the evaluations pending that it wakes.
func (l *lead) observed(d schemas.Delta) {
	if !l.scopes.plan.published(d) {
		return
	}
	now := time.Now()
	e, err := schemas.NewEvent(l.w.config.Source, d, now, schemas.Event{})
	if err != nil {
		l.w.log.Error("delta could not be encoded", "kind", d.Kind, "object", d.Object, "error", err)
		return
	}
	l.w.metrics.deltas.WithLabelValues(string(d.Kind)).Inc()
	l.outbox.add(e)
	e.Data = nil // a pending evaluation needs the envelope alone
	object := d.Object
	cause := schemas.Cause{Kind: schemas.CauseKind(d.Kind), Object: &object, Event: e.ID, Time: now.UTC()}
	for _, s := range l.scopes.plan.woken(d) {
		l.wake(s, d, wake{cause: cause, event: e, at: now.Add(l.w.config.Settle)})
	}
}

// evaluateAll makes every evaluation pending.
func (l *lead) evaluateAll() {
	nodes, err := l.w.cluster.nodeNames(l.scopes.plan.selector)
	if err != nil {
		l.w.log.Error("nothing can be evaluated", "error", err)
		return
	}
	l.evaluate(nodes)
}

// evaluate makes every evaluation pending that concerns nodes of these names.
func (l *lead) evaluate(nodes []string) {
	now := time.Now()
	w := wake{cause: schemas.Cause{Kind: schemas.CauseResync, Time: now.UTC()}, at: now.Add(l.w.config.Settle)}
	for _, s := range l.scopes.plan.all {
		for _, n := range nodes {
			l.wakeNode(s, n, w)
		}
	}
}

func (l *lead) resync(ctx context.Context) {
	ticker := time.NewTicker(l.w.config.Resync)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			l.evaluateAll()
		}
	}
}

// freed makes the evaluations pending whose pods the budget held.
func (l *lead) freed(b *policyv1.PodDisruptionBudget) {
	now := time.Now()
	cause := schemas.Cause{
		Kind:   schemas.CauseBudgetFreed,
		Object: &schemas.ObjectRef{Kind: "PodDisruptionBudget", Namespace: b.Namespace, Name: b.Name, UID: b.UID},
		Time:   now.UTC(),
	}
	for _, ev := range l.held.freed(types.NamespacedName{Namespace: b.Namespace, Name: b.Name}) {
		l.queue.add(ev, now.Add(l.w.config.Settle), cause, schemas.Event{})
	}
}

func (l *lead) followVerdicts(ctx context.Context) {
	err := l.w.config.Bus.FollowVerdicts(ctx, time.Now().Add(-overlap), l.verdict)
	if err != nil && ctx.Err() == nil {
		l.w.log.Error("verdicts cannot be followed; deferred pods wait for the resync", "error", err)
	}
}

// verdict takes note of what became of an intent. A deferred pod is evaluated again later, an expired one now; any
// other verdict ends what is remembered of the pod. An actuator that does not know the profile or the strategy has not
// read the policy yet that the watcher has, so that pod is evaluated again later, too.
func (l *lead) verdict(e schemas.Event) {
	v, err := schemas.Decode[schemas.Verdict](e)
	if err != nil {
		l.w.log.Warn("verdict is not readable", "error", err)
		return
	}
	ev := evaluation{profile: v.Profile, strategy: v.Strategy, kind: v.Scope.Kind, key: v.Scope.Key}
	var delay time.Duration
	_, wanted := l.scopes.plan.find(ev)
	switch {
	case v.Outcome == schemas.Deferred, wanted && v.Reason == schemas.ReasonProfileUnknown:
		delay = l.held.deferred(v, ev, l.w.cluster.allows)
	case v.Outcome == schemas.Expired:
		delay = l.w.config.Settle
	default:
		l.held.forget(v.Intent.Pod.UID)
		return
	}
	now := time.Now()
	e.Data = nil
	l.queue.add(ev, now.Add(delay), schemas.Cause{
		Kind: schemas.CauseRetry, Event: e.ID, Time: now.UTC(),
		Object: &schemas.ObjectRef{
			Kind: "Pod", Namespace: v.Intent.Pod.Namespace, Name: v.Intent.Pod.Name, UID: v.Intent.Pod.UID,
		},
	}, e)
}
