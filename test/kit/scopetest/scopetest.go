// Package scopetest has a policy for tests of scopes.
package scopetest

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Args are the arguments of a strategy that considers every constraint and every resource.
type Args map[string]any

// Validate returns nil.
func (*Args) Validate() error { return nil }

// NeedsRoom returns the argument needsRoom, or false without it.
func (a *Args) NeedsRoom() bool { return (*a)["needsRoom"] == true }

// Constraints returns all constraints of the pod.
func (*Args) Constraints(p *corev1.Pod) []corev1.TopologySpreadConstraint {
	return p.Spec.TopologySpreadConstraints
}

// Resources returns the resources of each pod.
func (*Args) Resources() []corev1.ResourceName { return []corev1.ResourceName{"cpu", "memory", "pods"} }

// Load returns the zero value.
func (*Args) Load() policy.Load { return policy.Load{} }

// Sources returns nil.
func (*Args) Sources([]schemas.NodeUsage) []string { return nil }

// GroupPolicy enables one strategy for each kind of group.
func GroupPolicy() policy.Policy {
	p := policy.Policy{NodeSelector: "pool!=off", Profiles: []policy.Profile{{Name: "p"}}}
	for _, kind := range []schemas.ScopeKind{schemas.WorkloadKind, schemas.SpreadKind, schemas.DomainKind, schemas.UsageKind} {
		p.Profiles[0].Strategies = append(p.Profiles[0].Strategies, policy.Enabled{
			Strategy: policy.Strategy{Name: string(kind), Scope: kind, NewArgs: func() policy.Args { return &Args{} }},
			Args:     json.RawMessage(`{}`),
		})
	}
	return p
}
