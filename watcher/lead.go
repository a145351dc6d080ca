package watcher

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/delivery"
	"github.com/rehome-dev/rehome/watcher/requests"
)

// batch bounds how many scopes are built and published together: enough to share the cost of a write to disk, few
// enough that 110 pods in each stay far below the memory that matters.
const batch = 64

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
	// asked are the evaluations whose last scope could have an answer, so that one that cannot any more is published too, and
	// withdraws. Only run uses it.
	asked map[evaluation]bool
	began time.Time
	// unsure: it is not known what the leader before has asked for, so that every scope is published.
	unsure    bool
	crossings crossings
	requests  *requests.Controller
	// offline: nothing comes to rest, since nobody replaces what is moved.
	offline bool
}

func newLead(w *Watcher, p *plan, o *outbox) *lead {
	g := newGroups(p, namespaceLabels(w.cluster))
	l := &lead{
		w:      w,
		scopes: scopes{cluster: w.cluster, plan: p, usable: w.usable, groups: g},
		groups: g, queue: newQueue(), held: newHeld(), pace: newPace(), outbox: o, waiting: newWaiting(),
		asked: map[evaluation]bool{},
	}
	l.scopes.waiting = &l.waiting
	l.requests = l.newRequests()
	l.scopes.requests = l.requests
	l.scopes.loads = w.sampler.Load()
	l.began = w.now()
	for _, e := range p.all {
		if at := w.moves.of(e); e.measured() && !at.IsZero() {
			l.groups.moved(e, at)
		}
	}
	return l
}

// run evaluates everything, then what changes, until ctx ends.
func (l *lead) run(ctx context.Context) {
	l.fill(l.w.now())
	if follows := l.answered(ctx); follows || l.before != nil {
		l.groups.settle(l.w.now()) // pods may have left just before
	}
	l.begin()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { l.followVerdicts(ctx) })
	wg.Go(func() { l.resync(ctx) })
	wg.Go(func() { l.followRoom(ctx) })
	wg.Go(func() { l.requests.Run(ctx) })
	for {
		due := l.queue.take(ctx, batch)
		if due == nil {
			return
		}
		l.publish(ctx, due)
	}
}

// fill shows the indexes of groups everything that is there.
func (l *lead) fill(now time.Time) {
	l.groups.fill(func() ([]*corev1.Node, []*corev1.Pod) {
		return l.w.cluster.AllNodes(labels.Everything()), l.w.cluster.AllPods()
	}, now)
}

// answered makes the evaluations pending whose answers wait at the actuator, asked for by the leader before or under the
// policy before: what was wanted may be wanted no more, and nothing else may lead there. follows: there was a leader before.
func (l *lead) answered(ctx context.Context) (follows bool) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	heads, err := l.w.config.Bus.Asked(ctx)
	if err != nil {
		l.unsure = true
		if ctx.Err() == nil {
			l.w.log.Warn("answers that wait cannot be listed; every scope is published", "error", err)
		}
		return true
	}
	now := l.w.now()
	cause := schemas.Cause{Kind: schemas.CauseResync, Time: now.UTC()}
	for _, h := range heads {
		ev := evaluation{profile: h.Profile, strategy: h.Strategy, kind: h.Kind, key: h.Key}
		if _, found := l.scopes.plan.find(ev); !found || h.Kind == schemas.RequestKind || h.Strategy == schemas.MaintenanceStrategy {
			continue // for the actuator to reject, or asked for anew as soon as the request is read, or for maintenance to renew
		}
		l.asked[ev] = true
		l.queue.add(ev, now.Add(l.w.config.Settle), cause, schemas.Event{})
	}
	return len(heads) > 0
}

// publish builds and publishes the scopes of what is due. What could not be published stays pending, but for scopes that the
// bus will never take.
func (l *lead) publish(ctx context.Context, due []*pending) {
	now := l.w.now()
	events := make([]schemas.Event, 0, len(due))
	for _, p := range due {
		if e, ok := l.Reconcile(p, now); ok {
			events = append(events, e)
		}
	}
	refused, err := delivery.Refused(l.w.config.Bus.PublishAll(ctx, events))
	due = l.leaveOut(due, events, refused)
	if err != nil && ctx.Err() == nil {
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

// leaveOut returns the evaluations of due whose scopes the bus may still take. The others would be tried for ever;
// they are asked for again when something changes there, and with the next resync.
func (l *lead) leaveOut(due []*pending, events []schemas.Event, refused map[string]error) []*pending {
	out := make(map[string]bool, len(refused)) // by channel
	for _, e := range events {
		why, ok := refused[e.ID]
		if !ok {
			continue
		}
		out[e.Channel] = true
		l.w.log.Error("a scope cannot be published and is left out", "channel", e.Channel, "bytes", len(e.Data), "error", why)
	}
	return slices.DeleteFunc(due, func(p *pending) bool {
		head := schemas.ScopeHead{Kind: p.kind, Key: p.key, Profile: p.profile, Strategy: p.strategy}
		if !out[head.Channel()] {
			return false
		}
		l.w.metrics.refused.WithLabelValues(p.strategy, p.profile).Inc()
		return true
	})
}

// observed publishes a delta if a strategy or the policy asks for it, and enqueues the keys that it affects. groups are those that
// the change affects.
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
		l.enqueue(s, l.affectedKeys(s, d, groups, w))
	}
	if d.Object.Kind == "Node" && d.Kind != schemas.NodeLoad { // the scheduler does not look at load
		l.waiting.room(w)
	}
}

// evaluateAll makes every evaluation pending.
func (l *lead) evaluateAll() {
	l.evaluate(nodeNames(l.w.cluster, l.scopes.plan.selector))
	l.evaluateGroups()
	l.requests.EnqueueAll()
}

// evaluateGroups makes the evaluations of all groups pending in which something could be moved. One from which something
// was wanted, and in which nothing could be moved any more, was woken by the change that made it so.
func (l *lead) evaluateGroups() {
	now := l.w.now()
	w := wake{cause: schemas.Cause{Kind: schemas.CauseResync, Time: now.UTC()}, at: now.Add(l.w.config.Settle)}
	for _, s := range l.scopes.plan.all {
		if !s.grouped() {
			continue
		}
		l.wakeAllGroups(s, w)
	}
}

// wakeAllGroups makes the evaluations of one strategy pending for all groups in which something could be moved.
func (l *lead) wakeAllGroups(s enabled, w wake) {
	for _, key := range l.groups.keys(s) {
		l.add(s, key, w)
	}
}

// evaluate makes every evaluation pending that concerns nodes of these names.
func (l *lead) evaluate(nodes []string) {
	now := l.w.now()
	w := wake{cause: schemas.Cause{Kind: schemas.CauseResync, Time: now.UTC()}, at: now.Add(l.w.config.Settle)}
	for _, s := range l.scopes.plan.all {
		for _, n := range nodes {
			l.enqueue(s, l.keysOnNode(s, n, w))
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
