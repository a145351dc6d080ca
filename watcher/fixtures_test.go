package watcher

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// all are the arguments of a strategy that considers every constraint and every resource.
type all map[string]any

func (*all) Validate() error { return nil }
func (*all) NeedsRoom() bool { return false }
func (*all) Constraints(p *corev1.Pod) []corev1.TopologySpreadConstraint {
	return p.Spec.TopologySpreadConstraints
}
func (*all) Resources() []corev1.ResourceName           { return []corev1.ResourceName{"cpu", "memory", "pods"} }
func (*all) Load() policy.Load                          { return policy.Load{} }
func (*all) Sources(nodes []schemas.NodeUsage) []string { return nil }

// groupPolicy enables one strategy for each kind of group.
func groupPolicy() policy.Policy {
	p := policy.Policy{NodeSelector: "pool!=off", Profiles: []policy.Profile{{Name: "p"}}}
	for _, kind := range []schemas.ScopeKind{schemas.WorkloadKind, schemas.SpreadKind, schemas.DomainKind, schemas.UsageKind} {
		p.Profiles[0].Strategies = append(p.Profiles[0].Strategies, policy.Enabled{
			Strategy: policy.Strategy{Name: string(kind), Scope: kind, NewArgs: func() policy.Args { return &all{} }},
			Args:     json.RawMessage(`{}`),
		})
	}
	return p
}
