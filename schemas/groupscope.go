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
	// Nodes are all nodes, those that look alike to the pods of this scope in one group. For a strategy whose pods have to fit on
	// another node, a node that runs none of the pods and could take none is left out.
	Nodes []NodeGroup `json:"nodes"`
}

// NodeGroup is a set of nodes with the same taints and, as far as a pod of the scope asks, the same labels.
type NodeGroup struct {
	// Labels are those with a key that the node selector or the node affinity of a pod of the scope names.
	Labels map[string]string `json:"labels,omitempty" empty:"true"`
	// Taints are those with the effect NoSchedule or NoExecute.
	Taints []corev1.Taint `json:"taints,omitempty"`
	// Names of the nodes, sorted.
	Names []string `json:"names"`
}

// SpreadScope is the topology spread constraints that some pods of one namespace have in common, and the domains that they spread
// over. All constraints with DoNotSchedule of a pod are in one scope, because a node has to suit all of them; a constraint with
// ScheduleAnyway has a scope of its own. Two pods have the same constraint when everything is equal that decides which pods and
// domains count.
type SpreadScope struct {
	ScopeHead
	Namespace string `json:"namespace"`
	// Constraint is the first constraint. Its selector includes the values of its matchLabelKeys.
	Constraint corev1.TopologySpreadConstraint `json:"constraint"`
	// Domains are those of Constraint, in the order of their values.
	Domains []Domain `json:"domains"`
	// Others are the other constraints. A pod that leaves its domain leaves a domain of each.
	Others []OtherConstraint `json:"others,omitempty"`
	// Places are the combinations of domains that have a node, in their order. Empty without Others: each domain is a place.
	Places []Place `json:"places,omitempty"`
	// Room says how many replacements the scheduler would place in each place, by the index of the place: one list for each kind
	// of pods. The constraints of the scope are left out of account, and a list has no larger numbers than can be needed. Empty:
	// the strategy does not ask for it.
	Room [][]int `json:"room,omitempty"`
}

// OtherConstraint is a further constraint, and its domains.
type OtherConstraint struct {
	Constraint corev1.TopologySpreadConstraint `json:"constraint"`
	// Domains are in the order of their values, without pods.
	Domains []Domain `json:"domains"`
}

// Place is the nodes with one value of each topology key: the index of the domain of each constraint, Constraint first.
type Place []int

// Domain is the nodes with one value of a topology key, and the pods that the constraint counts there.
type Domain struct {
	Value string `json:"value" empty:"true"`
	// Eligible: pods with the constraint can be placed in the domain, by the constraint's policies for affinity and taints.
	Eligible bool `json:"eligible"`
	// Count is how many pods the constraint counts there, as the scheduler does: those in the namespace that its selector matches,
	// that are not terminating, and whose nodes its policies do not leave out.
	Count int `json:"count"`
	// Pods are those that have all constraints of the scope and that these count, in the order of their names; left out where every
	// constraint has at most one pod more than in its emptiest domain, since to move one from there makes nothing more even.
	Pods []SpreadPod `json:"pods,omitempty"`
}

// SpreadPod is a pod with its place and the room for its replacement.
type SpreadPod struct {
	ScopedPod
	// Place is the index of its place; 0 if the scope has no places.
	Place int `json:"place,omitempty"`
	// Room is the index of its list in the room of the scope; 0 if the scope has no room. Pods with the same list share it.
	Room int `json:"room,omitempty"`
	// Fits lists the other domains of Constraint that have room for its replacement, in their order. Only functions outside of
	// Rehome get it.
	Fits []string `json:"fits,omitempty" empty:"true"`
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
