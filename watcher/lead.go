package watcher

import (
	"context"
	"fmt"
	"sync"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/watcher/load"
)

// batch bounds how many scopes are built and published together: enough to share the cost of a write to disk, few
// enough that 110 pods in each stay far below the memory that matters.
const batch = 64

// overlap is how far before its start a new leader reads verdicts, for clocks that differ. Reading one twice does no
// harm.
const overlap = 5 * time.Second

// lead is the work of one watcher while it leads under one policy. Nothing of it outlives [lead.run] but the outbox.
type lead struct {
	w        *Watcher
	before   *plan // the one that this one's replaced while the watcher led; nil: none
	scopes   scopes
	groups   *groups
	queue    *queue
	held     *held
	pace     *pace
	outbox   *outbox
	backoff  backoff
	waiting  waiting
	promises promises
	// asked are the evaluations of groups whose last scope had something in it, so that one that has nothing any more is
	// published too, and withdraws. Only run uses it.
	asked map[evaluation]bool
	// sampler measures load for scopes.loads. It has no sources when no strategy goes by load.
	sampler   *load.Sampler
	crossings crossings
	// offline: nothing comes to rest, since nobody replaces what is moved.
	offline bool
}

func newLead(w *Watcher, p *plan, o *outbox) *lead {
	g := newGroups(p, w.cluster.labelsOfNamespace)
	l := &lead{
		w:      w,
		scopes: scopes{cluster: w.cluster, plan: p, usable: w.usable, groups: g},
		groups: g, queue: newQueue(), held: newHeld(), pace: newPace(), outbox: o, waiting: newWaiting(),
		asked: map[evaluation]bool{},
	}
	l.scopes.waiting = &l.waiting
	l.sampler = l.newSampler()
	l.scopes.loads = l.sampler
	return l
}

// run evaluates everything, then what changes, until ctx ends.
func (l *lead) run(ctx context.Context) {
	if err := l.fill(l.w.now()); err != nil {
		l.w.log.Error("groups of pods cannot be evaluated", "error", err)
	}
	l.answered(ctx)
	l.begin()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { l.followVerdicts(ctx) })
	wg.Go(func() { l.resync(ctx) })
	wg.Go(func() { l.followRoom(ctx) })
	wg.Go(func() { l.sampler.Run(ctx) })
	for {
		due := l.queue.take(ctx, batch)
		if due == nil {
			return
		}
		l.publish(ctx, due)
	}
}

// fill shows the indexes of groups everything that is there.
func (l *lead) fill(now time.Time) error {
	nodes, err := l.w.cluster.nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	l.groups.fill(nodes, l.w.cluster.allPods(), now)
	return nil
}

// answered makes the evaluations pending whose answers wait at the actuator, asked for by the leader before or under the
// policy before: what was wanted may be wanted no more, and nothing else may lead there. Without an answer of the bus they
// expire by themselves.
func (l *lead) answered(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	heads, err := l.w.config.Bus.Answered(ctx)
	if err != nil {
		if ctx.Err() == nil {
			l.w.log.Warn("answers that wait cannot be listed; those that are wanted no more expire by themselves", "error", err)
		}
		return
	}
	now := l.w.now()
	cause := schemas.Cause{Kind: schemas.CauseResync, Time: now.UTC()}
	for _, h := range heads {
		ev := evaluation{profile: h.Profile, strategy: h.Strategy, kind: h.Kind, key: h.Key}
		if _, found := l.scopes.plan.find(ev); !found {
			continue // for the actuator to reject
		}
		l.asked[ev] = true
		l.queue.add(ev, now.Add(l.w.config.Settle), cause, schemas.Event{})
	}
}

// publish builds and publishes the scopes of what is due. What could not be published stays pending.
func (l *lead) publish(ctx context.Context, due []*pending) {
	now := l.w.now()
	events := l.events(due, now)
	if err := l.w.config.Bus.PublishAll(ctx, events); err != nil && ctx.Err() == nil {
		delay := l.backoff.next()
		if l.backoff.first() {
			l.w.log.Warn("scopes could not be published and stay pending until they can", "count", len(due), "error", err)
		}
		for _, p := range due {
			l.asked[p.evaluation] = true // the bus may have what was built before
		}
		l.queue.restore(due, l.w.now().Add(delay))
		return
	}
	if len(events) > 0 {
		l.backoff.reset()
	}
}

// events builds the scopes of what is due. A group that is not at rest stays pending.
func (l *lead) events(due []*pending, now time.Time) []schemas.Event {
	events := make([]schemas.Event, 0, len(due))
	for _, p := range due {
		if rest := l.rest(p.evaluation); rest.After(now) {
			l.queue.restore([]*pending{p}, rest)
			continue
		}
		b, err := l.build(p, now)
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
	return events
}

// build builds one scope. There is none for a group in which nothing could be moved and from which nothing is wanted.
func (l *lead) build(p *pending, now time.Time) (built, error) {
	began, moment := time.Now(), l.waiting.now()
	b, err := l.scopes.build(p, now)
	l.waiting.seek(p.evaluation, b.seeks, moment)
	e, found := l.scopes.plan.find(p.evaluation)
	if err != nil || !found || !e.grouped() {
		return b, err
	}
	l.pace.spent(p.evaluation, began, time.Now())
	if b.empty && !l.asked[p.evaluation] {
		b.scope = nil
	}
	if b.empty {
		delete(l.asked, p.evaluation)
	} else {
		l.asked[p.evaluation] = true
	}
	return b, nil
}

// rest is when an evaluation may be built: the group is at rest then, and not too much time went into building it.
func (l *lead) rest(ev evaluation) time.Time {
	e, found := l.scopes.plan.find(ev)
	if !found || !e.grouped() || l.offline {
		return time.Time{}
	}
	if e.measured() && !l.scopes.loads.Asked(e.gauged.Load()) {
		return l.w.now().Add(usageSettle)
	}
	rest := l.groups.rest(e, ev.key)
	if paced := l.pace.next(ev); paced.After(rest) {
		return paced
	}
	return rest
}

// observed publishes a delta, if it is to be, and makes the evaluations pending that it wakes. groups are those that the
// change concerns.
func (l *lead) observed(d schemas.Delta, groups touched) {
	if !l.scopes.plan.published(d) {
		return
	}
	now := l.w.now()
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
	w := wake{cause: cause, event: e, at: now.Add(l.w.config.Settle)}
	for _, s := range l.scopes.plan.woken(d) {
		l.wake(s, d, groups, w)
	}
	if d.Object.Kind == "Node" && d.Kind != schemas.NodeLoad { // the scheduler does not look at load
		l.waiting.room(w)
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
	l.evaluateGroups()
}

// evaluateGroups makes the evaluations of all groups pending in which something could be moved, or was wanted moved.
func (l *lead) evaluateGroups() {
	now := l.w.now()
	w := wake{cause: schemas.Cause{Kind: schemas.CauseResync, Time: now.UTC()}, at: now.Add(l.w.config.Settle)}
	for _, s := range l.scopes.plan.all {
		if !s.grouped() {
			continue
		}
		for _, key := range l.groups.keys(s) {
			l.add(s, key, w)
		}
	}
}

// evaluate makes every evaluation pending that concerns nodes of these names.
func (l *lead) evaluate(nodes []string) {
	now := l.w.now()
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
	now := l.w.now()
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
	err := l.w.config.Bus.FollowVerdicts(ctx, l.w.now().Add(-overlap), l.verdict)
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
		delay = l.held.deferred(v, ev, l.w.cluster.allows, l.w.now())
	case v.Outcome == schemas.Expired:
		delay = l.w.config.Settle
	default:
		if v.Outcome == schemas.Evicted {
			l.moved(v, ev)
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

// moved takes note of a pod that was moved.
func (l *lead) moved(v schemas.Verdict, ev evaluation) {
	if e, ok := l.scopes.plan.find(ev); ok && e.grouped() {
		l.groups.moved(e, l.w.now())
	}
	l.promise(v)
}
