// Package utilization has the two strategies about node usage: LowNodeUtilization moves pods from over-used nodes to
// under-used ones, HighNodeUtilization empties under-used nodes.
//
//	scope ──▶ measure ──▶ split by limits ──▶ relieve (low) or empty (high) ──▶ plan.intents
//
//	low.go, high.go  the arguments of each strategy, and which nodes are sources and targets
//	thresholds.go    Thresholds: validation
//	nodes.go         measure: the nodes in plain numbers, and their limits
//	plan.go          plan: how far each source is unloaded, and which of its pods leave
//	targets.go       targets: what each node that takes pods has left
package utilization

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// LowArgs are the arguments of LowNodeUtilization. Thresholds and TargetThresholds are required, with the same resources.
type LowArgs struct {
	// Thresholds are percentages. A node is under-used while its usage of every resource is within them.
	Thresholds Thresholds `json:"thresholds,omitzero"`
	// TargetThresholds are percentages. A node is over-used if one resource exceeds its target. Under-used nodes are
	// filled up to them.
	TargetThresholds Thresholds `json:"targetThresholds,omitzero"`
	// UseDeviationThresholds counts the thresholds down, and the target thresholds up, from the mean usage of all
	// nodes.
	UseDeviationThresholds bool `json:"useDeviationThresholds,omitzero"`
	// NumberOfNodes is the number of nodes that may be under-used before the strategy acts.
	NumberOfNodes int `json:"numberOfNodes,omitzero"`
	// EvictableNamespaces limits which pods may move. Only Exclude may be used.
	EvictableNamespaces policy.Namespaces `json:"evictableNamespaces,omitzero"`
	EvictionLimits      EvictionLimits    `json:"evictionLimits,omitzero"`
	// MetricsUtilization selects the source of load. nil means the requests of pods.
	MetricsUtilization *MetricsUtilization `json:"metricsUtilization,omitzero"`
}

// EvictionLimits bound one answer.
type EvictionLimits struct {
	// Node is the number of pods of one node that may leave at the same time. nil means any number.
	Node *uint `json:"node,omitzero"`
}

// MetricsUtilization selects the source of the load of nodes and pods.
type MetricsUtilization struct {
	// MetricsServer is the older form of the Source KubernetesMetrics.
	MetricsServer bool              `json:"metricsServer,omitzero"`
	Source        policy.LoadSource `json:"source,omitzero"`
	// Prometheus is required for the Source Prometheus, and forbidden for any other.
	Prometheus *Prometheus `json:"prometheus,omitzero"`
}

// Prometheus holds the query for Prometheus.
type Prometheus struct {
	// Query returns one number from 0 to 1 for each node, with the label instance that names the node.
	Query string `json:"query,omitzero"`
}

// Validate returns an error for each wrong field, a *[policy.FieldError].
func (a LowArgs) Validate() error {
	var found policy.Findings
	source := a.Load().Source
	found.Join("thresholds", a.Thresholds.validate(source))
	found.Join("targetThresholds", a.TargetThresholds.validate(source))
	if len(a.Thresholds) > 0 && len(a.TargetThresholds) > 0 {
		a.compare(&found)
	}
	found.Join("", validateCount(a.NumberOfNodes))
	found.Join("evictableNamespaces", validateExcluded(a.EvictableNamespaces))
	found.Join("metricsUtilization", a.MetricsUtilization.validate())
	return found.Err()
}

// compare adds an error if the two maps of thresholds do not match.
func (a LowArgs) compare(found *policy.Findings) {
	const both = "name the same resources in both"
	for _, name := range a.Thresholds.names() {
		low, key := a.Thresholds[name], item(name)
		high, known := a.TargetThresholds[name]
		switch {
		case !known:
			found.Add("thresholds"+key, nil, "is not among targetThresholds", both)
		case low > high && !a.UseDeviationThresholds:
			found.Add("thresholds"+key, low, "is more than targetThresholds"+key, fmt.Sprintf("want at most %g", high))
		}
	}
	for _, name := range a.TargetThresholds.names() {
		if _, known := a.Thresholds[name]; !known {
			found.Add("targetThresholds"+item(name), nil, "is not among thresholds", both)
		}
	}
}

func (m *MetricsUtilization) validate() error {
	var found policy.Findings
	const right = "want KubernetesMetrics or Prometheus"
	switch {
	case m == nil:
	case m.MetricsServer && m.Source != "":
		found.Add("metricsServer", nil, "cannot be used together with source", "keep source")
	case m.MetricsServer && m.Prometheus != nil, m.Source == policy.LoadKubernetes && m.Prometheus != nil:
		found.Add("prometheus", nil, "cannot be used with KubernetesMetrics", "remove prometheus, or use source: Prometheus instead")
	case m.MetricsServer, m.Source == policy.LoadKubernetes:
	case m.Source == "":
		found.Add("source", nil, "is missing", right)
	case m.Source != policy.LoadPrometheus:
		found.Add("source", m.Source, "is not known", right)
	case m.Prometheus == nil || strings.TrimSpace(m.Prometheus.Query) == "":
		found.Add("prometheus.query", nil, "is missing", "write a PromQL query")
	}
	return found.Err()
}

// Load returns the source of usage: the requests of pods, unless MetricsUtilization names another source.
func (a LowArgs) Load() policy.Load {
	m := a.MetricsUtilization
	switch {
	case m == nil:
		return policy.Load{}
	case m.MetricsServer:
		return policy.Load{Source: policy.LoadKubernetes}
	case m.Source == policy.LoadPrometheus && m.Prometheus != nil:
		return policy.Load{Source: m.Source, Query: m.Prometheus.Query}
	}
	return policy.Load{Source: m.Source}
}

// Resources returns the resources with a threshold, and cpu, memory, and pods unless Prometheus measures the load.
func (a LowArgs) Resources() []corev1.ResourceName {
	if a.Load().Source == policy.LoadPrometheus {
		return a.Thresholds.names()
	}
	return a.Thresholds.withBasics()
}

// Sources returns the names of the over-used nodes that should lose pods, in that order.
func (a LowArgs) Sources(nodes []schemas.NodeUsage) []string { return a.plan(nodes).names() }

// Decide returns the pods that should leave the over-used nodes, in the order of [LowArgs.Sources].
func (a LowArgs) Decide(scope schemas.UsageScope) []schemas.Intent {
	return a.plan(scope.Nodes).intents(scope.Pods, rules{
		namespaces: a.EvictableNamespaces, perNode: a.EvictionLimits.Node, unmeasured: a.Load().Source == policy.LoadPrometheus,
		now: scope.Now,
	})
}

// plan sorts the nodes into under-used ones, over-used ones, and the rest. A cordoned node takes no pods and is not under-used.
func (a LowArgs) plan(usage []schemas.NodeUsage) plan {
	c := measure(usage, a.Resources())
	low, high := c.fixed(a.Thresholds), c.fixed(a.TargetThresholds)
	if a.UseDeviationThresholds {
		low, high = c.aroundMean(a.Thresholds, -1), c.aroundMean(a.TargetThresholds, 1)
	}
	under, over := c.split(
		func(n node) bool { return !n.Unschedulable && n.within(low) },
		func(n node) bool { return !n.within(high) })
	if len(under) <= a.NumberOfNodes || a.EvictionLimits.Node != nil && *a.EvictionLimits.Node == 0 {
		return plan{}
	}
	return c.relieve(over, under, high)
}
