// Package highnodeutilization is the strategy HighNodeUtilization: pods on nodes that are hardly used should move, so
// that the scheduler puts them closer together and the nodes can be switched off.
package highnodeutilization

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/functions/utilization"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Args are the arguments of the strategy. Thresholds must be given; the rest may be left zero.
type Args struct {
	// Thresholds are the shares up to which a node is under-used: all of them.
	Thresholds utilization.Thresholds `json:"thresholds,omitzero"`
	// NumberOfNodes is how many nodes may be under-used without anything being done.
	NumberOfNodes int `json:"numberOfNodes,omitzero"`
	// EvictionModes change which pods move. Empty: all that may.
	EvictionModes []EvictionMode `json:"evictionModes,omitzero"`
	// EvictableNamespaces are those whose pods may move. Only Exclude may be used.
	EvictableNamespaces policy.Namespaces `json:"evictableNamespaces,omitzero"`
}

// EvictionMode changes which pods move.
type EvictionMode string

// OnlyThresholdingResources moves only pods of which a container or an init container requests a resource that has a
// threshold.
const OnlyThresholdingResources EvictionMode = "OnlyThresholdingResources"

// Validate says what is wrong with the arguments; each error in it is a *[policy.FieldError].
func (a Args) Validate() error {
	var found policy.Findings
	found.Join("thresholds", a.Thresholds.Validate(policy.LoadRequests))
	found.Join("", utilization.ValidateCount(a.NumberOfNodes))
	for i, mode := range a.EvictionModes {
		if mode != OnlyThresholdingResources {
			found.Add("evictionModes"+policy.Item(i), mode, "is not known", "want "+string(OnlyThresholdingResources))
		}
	}
	found.Join("evictableNamespaces", utilization.ValidateExcluded(a.EvictableNamespaces))
	return found.Err()
}

// Resources are those that have a threshold, and cpu, memory and pods.
func (a Args) Resources() []corev1.ResourceName { return a.Thresholds.WithBasics() }

// Load is what pods request.
func (Args) Load() policy.Load { return policy.Load{} }

// Sources are the names of the under-used nodes, those that should lose their pods first in front. None: there is
// nothing to do.
func (a Args) Sources(nodes []schemas.NodeUsage) []string { return a.plan(nodes).Sources() }

// Decide returns the pods that should leave the under-used nodes, in the order of [Args.Sources] and of
// [utilization.Plan.Moves].
func (a Args) Decide(scope schemas.UsageScope) []schemas.Intent {
	rules := utilization.Rules{Namespaces: a.EvictableNamespaces}
	if slices.Contains(a.EvictionModes, OnlyThresholdingResources) {
		rules.Only = a.requests
	}
	return a.plan(scope.Nodes).Moves(scope.Pods, rules)
}

// plan sorts the nodes into those that are under-used and those that can take their pods: all others that are not
// cordoned, however full.
func (a Args) plan(usage []schemas.NodeUsage) utilization.Plan {
	nodes := utilization.Measure(usage, a.Resources())
	low := nodes.Fixed(a.Thresholds)
	under, targets := nodes.Split(
		func(n utilization.Node) bool { return n.Within(low) },
		func(n utilization.Node) bool { return !n.Unschedulable })
	if len(under) <= a.NumberOfNodes {
		return utilization.Plan{}
	}
	return nodes.Empty(under, targets, low)
}

// requests says whether the pod names a resource with a threshold in its requests, be it with the amount 0.
func (a Args) requests(pod *corev1.Pod) bool {
	for _, containers := range [...][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			for name := range containers[i].Resources.Requests {
				if _, has := a.Thresholds[name]; has {
					return true
				}
			}
		}
	}
	return false
}
