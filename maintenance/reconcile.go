package maintenance

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/maintenance/apply"
	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// Reconcile takes a maintenance one step further, from its state now: it withdraws pods that stay, writes the status, then changes
// nodes, then publishes the pods to move. after is when to call it again though nothing changes; zero: never.
func (s *session) Reconcile(ctx context.Context, name string) (after time.Duration, err error) {
	now := s.now()
	if err := s.load(ctx, name); err != nil {
		return 0, err
	}
	m := s.objects.get(name)
	if m == nil {
		return 0, s.end(ctx, name, now)
	}
	facts := s.facts(m, now)
	intents, decision := plan.Decide(facts)
	moving := movingOff(facts, decision)
	if err := s.withdraw(ctx, name, intents, moving, now); err != nil {
		return 0, err
	}
	withheld, err := s.withhold(ctx, name, &decision, now)
	if err != nil {
		return 0, err
	}
	r, err := s.apply.Do(ctx, decision)
	if errors.Is(err, apply.ErrNotLeading) {
		return 0, err // the next leader reports what became of it
	}
	s.report(decision, r, err)
	if !stored(r, err) {
		return 0, err // a newer version of the maintenance enqueues it again
	}
	if announceErr := s.announce(ctx, decision, r); announceErr != nil {
		return 0, errors.Join(err, announceErr)
	}
	next, publishErr := s.publish(ctx, name, movable(intents, r), moving, now)
	next = earlier(next, plan.Due(facts))
	if withheld {
		next = earlier(next, now.Add(waitingFor))
	}
	if !next.IsZero() {
		after = max(next.Sub(s.now()), time.Millisecond)
	}
	return after, errors.Join(err, publishErr)
}

// movingOff are the pods on the move off nodes that the decision still drains.
func movingOff(facts plan.Facts, d plan.Decision) map[types.UID]bool {
	draining := map[string]bool{}
	for _, n := range d.Status.Nodes {
		draining[n.Name] = n.Stage == v1alpha1.Draining
	}
	moving := map[types.UID]bool{}
	for _, n := range facts.Nodes {
		for _, p := range n.Pods {
			if p.Moving && draining[n.Node.Name] {
				moving[p.Pod.UID] = true
			}
		}
	}
	return moving
}

// end withdraws the pods of a maintenance that is gone, and forgets it.
func (s *session) end(ctx context.Context, name string, now time.Time) error {
	s.gates.want(name, nil)
	s.metrics.gone(name)
	s.told.forget(name)
	if err := s.withdraw(ctx, name, nil, nil, now); err != nil {
		return err
	}
	s.drains.forget(name)
	return nil
}

// stored says whether the status of the decision is known to be stored.
func stored(r apply.Result, err error) bool {
	return r.Before != nil && r.Dropped == "" && (r.Wrote || err == nil || len(r.Nodes) > 0)
}

// movable are the intents without those of nodes that could not be cordoned or given back. Conditions that could not be set hold no
// pod, since they are for people and other programs.
func movable(intents []schemas.Intent, r apply.Result) []schemas.Intent {
	failed := map[string]bool{}
	for _, n := range r.Nodes {
		if n.Outcome == apply.Failed && n.Action != schemas.NodeMark {
			failed[n.Name] = true
		}
	}
	return slices.DeleteFunc(intents, func(i schemas.Intent) bool { return failed[i.Node] })
}
