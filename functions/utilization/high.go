package utilization

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// HighArgs are the arguments of HighNodeUtilization. Thresholds are required.
type HighArgs struct {
	// Thresholds are percentages. A node is under-used while its usage of every resource is within them.
	Thresholds Thresholds `json:"thresholds,omitzero"`
	// NumberOfNodes is the number of nodes that may be under-used before the strategy acts.
	NumberOfNodes int `json:"numberOfNodes,omitzero"`
	// EvictionModes change which pods move. Empty means all that may.
	EvictionModes []EvictionMode `json:"evictionModes,omitzero"`
	// EvictableNamespaces limits which pods may move. Only Exclude may be used.
	EvictableNamespaces policy.Namespaces `json:"evictableNamespaces,omitzero"`
}

// EvictionMode changes which pods move.
type EvictionMode string

// OnlyThresholdingResources moves only pods that request a resource with a threshold.
const OnlyThresholdingResources EvictionMode = "OnlyThresholdingResources"

// Validate returns an error for each wrong field, a *[policy.FieldError].
func (a HighArgs) Validate() error {
	var found policy.Findings
	found.Join("thresholds", a.Thresholds.validate(policy.LoadRequests))
	found.Join("", validateCount(a.NumberOfNodes))
	for i, mode := range a.EvictionModes {
		if mode != OnlyThresholdingResources {
			found.Add("evictionModes"+policy.Item(i), mode, "is not known", "want "+string(OnlyThresholdingResources))
		}
	}
	found.Join("evictableNamespaces", validateExcluded(a.EvictableNamespaces))
	return found.Err()
}

// Resources returns the resources with a threshold, and cpu, memory, and pods.
func (a HighArgs) Resources() []corev1.ResourceName { return a.Thresholds.withBasics() }

// Load returns the load type: the requests of pods.
func (HighArgs) Load() policy.Load { return policy.Load{} }

// Sources returns the names of the under-used nodes that should lose their pods, in that order.
func (a HighArgs) Sources(nodes []schemas.NodeUsage) []string { return a.plan(nodes).names() }

// Decide returns the pods that should leave the under-used nodes, in the order of [HighArgs.Sources].
func (a HighArgs) Decide(scope schemas.UsageScope) []schemas.Intent {
	r := rules{namespaces: a.EvictableNamespaces, now: scope.Now}
	if slices.Contains(a.EvictionModes, OnlyThresholdingResources) {
		r.only = a.requests
	}
	return a.plan(scope.Nodes).intents(scope.Pods, r)
}

// plan sorts the nodes into under-used ones and targets: all others that are not cordoned, however full. A node without
// any resource with a threshold is not under-used, because emptying it saves none of them.
func (a HighArgs) plan(usage []schemas.NodeUsage) plan {
	c := measure(usage, a.Resources())
	low := c.fixed(a.Thresholds)
	under, targets := c.split(
		func(n node) bool { return n.within(low) && n.hasOne(low) },
		func(n node) bool { return !n.Unschedulable })
	if len(under) <= a.NumberOfNodes {
		return plan{}
	}
	return c.empty(under, targets, low)
}

// requests reports whether the pod requests a resource with a threshold, even if the amount is 0.
func (a HighArgs) requests(pod *corev1.Pod) bool {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for name := range c.Resources.Requests {
			if _, has := a.Thresholds[name]; has {
				return true
			}
		}
	}
	return false
}
