package watcher

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// evaluation names one thing that can be evaluated: at most one of each is pending at any time.
type evaluation struct {
	profile, strategy string
	kind              schemas.ScopeKind
	key               string
}

// plan says what each delta wakes under one policy. It is never changed after it was made.
type plan struct {
	selector labels.Selector // the nodes that the policy looks at
	signals  policy.Signals
	metrics  policy.Metrics
	deltas   policy.Deltas
	policy   policy.Policy
	wakes    map[schemas.DeltaKind][]enabled
	all      []enabled
}

// enabled is one strategy of one profile.
type enabled struct {
	profile  *policy.Profile
	strategy policy.Enabled
	at       int          // its position in plan.all
	timed    policy.Timed // nil: the clock does not wake it
	seeker   policy.Seeker
	// concerned says which pods of a node it could want to move. nil: that is not known.
	concerned policy.Concerned
	// spreading and gauged are set for the kinds of scopes that need them.
	spreading policy.Spreading
	gauged    policy.Gauged
	opaque    bool
}

func newPlan(p policy.Policy) (*plan, error) {
	pl := &plan{
		selector: p.Selector(), signals: p.Signals, metrics: p.Metrics, deltas: p.Deltas,
		policy: p,
		wakes:  map[schemas.DeltaKind][]enabled{},
	}
	for i := range p.Profiles {
		for _, s := range p.Profiles[i].Strategies {
			e := enabled{profile: &p.Profiles[i], strategy: s}
			rules, err := s.ScopeRules()
			if err != nil {
				return nil, fmt.Errorf("profile %s: %w", p.Profiles[i].Name, err)
			}
			e.timed, e.seeker, e.spreading, e.gauged, e.opaque = rules.Timed, rules.Seeker, rules.Spreading, rules.Gauged, s.Opaque
			e.concerned = rules.Concerned
			e.at = len(pl.all)
			pl.all = append(pl.all, e)
			for _, kind := range s.Wakes {
				pl.wakes[kind] = append(pl.wakes[kind], e)
			}
		}
	}
	return pl, nil
}

// grouped says whether the strategy decides about groups of pods.
func (e enabled) grouped() bool {
	switch e.strategy.Scope {
	case schemas.NodeKind, schemas.PodKind, schemas.RequestKind:
		return false
	}
	return true
}

// measured says whether the strategy goes by load that is measured.
func (e enabled) measured() bool {
	return e.gauged != nil && e.gauged.Load().Source != policy.LoadRequests
}

// published says whether a delta goes on the bus: one about a node always, one about a pod only if a strategy is woken
// by it or the policy asks for all.
func (p *plan) published(d schemas.Delta) bool {
	return d.Object.Kind == "Node" || len(p.wakes[d.Kind]) > 0 || p.deltas == policy.DeltasAll
}

// woken lists the strategies that d wakes.
func (p *plan) woken(d schemas.Delta) []enabled {
	if d.Kind == schemas.NodeRemoved {
		return nil // its pods go with it
	}
	return p.wakes[d.Kind]
}

// unusable says why no pod of the node may be moved; empty: they may. The policy's selector must take the node in, the
// node must not say that it is not ready, and no maintenance and no signal may say to leave it alone.
func (p *plan) unusable(n *corev1.Node) string {
	switch {
	case !p.selector.Matches(labels.Set(n.Labels)):
		return fmt.Sprintf("the policy's nodeSelector %q does not take in node %s", p.selector, n.Name)
	case cluster.NotReady(n):
		return fmt.Sprintf("node %s is not ready", n.Name)
	}
	if why := p.leavesAlone(n); why != "" {
		return fmt.Sprintf("node %s is left alone: %s", n.Name, why)
	}
	return ""
}

// leavesAlone says why somebody else empties the node; empty: nobody does. What moves off a node that a maintenance has
// cordoned is for that maintenance to say; its mark is there as soon as the cordon, and the node's conditions come later.
func (p *plan) leavesAlone(n *corev1.Node) string {
	if mark := schemas.MarkOn(n); mark != nil {
		return "maintenance " + mark.Name + " has cordoned it"
	}
	return p.signals.IgnoresNode(n)
}

// find returns the strategy that an evaluation is for, and whether the policy has it. Requests have every profile.
func (p *plan) find(ev evaluation) (enabled, bool) {
	if ev.strategy == schemas.RequestStrategy {
		i := slices.IndexFunc(p.policy.Profiles, func(x policy.Profile) bool { return x.Name == ev.profile })
		if i < 0 {
			return enabled{}, false
		}
		strategy := policy.Strategy{Name: schemas.RequestStrategy, Scope: schemas.RequestKind}
		return enabled{profile: &p.policy.Profiles[i], strategy: policy.Enabled{Strategy: strategy}, at: -1}, true
	}
	i := slices.IndexFunc(p.all, func(e enabled) bool {
		return e.profile.Name == ev.profile && e.strategy.Name == ev.strategy
	})
	if i < 0 {
		return enabled{}, false
	}
	return p.all[i], true
}

// due is when the strategy could want the pod moved. Without a clock of its own it always could.
func (e enabled) due(p *corev1.Pod) (at time.Time, ever bool) {
	if e.timed == nil {
		return time.Time{}, true
	}
	return e.timed.Due(p)
}

func (e enabled) evaluation(key string) evaluation {
	return evaluation{profile: e.profile.Name, strategy: e.strategy.Name, kind: e.strategy.Scope, key: key}
}

// signalled says whether a node that stays was marked or unmarked by a maintenance or a signal, which not all of them show in
// a delta.
func (p *plan) signalled(old, new *corev1.Node) bool {
	return old != nil && new != nil && (p.leavesAlone(old) == "") != (p.leavesAlone(new) == "")
}
