package scope

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/fit/score"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// CompiledPolicy is a policy, compiled for building scopes. It is immutable.
type CompiledPolicy struct {
	policy.Policy
	// Nodes selects the nodes of the policy.
	Nodes      labels.Selector
	Strategies []*Strategy
	// Scheduler is the scoring profile of the scheduler.
	Scheduler *score.Profile
	wokenBy   map[schemas.DeltaKind][]*Strategy
}

// Strategy is one strategy of one profile.
type Strategy struct {
	policy.Enabled
	policy.ScopeRules
	Profile *policy.Profile
	// Evictor has the rules that protect pods from the strategy. It does not include NodeFit for spread scopes, because
	// those contain the places where pods fit.
	Evictor policy.Evictor
}

// Compile compiles a policy. It fails for invalid arguments of a strategy, and for an unreadable scheduler profile.
func Compile(p policy.Policy) (*CompiledPolicy, error) {
	scheduler, err := p.Scheduler.Load()
	if err != nil {
		return nil, err
	}
	c := &CompiledPolicy{Policy: p, Nodes: p.Selector(), Scheduler: scheduler, wokenBy: map[schemas.DeltaKind][]*Strategy{}}
	for i := range p.Profiles {
		for _, enabled := range p.Profiles[i].Strategies {
			rules, err := enabled.ScopeRules()
			if err != nil {
				return nil, fmt.Errorf("profile %s: %w", p.Profiles[i].Name, err)
			}
			s := &Strategy{Enabled: enabled, ScopeRules: rules, Profile: &p.Profiles[i], Evictor: p.Profiles[i].Evictor}
			if rules.Spreading == nil && enabled.MustFit() {
				s.Evictor = s.Evictor.WithFit()
			}
			c.Strategies = append(c.Strategies, s)
			for _, kind := range enabled.Wakes {
				if kind != schemas.NodeRemoved || s.Grouped() { // the scopes of the node and of its pods are gone
					c.wokenBy[kind] = append(c.wokenBy[kind], s)
				}
			}
		}
	}
	return c, nil
}

// WokenBy returns the strategies that have scopes whose answer a delta can change.
func (c *CompiledPolicy) WokenBy(d schemas.Delta) []*Strategy { return c.wokenBy[d.Kind] }

// Publishes reports whether to publish a delta: all deltas of nodes, and deltas of pods that affect a strategy or that
// the policy subscribes to.
func (c *CompiledPolicy) Publishes(d schemas.Delta) bool {
	return d.Object.Kind == "Node" || len(c.wokenBy[d.Kind]) > 0 || c.Deltas == policy.DeltasAll
}

// Find returns the strategy of a key, or nil if the policy does not have it. Every profile has the strategy for
// requests.
func (c *CompiledPolicy) Find(key Key) *Strategy {
	if key.Strategy == schemas.RequestStrategy {
		for i := range c.Profiles {
			if p := &c.Profiles[i]; p.Name == key.Profile {
				s := policy.Strategy{Name: schemas.RequestStrategy, Scope: schemas.RequestKind}
				return &Strategy{Enabled: policy.Enabled{Strategy: s}, Profile: p, Evictor: p.Evictor}
			}
		}
		return nil
	}
	i := slices.IndexFunc(c.Strategies, func(s *Strategy) bool { return s.Profile.Name == key.Profile && s.Name == key.Strategy })
	if i < 0 {
		return nil
	}
	return c.Strategies[i]
}

// Loads returns the distinct loads that strategies need.
func (c *CompiledPolicy) Loads() []policy.Load {
	var all []policy.Load
	for _, s := range c.Strategies {
		if s.Measured() && !slices.Contains(all, s.Gauged.Load()) {
			all = append(all, s.Gauged.Load())
		}
	}
	return all
}

// Unusable returns the reason why no pod of the node may move, or "".
func (c *CompiledPolicy) Unusable(n *corev1.Node) string {
	return cluster.Unusable(n, c.Nodes, c.Signals)
}

// Takes reports whether a replacement may go to the node: it is ready, and no maintenance or other program drains it.
func (c *CompiledPolicy) Takes(n *corev1.Node) bool {
	return cluster.IsTarget(policy.Targets{Signals: c.Signals})(n)
}

// ExclusionChanged reports whether a maintenance or another program started or stopped draining the node, or keeping pods
// away from it. Not every such change is a delta.
func (c *CompiledPolicy) ExclusionChanged(old, new *corev1.Node) bool {
	differ := func(why func(*corev1.Node, policy.Signals) string) bool {
		return (why(old, c.Signals) == "") != (why(new, c.Signals) == "")
	}
	return old != nil && new != nil && (differ(cluster.Excluded) || differ(cluster.Closed))
}

// Key returns the key of a scope of the strategy.
func (s *Strategy) Key(name string) Key { return Key{s.Profile.Name, s.Name, s.Scope, name} }

// Grouped reports whether the strategy evaluates groups of pods.
func (s *Strategy) Grouped() bool { return isGroup(s.Scope) }

// Measured reports whether the strategy needs measured load.
func (s *Strategy) Measured() bool {
	return s.Gauged != nil && s.Gauged.Load().Source != policy.LoadRequests
}

// DueTime returns the earliest time for a move of the pod by this strategy. ever is false if the strategy cannot move the pod
// until the pod changes.
func (s *Strategy) DueTime(p *corev1.Pod) (at time.Time, ever bool) {
	if s.Timed == nil {
		return time.Time{}, true
	}
	return s.Timed.Due(p)
}

// Due reports whether the strategy could move the pod now.
func (s *Strategy) Due(p *corev1.Pod, now time.Time) bool {
	at, ever := s.DueTime(p)
	return ever && !at.After(now) && p.Spec.NodeName != ""
}
