package watcher

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// SetPolicy replaces the policy. A watcher that leads evaluates everything under the new one, which also withdraws what
// only the old one wanted, except by a strategy that is gone: that is for the actuator to reject. It returns at once. With
// an error the old policy stays: the arguments of a strategy are not its own. One goroutine at a time may call it.
func (w *Watcher) SetPolicy(p policy.Policy) error {
	plan, err := newPlan(p)
	if err != nil {
		return err
	}
	w.measureFor(plan)
	w.plan.Store(plan)
	w.metrics.expect(plan)
	w.usable.follow(plan)
	select {
	case w.replaced <- struct{}{}:
	default: // the one before is not led by yet, and will be found replaced
	}
	return nil
}

// leadOn leads until ctx ends, beginning anew under every policy that replaces the one before. What was pending under that
// one is among what is evaluated at the beginning. No delta is lost in between, since all share one outbox.
func (w *Watcher) leadOn(ctx context.Context) {
	o := newOutbox(w.config.Bus, w.log, w.metrics)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { o.run(ctx) })
	var before *lead
	for ctx.Err() == nil {
		select {
		case <-w.replaced: // by what is loaded now
		default:
		}
		l := newLead(w, w.plan.Load(), o)
		if before != nil {
			l.before, l.asked = before.scopes.plan, before.asked // which nothing uses any more
		}
		before = l
		w.lead.Store(l)
		w.until(ctx, l)
	}
}

// until runs l until the policy is replaced or ctx ends.
func (w *Watcher) until(ctx context.Context, l *lead) {
	ctx, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end()
	wg.Go(func() {
		select {
		case <-ctx.Done():
		case <-w.replaced:
			end()
		}
	})
	l.run(ctx)
}

// begin evaluates everything. After another policy that includes the nodes that this one does not look at, and the pods
// that were due under that one: what it wanted may be wanted no more.
func (l *lead) begin() {
	if l.before == nil {
		l.w.log.Info("leading: evaluating everything")
		l.evaluateAll()
		return
	}
	l.w.log.Info("the policy has changed: evaluating everything")
	nodes := nodeNames(l.w.cluster, labels.Everything())
	l.evaluate(nodes)
	l.evaluateGroups()
	now := l.w.now()
	w := wake{cause: schemas.Cause{Kind: schemas.CauseResync, Time: now.UTC()}, at: now.Add(l.w.config.Settle)}
	for _, old := range l.before.all {
		s, stays := l.scopes.plan.find(old.evaluation(""))
		if !stays || s.strategy.Scope != schemas.PodKind {
			continue
		}
		for _, n := range nodes {
			l.wakeThoseDue(s, n, w, func(p *corev1.Pod) bool {
				at, ever := old.due(p)
				return ever && !at.After(now)
			})
		}
	}
}

// wakeThoseDue makes the evaluations pending of the pods on a node for which due is true.
func (l *lead) wakeThoseDue(s enabled, node string, w wake, due func(*corev1.Pod) bool) {
	for _, p := range l.w.cluster.PodsOnNode(node) {
		if due(p) {
			l.add(s, p.Namespace+"/"+p.Name, w)
		}
	}
}
