package schemas

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The scopes below describe a group of pods on any nodes. They have no pods that have ended or have no node. They leave out nodes
// that the policy does not select or that are not ready, and the pods on these nodes, because such pods must not move.

// WorkloadScope has all pods of one owner, and the nodes on which they could run.
type WorkloadScope struct {
	ScopeHead
	// Pods are sorted by name.
	Pods []ScopedPod `json:"pods"`
	// Nodes are all nodes, in groups that do not differ for the pods of this scope. If the strategy moves only pods that fit on
	// another node, nodes that run no pod of the scope and have no capacity for one are left out.
	Nodes []NodeGroup `json:"nodes"`
}

// NodeGroup is a set of nodes with the same taints, and with the same labels as far as pods of the scope refer to them.
type NodeGroup struct {
	// Labels are the labels whose keys occur in the node selector or node affinity of a pod of the scope.
	Labels map[string]string `json:"labels,omitempty" empty:"true"`
	// Taints are the taints with the effect NoSchedule or NoExecute.
	Taints []corev1.Taint `json:"taints,omitempty"`
	// Names are the node names, sorted.
	Names []string `json:"names"`
}

// SpreadScope has the topology spread constraints that some pods of one namespace share, and their domains. All DoNotSchedule
// constraints of a pod are in one scope, because a node has to satisfy all of them. Each ScheduleAnyway constraint has its own
// scope. Two pods share a constraint if it selects the same pods and the same domains for both.
type SpreadScope struct {
	ScopeHead
	Namespace string `json:"namespace"`
	// Constraint is the first constraint. Its selector includes the values of its matchLabelKeys.
	Constraint corev1.TopologySpreadConstraint `json:"constraint"`
	// Domains are the domains of Constraint, sorted by value.
	Domains []Domain `json:"domains"`
	// Others are the other constraints. A pod that leaves its domain leaves one domain of each constraint.
	Others []OtherConstraint `json:"others,omitempty"`
	// Places are the combinations of domains that have a node, in order. It is empty without Others, because each domain is a
	// place then.
	Places []Place `json:"places,omitempty"`
	// Room has one list for each kind of pod: the number of replacements that the scheduler would place in each place, by the
	// index of the place. It ignores the constraints of the scope, and numbers are cut at the largest useful value. It is empty if
	// the strategy does not need it.
	Room [][]int `json:"room,omitempty"`
}

// OtherConstraint is another constraint and its domains.
type OtherConstraint struct {
	Constraint corev1.TopologySpreadConstraint `json:"constraint"`
	// Domains are sorted by value and have no pods.
	Domains []Domain `json:"domains"`
}

// Place is a set of nodes with one value of each topology key. It has the index of the domain of each constraint, Constraint
// first.
type Place []int

// Domain has the nodes with one value of a topology key, and the pods that the constraint counts there.
type Domain struct {
	Value string `json:"value" empty:"true"`
	// Eligible reports that pods with the constraint can be placed in the domain, by the affinity and taint policies of the
	// constraint.
	Eligible bool `json:"eligible"`
	// Count is the number of pods that the scheduler counts in the domain for this constraint: pods of the namespace that the
	// selector matches, that are not terminating, and whose nodes the policies of the constraint include.
	Count int `json:"count"`
	// Pods are the counted pods that have all constraints of the scope, sorted by name. It is empty if the domain exceeds the
	// emptiest domain of every constraint by at most one pod, because no move from it improves the spread.
	Pods []SpreadPod `json:"pods,omitempty"`
}

// SpreadPod is a pod, its place, and the room for its replacement.
type SpreadPod struct {
	ScopedPod
	// Place is the index of its place, or 0 if the scope has no places.
	Place int `json:"place,omitempty"`
	// Room is the index of its list in the room of the scope, or 0 if the scope has no room. Pods can share a list.
	Room int `json:"room,omitempty"`
	// Fits lists the other domains of Constraint with room for its replacement, in order. Only functions outside of Rehome get it.
	Fits []string `json:"fits,omitempty" empty:"true"`
}

// DomainScope has the pods of one topology domain in which the required anti-affinity of a pod excludes another pod.
type DomainScope struct {
	ScopeHead
	TopologyKey string `json:"topologyKey"`
	// Pods are sorted by namespace and name.
	Pods []ContendingPod `json:"pods"`
}

// ContendingPod is a pod and the pods that it excludes.
type ContendingPod struct {
	ScopedPod
	// Repels are the other pods of the scope that the required anti-affinity of this pod excludes, in the order of the scope.
	Repels []types.UID `json:"repels,omitempty"`
}

// UsageScope has the usage of every node, and the pods of the nodes that the strategy selected. It leaves out nodes that the
// policy does not select or that are not ready. If the strategy uses the load, it also leaves out nodes whose load is unknown.
type UsageScope struct {
	ScopeHead
	// Nodes are sorted by name.
	Nodes []NodeUsage `json:"nodes"`
	// Pods are the pods on the selected nodes, sorted by node, namespace, and name.
	Pods []UsingPod `json:"pods"`
}

// NodeUsage is one node and its usage.
type NodeUsage struct {
	Name string `json:"name"`
	// Unschedulable reports that the node is cordoned.
	Unschedulable bool           `json:"unschedulable,omitempty"`
	Taints        []corev1.Taint `json:"taints,omitempty"`
	// Capacity is what the node offers to pods: allocatable, or capacity if the node has no allocatable resources.
	Capacity corev1.ResourceList `json:"capacity"`
	// Used is the sum of the requests of all pods on the node that have not ended, or the load if the strategy uses it. The
	// resource pods is the number of these pods.
	Used corev1.ResourceList `json:"used"`
}

// UsingPod is a pod and its usage.
type UsingPod struct {
	ScopedPod
	// Used is the request of the pod, or its load if the strategy uses it. The resource pods is always 1. Nil means unknown.
	Used corev1.ResourceList `json:"used,omitempty"`
}

// LoadMetric is the name of the only resource of a node whose load is one figure from Prometheus. Its capacity is 100.
const LoadMetric corev1.ResourceName = "MetricResource"
