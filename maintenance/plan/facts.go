package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// Facts are everything that the decision about one maintenance rests on, as of one moment.
type Facts struct {
	Now time.Time
	// Maintenance is the object with its status as it is stored.
	Maintenance v1alpha1.NodeMaintenance
	// Nodes are the nodes that the maintenance selects, those in its status that exist, and those with its mark or a condition
	// that it set, by name.
	Nodes []NodeFacts
	// Cluster counts all nodes.
	Cluster ClusterFacts
	// Others are the other maintenances that concern some of these nodes, by name, and those that hold a node of the control
	// plane if one of these nodes is of it.
	Others []Other
	// Rules are the DrainRules, then the ClusterDrainRules, each by namespace and name.
	Rules []Rule
	// Namespaces are the labels of the namespaces of the pods, by name.
	Namespaces map[string]map[string]string
	// InWindow: nodes may be begun now, by the window of the maintenance; NextWindow is when that changes. Zero: never.
	InWindow   bool
	NextWindow time.Time
}

// NodeFacts is one node of a maintenance.
type NodeFacts struct {
	Node corev1.Node
	// Meant: the maintenance selects the node. If not, the node is listed only to give it back.
	Meant bool
	// ControlPlane: the node runs the control plane.
	ControlPlane bool
	// Mark says which maintenance cordoned the node. nil: none did.
	Mark *schemas.CordonMark
	// Pods are the pods on the node that have not ended, by namespace and name. Only nodes in progress have them.
	Pods []PodFacts
	// Gates are the gates of the maintenance for this node, in its order.
	Gates []Gate
	// Locks say which other tools work on the node.
	Locks []NodeLock
}

// PodFacts is a pod on a node in progress.
type PodFacts struct {
	schemas.ScopedPod
	// Held is the last verdict on the pod if it did not begin a move. nil: there is none.
	Held *LastVerdict
	// Moving: a move of the pod is in progress.
	Moving bool
}

// LastVerdict is why a pod did not move when the actuator tried it.
type LastVerdict struct {
	Outcome  schemas.Outcome
	Reason   schemas.ReasonCode
	Message  string
	Blockers []schemas.ObjectRef
	// Since is when the first verdict with this outcome and reason came.
	Since time.Time
}

// Gate says whether a gate is open for a node.
type Gate struct {
	Name string
	Open bool
	// Message says why the gate is closed, or that its query has no answer.
	Message string
}

// NodeLock is another tool at work on a node.
type NodeLock struct {
	// Tool is its name, such as kured.
	Tool string
	// Sign is the evidence, such as the taint node.kubernetes.io/…
	Sign string
}

// ClusterFacts counts nodes.
type ClusterFacts struct {
	Nodes int
	// ControlPlane counts the nodes that run the control plane, and ControlPlaneReady those of them that are ready and not
	// cordoned.
	ControlPlane      int
	ControlPlaneReady int
}

// Other is a maintenance that concerns some of the same nodes, or holds one of the control plane.
type Other struct {
	Name  string
	Stage v1alpha1.Stage
	Since time.Time // when it was created: the older one goes first
	// Refused: it is not accepted, and begins no node.
	Refused bool
	// Nodes are the nodes that both concern, by name, with the stage that each has reached for the other.
	Nodes map[string]v1alpha1.NodeStage
	// ControlPlane are the nodes of the control plane that it holds, by name, with their stages. nil, too, if these facts are about
	// none.
	ControlPlane map[string]v1alpha1.NodeStage
}

// Rule is a DrainRule or a ClusterDrainRule.
type Rule struct {
	// Namespace is empty for a ClusterDrainRule.
	Namespace string
	Name      string
	Spec      v1alpha1.ClusterDrainRuleSpec
}

// Decision is what to do for a maintenance besides moving pods. The status is written first, and only if the object has not
// changed since; then the finalizer; then the nodes in their order; then the pods move.
type Decision struct {
	Name string
	UID  types.UID
	// ResourceVersion is the version of the object that the decision rests on.
	ResourceVersion string
	Status          v1alpha1.NodeMaintenanceStatus
	Nodes           []NodeStep
	// Finalizer: true, the object needs the finalizer of Rehome; false, it does not.
	Finalizer bool
}

// NodeStep is one change of a node.
type NodeStep struct {
	Name   string
	UID    types.UID
	Action schemas.NodeAction
	// Mark is put on the node with [schemas.NodeCordon], and has to be there with [schemas.NodeReturn].
	Mark schemas.CordonMark
	// Unschedulable and Marked are the state of the node that the decision rests on. A node that has changed in one of them since is
	// left alone. nil: it had no mark.
	Unschedulable bool
	Marked        *schemas.CordonMark
	// Conditions are those of the Kubernetes node life cycle that the node needs and does not have.
	Conditions []corev1.NodeCondition
}
