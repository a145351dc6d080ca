package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// Facts are everything that the decision about one maintenance depends on, as of one moment.
type Facts struct {
	Now         time.Time
	Maintenance v1alpha1.NodeMaintenance
	// Nodes are the nodes that the maintenance selects, that its status contains, or that have its mark or conditions,
	// by name.
	Nodes   []NodeFacts
	Cluster ClusterFacts
	// Others are the other maintenances, by name.
	Others []v1alpha1.NodeMaintenance
	// Rules are the drain rules, by namespace and name.
	Rules []Rule
	// Namespaces are the labels of the namespaces of the pods, by name.
	Namespaces map[string]map[string]string
	// InWindow says whether nodes may be begun now. NextWindow is when a closed window opens; zero means never.
	InWindow   bool
	NextWindow time.Time
}

// NodeFacts is one node of a maintenance.
type NodeFacts struct {
	Node corev1.Node
	// Selected means that the maintenance selects the node. Other nodes are listed only to give them back.
	Selected bool
	// Mark identifies the maintenance that cordoned the node, or nil.
	Mark *schemas.CordonMark
	// CordonRefused means that the API server refused to cordon the node at most some minutes ago.
	CordonRefused bool
	// ConditionsRefused means that the API server has refused to set the conditions of the node for some seconds.
	ConditionsRefused bool
	// Pods are the pods on the node that have not ended, by namespace and name. Only nodes in progress have them.
	Pods []PodFacts
	// Gates are the gates of the maintenance for this node, in the order of the spec.
	Gates []Gate
	// Locks identify the other tools that work on the node.
	Locks []NodeLock
}

// PodFacts is a pod on a node in progress.
type PodFacts struct {
	schemas.ScopedPod
	// LastVerdict is the last verdict on the pod if it began no move.
	LastVerdict *LastVerdict
	// Moving means that a move of the pod is in progress.
	Moving bool
}

// LastVerdict is the reason why a pod did not move when the actuator tried.
type LastVerdict struct {
	Outcome  schemas.Outcome
	Reason   schemas.ReasonCode
	Message  string
	Blockers []schemas.ObjectRef
	// Since is the time of the first verdict with this outcome and reason.
	Since time.Time
}

// Gate reports whether a gate is open for a node, and why not.
type Gate struct {
	Name    string
	Open    bool
	Message string
}

// NodeLock is another tool at work on a node, and the evidence, such as "the taint node.kubernetes.io/…".
type NodeLock struct {
	Tool, Sign string
}

// ClusterFacts describes all nodes.
type ClusterFacts struct {
	Nodes int
	// ControlPlane has the names of the control plane nodes, and ControlPlaneReady is the number of those that are ready
	// and not cordoned.
	ControlPlane      map[string]bool
	ControlPlaneReady int
}

// Rule is a DrainRule, or without a namespace a ClusterDrainRule.
type Rule struct {
	Namespace string
	Name      string
	Spec      v1alpha1.ClusterDrainRuleSpec
}

// Decision is everything to do for a maintenance except moving pods: first the status, if the object has not changed
// since, then the finalizer, then the nodes in order.
type Decision struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	Status          v1alpha1.NodeMaintenanceStatus
	Nodes           []NodeStep
	// Moving has the pods on draining nodes whose move is in progress and should go on.
	Moving map[types.UID]bool
	// Finalizer reports whether the object needs the finalizer of Rehome.
	Finalizer bool
}

// NodeStep is one change of a node.
type NodeStep struct {
	Name   string
	UID    types.UID
	Action schemas.NodeAction
	// Mark is set on the node for [schemas.NodeCordon], and must exist for [schemas.NodeReturn].
	Mark schemas.CordonMark
	// Unschedulable and Marked are the state of the node that the step depends on.
	Unschedulable bool
	Marked        *schemas.CordonMark
	// Conditions are the missing conditions of the Kubernetes node life cycle.
	Conditions []corev1.NodeCondition
}
