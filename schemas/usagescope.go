package schemas

import corev1 "k8s.io/api/core/v1"

// UsageScope is how much of every node is used, and the pods of the nodes that the strategy asked for. Nodes from which
// nothing may be moved, because the policy does not look at them or they are not ready, are left out, and so are those
// whose load is asked for and not known.
type UsageScope struct {
	ScopeHead
	// Nodes are in the order of their names.
	Nodes []NodeUsage `json:"nodes"`
	// Pods are those on the nodes that the strategy asked for, in the order of nodes, then of namespaces and names.
	Pods []UsingPod `json:"pods"`
}

// NodeUsage is one node and what is used of it.
type NodeUsage struct {
	Name string `json:"name"`
	// Unschedulable: the node is cordoned.
	Unschedulable bool           `json:"unschedulable,omitempty"`
	Taints        []corev1.Taint `json:"taints,omitempty"`
	// Capacity is what pods can have of the node: allocatable, or the capacity of a node that does not say.
	Capacity corev1.ResourceList `json:"capacity"`
	// Used is what the pods on it that have not ended request, or the load if the strategy asks for that. pods is their
	// number.
	Used corev1.ResourceList `json:"used"`
}

// UsingPod is a pod and what it uses.
type UsingPod struct {
	ScopedPod
	// Used is what the pod requests, or its load if the strategy asks for that. pods is always 1. nil: not known.
	Used corev1.ResourceList `json:"used,omitempty"`
}

// LoadMetric is the name of the only resource of a node whose load is one figure from Prometheus. Its capacity is 100.
const LoadMetric corev1.ResourceName = "MetricResource"
