// Package lownodeutilization is the strategy LowNodeUtilization: pods on nodes that are used too much should move, so
// that they find their way to nodes that are hardly used.
package lownodeutilization

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/functions/utilization"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Args are the arguments of the strategy. Thresholds and TargetThresholds must be given, with the same resources; the
// rest may be left zero.
type Args struct {
	// Thresholds are the shares up to which a node is under-used: all of them.
	Thresholds utilization.Thresholds `json:"thresholds,omitzero"`
	// TargetThresholds are the shares above which a node is over-used: one of them. Under-used nodes are filled up to them.
	TargetThresholds utilization.Thresholds `json:"targetThresholds,omitzero"`
	// UseDeviationThresholds: the thresholds count down, and the target thresholds up, from the mean share of all nodes.
	UseDeviationThresholds bool `json:"useDeviationThresholds,omitzero"`
	// NumberOfNodes is how many nodes may be under-used without anything being done.
	NumberOfNodes int `json:"numberOfNodes,omitzero"`
	// EvictableNamespaces are those whose pods may move. Only Exclude may be used.
	EvictableNamespaces policy.Namespaces `json:"evictableNamespaces,omitzero"`
	EvictionLimits      EvictionLimits    `json:"evictionLimits,omitzero"`
	// MetricsUtilization is where load is measured. nil: what pods request counts.
	MetricsUtilization *MetricsUtilization `json:"metricsUtilization,omitzero"`
}

// EvictionLimits bound one answer.
type EvictionLimits struct {
	// Node is how many pods of one node may be on their way out. nil: any number.
	Node *uint `json:"node,omitzero"`
}

// Resources are those that have a threshold, and, except for a load from Prometheus, cpu, memory and pods.
func (a Args) Resources() []corev1.ResourceName {
	if a.Load().Source == policy.LoadPrometheus {
		return a.Thresholds.Names()
	}
	return a.Thresholds.WithBasics()
}

// Sources are the names of the over-used nodes, those that should lose pods first in front. None: there is nothing to
// do.
func (a Args) Sources(nodes []schemas.NodeUsage) []string { return a.plan(nodes).Sources() }

// Decide returns the pods that should leave the over-used nodes, in the order of [Args.Sources] and of
// [utilization.Plan.Moves].
func (a Args) Decide(scope schemas.UsageScope) []schemas.Intent {
	return a.plan(scope.Nodes).Moves(scope.Pods, utilization.Rules{
		Namespaces: a.EvictableNamespaces, PerNode: a.EvictionLimits.Node, Unmeasured: a.Load().Source == policy.LoadPrometheus,
	})
}

// plan sorts the nodes into those that are under-used, those that are over-used, and the rest. A cordoned node is not
// under-used: it takes no pods.
func (a Args) plan(usage []schemas.NodeUsage) utilization.Plan {
	nodes := utilization.Measure(usage, a.Resources())
	low, high := nodes.Fixed(a.Thresholds), nodes.Fixed(a.TargetThresholds)
	if a.UseDeviationThresholds {
		low, high = nodes.BelowMean(a.Thresholds), nodes.AboveMean(a.TargetThresholds)
	}
	under, over := nodes.Split(
		func(n utilization.Node) bool { return !n.Unschedulable && n.Within(low) },
		func(n utilization.Node) bool { return !n.Within(high) })
	if len(under) <= a.NumberOfNodes || a.EvictionLimits.Node != nil && *a.EvictionLimits.Node == 0 {
		return utilization.Plan{}
	}
	return nodes.Relieve(over, under, high)
}
