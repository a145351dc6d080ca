package schemas

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The scopes below are about a group of pods, wherever they run. Nodes from which nothing may be moved, because the policy
// does not look at them or they are not ready, are left out of all of them, with their pods. So are pods that have ended or
// are bound to no node.

// WorkloadScope is all pods of one owner, and the nodes that they could run on.
type WorkloadScope struct {
	ScopeHead
	// Pods are in the order of their names.
	Pods []ScopedPod `json:"pods"`
	// Nodes are all nodes, those that look alike to the pods of this scope in one group.
	Nodes []NodeGroup `json:"nodes"`
}

// NodeGroup is a set of nodes with the same taints and, as far as a pod of the scope asks, the same labels.
type NodeGroup struct {
	// Labels are those with a key that the node selector or the node affinity of a pod of the scope names.
	Labels map[string]string `json:"labels,omitempty"`
	// Taints are those with the effect NoSchedule or NoExecute.
	Taints []corev1.Taint `json:"taints,omitempty"`
	// Names of the nodes, sorted.
	Names []string `json:"names"`
}

// SpreadScope is one topology spread constraint of the pods of one namespace, and the domains that it spreads over. Two
// pods have the same constraint when everything is equal that decides which pods and domains count.
type SpreadScope struct {
	ScopeHead
	Namespace string `json:"namespace"`
	// Constraint is what the pods say. Its selector includes the values of its matchLabelKeys.
	Constraint corev1.TopologySpreadConstraint `json:"constraint"`
	// Domains are in the order of their values.
	Domains []Domain `json:"domains"`
}

// Domain is the nodes with one value of a topology key, and the pods that the constraint counts there.
type Domain struct {
	Value string `json:"value"`
	// Eligible: pods with the constraint can be placed in the domain, by the constraint's policies for affinity and taints.
	Eligible bool `json:"eligible"`
	// Count is how many pods there are that the constraint counts: those in the namespace that its selector matches and
	// that are not terminating.
	Count int `json:"count"`
	// Pods are those that are counted, in the order of their names; left out in a domain that has at most one more than the
	// emptiest eligible one, since to move one from there makes nothing more even.
	Pods []SpreadPod `json:"pods,omitempty"`
}

// SpreadPod is a pod with the domains that it could move to.
type SpreadPod struct {
	ScopedPod
	// Fits lists the other eligible domains in which the scheduler would place its replacement now, in their order, of those
	// with at least two pods fewer than the fullest.
	Fits []string `json:"fits,omitempty"`
}

// DomainScope is the pods in one topology domain of which at least one keeps away another, by its required anti-affinity.
type DomainScope struct {
	ScopeHead
	TopologyKey string `json:"topologyKey"`
	// Pods are in the order of their namespaces and names.
	Pods []ContendingPod `json:"pods"`
}

// ContendingPod is a pod with those that it keeps away.
type ContendingPod struct {
	ScopedPod
	// Repels are the other pods of the scope that the pod's own required anti-affinity does not allow beside it, in the
	// order of the scope.
	Repels []types.UID `json:"repels,omitempty"`
}

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
