package schemas

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// MaintenanceStrategy stands where a strategy stands, in the scopes, answers and verdicts of maintenances.
const MaintenanceStrategy = "Maintenance"

// AnnotationMaintenance is the annotation by which a node says which maintenance cordoned it, a [CordonMark] as JSON. It is
// put there and taken away by the same patch as the cordon.
const AnnotationMaintenance = "rehome.dev/maintenance"

// AnnotationMaintained is the annotation by which people and programs say that the work on a node is done: its value is the
// name of the maintenance. A node that is drained or held is then given back, whatever the stage. It counts from the cordon
// on: the patches that cordon and that give back take it away, so that none is left over for a later maintenance of that name.
const AnnotationMaintained = "rehome.dev/maintained"

// MaintenanceFinalizer keeps a maintenance until its nodes are given back and what it said on them is taken back.
const MaintenanceFinalizer = "rehome.dev/maintenance"

// CordonMark says who cordoned a node, and how it was before.
type CordonMark struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// CordonedBefore: the node was cordoned already, and stays so.
	CordonedBefore bool `json:"cordonedBefore"`
	// At is when it was done.
	At time.Time `json:"at"`
}

// MaintenanceScope is one maintenance, with everything that is needed to decide its next steps.
type MaintenanceScope struct {
	ScopeHead
	// Maintenance is the object with its status as it is stored. Its resource version is what the next status rests on.
	Maintenance v1alpha1.NodeMaintenance `json:"maintenance"`
	// Nodes are those that are meant, those in the status that are still there, and those that bear its mark or a condition
	// that it has set, by name.
	Nodes []MaintainedNode `json:"nodes"`
	// Cluster counts all nodes.
	Cluster ClusterFacts `json:"cluster"`
	// Others are the other maintenances that mean some of these nodes, by name, and those that hold a node of the control plane
	// if one of these nodes is of it.
	Others []OtherMaintenance `json:"others,omitempty"`
	// Rules are those of namespaces first, each by namespace and name.
	Rules []DrainRuleFact `json:"rules,omitempty"`
	// Namespaces are the labels of the namespaces of the pods, by name.
	Namespaces map[string]map[string]string `json:"namespaces,omitempty"`
	// InWindow: nodes may be begun now, by the window of the maintenance; NextWindow is when that changes. Zero: never.
	InWindow   bool      `json:"inWindow"`
	NextWindow time.Time `json:"nextWindow,omitzero"`
}

// MaintainedNode is one node of a maintenance.
type MaintainedNode struct {
	Node corev1.Node `json:"node"`
	// Meant: the maintenance means the node. If not, it is only there to be given back.
	Meant bool `json:"meant"`
	// ControlPlane: it runs the control plane.
	ControlPlane bool `json:"controlPlane,omitempty"`
	// Mark is who cordoned it. nil: no maintenance did.
	Mark *CordonMark `json:"mark,omitempty"`
	// Pods are those on the node that have not ended, by namespace and name. Only of nodes that are worked on.
	Pods []MaintainedPod `json:"pods,omitempty"`
	// Gates are the gates of the maintenance for this node, in its order.
	Gates []GateFact `json:"gates,omitempty"`
	// Locks are what other tools do with the node, by the table of signals of the policy.
	Locks []NodeLock `json:"locks,omitempty"`
}

// MaintainedPod is a pod on a node that is worked on.
type MaintainedPod struct {
	ScopedPod
	// Held is what the last verdict on the pod said, if that did not begin a move. nil: there is none.
	Held *PodHeld `json:"held,omitempty"`
	// Moving: a move of it is on its way.
	Moving bool `json:"moving,omitempty"`
}

// PodHeld is why a pod did not move when it was tried.
type PodHeld struct {
	Outcome  Outcome     `json:"outcome"`
	Reason   ReasonCode  `json:"reason"`
	Message  string      `json:"message"`
	Blockers []ObjectRef `json:"blockers,omitempty"`
	// Since is when that began to be said.
	Since time.Time `json:"since"`
}

// GateFact is whether a gate is open for a node.
type GateFact struct {
	Name string `json:"name"`
	Open bool   `json:"open"`
	// Message says why it is closed, or that it could not be asked.
	Message string `json:"message,omitempty"`
}

// NodeLock is another tool at work on a node.
type NodeLock struct {
	// Tool is its name, such as kured.
	Tool string `json:"tool"`
	// Sign is what shows it, such as the taint node.kubernetes.io/…
	Sign string `json:"sign"`
}

// ClusterFacts counts nodes.
type ClusterFacts struct {
	Nodes int `json:"nodes"`
	// ControlPlane are the nodes that run the control plane, and ControlPlaneReady those of them that are ready and not
	// cordoned.
	ControlPlane      int `json:"controlPlane"`
	ControlPlaneReady int `json:"controlPlaneReady"`
}

// OtherMaintenance is a maintenance that means some of the same nodes, or holds one of the control plane.
type OtherMaintenance struct {
	Name  string         `json:"name"`
	Stage v1alpha1.Stage `json:"stage"`
	Since time.Time      `json:"since"` // when it was made: the older one goes first
	// Refused: it is not accepted, and begins no node.
	Refused bool `json:"refused,omitempty"`
	// Nodes are those that both mean, by name, with how far the other one is.
	Nodes map[string]v1alpha1.NodeStage `json:"nodes"`
	// ControlPlane are the nodes of the control plane that it holds, by name, with how far it is. nil, too, if the maintenance
	// of the scope is about none.
	ControlPlane map[string]v1alpha1.NodeStage `json:"controlPlane,omitempty"`
}

// DrainRuleFact is a DrainRule or a ClusterDrainRule.
type DrainRuleFact struct {
	// Namespace is that of a DrainRule. Empty: it is a ClusterDrainRule.
	Namespace string                        `json:"namespace,omitempty"`
	Name      string                        `json:"name"`
	Spec      v1alpha1.ClusterDrainRuleSpec `json:"spec"`
}

// ScopedPods implements [Scope].
func (s MaintenanceScope) ScopedPods() []ScopedPod {
	var pods []ScopedPod
	for _, n := range s.Nodes {
		for _, p := range n.Pods {
			pods = append(pods, p.ScopedPod)
		}
	}
	return pods
}

// MaintenanceSteps is what an answer to a [MaintenanceScope] wants besides that pods move. The status is written first, and
// only if nobody has changed the object since; then the nodes are changed in their order; then the pods move. When the
// status cannot be written, nothing else is done, and the maintenance is evaluated again. When a node cannot be changed, that
// is tried again, and pods on other nodes move meanwhile.
type MaintenanceSteps struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// ResourceVersion is that of the object that the answer rests on.
	ResourceVersion string                         `json:"resourceVersion"`
	Status          v1alpha1.NodeMaintenanceStatus `json:"status"`
	Nodes           []NodeStep                     `json:"nodes,omitempty"`
	// Finalizer: true, the object is to have the finalizer of Rehome; false, it is not.
	Finalizer bool `json:"finalizer"`
}

// NodeAction is what is done to a node.
type NodeAction string

// The actions.
const (
	NodeCordon NodeAction = "cordon" // no new pods, with the mark
	NodeReturn NodeAction = "return" // as it was before, without the mark
	NodeMark   NodeAction = "mark"   // only the conditions
)

// NodeStep is one change of a node.
type NodeStep struct {
	Name   string     `json:"name"`
	UID    types.UID  `json:"uid"`
	Action NodeAction `json:"action"`
	// Mark is put on the node with [NodeCordon], and has to be there with [NodeReturn].
	Mark CordonMark `json:"mark,omitzero"`
	// Unschedulable and Marked are how the node was when that was decided. A node that has changed in one of them since is
	// left as it is: what was decided is outdated. nil: nobody had marked it.
	Unschedulable bool        `json:"unschedulable,omitempty"`
	Marked        *CordonMark `json:"marked,omitempty"`
	// Conditions are set on the node: those of Kubernetes for its life cycle, as the node has them not yet.
	Conditions []corev1.NodeCondition `json:"conditions,omitempty"`
}

// What the names of maintenances begin with that are no objects of the API server but entries of a table of the bus, each of
// which is about one node: node/NODE was asked for by a request, and sign/NODE by a sign on the node that the policy names. No
// object of the API server can have a slash in its name.
const (
	requestedPrefix = "node/"
	signPrefix      = "sign/"
)

// RequestedMaintenance is the name of the maintenance of a node that requests ask for.
func RequestedMaintenance(node string) string { return requestedPrefix + node }

// SignMaintenance is the name of the maintenance of a node that a sign on it asks for.
func SignMaintenance(node string) string { return signPrefix + node }

// InTable says whether the maintenance of that name is an entry of the table, and of which node. A name with a slash that is
// none of [RequestedMaintenance] and [SignMaintenance] of a name that a node can have is no name of a maintenance at all.
func InTable(maintenance string) (node string, is bool) {
	node, is = strings.CutPrefix(maintenance, requestedPrefix)
	if !is {
		node, is = strings.CutPrefix(maintenance, signPrefix)
	}
	if !is || !isNodeName(node) {
		return "", false
	}
	return node, true
}

// isNodeName says whether s is a name of a node as the API server takes it: words of a-z, 0-9 and - with dots between them,
// none of which begins or ends with a -.
func isNodeName(s string) bool {
	const plain = "abcdefghijklmnopqrstuvwxyz0123456789"
	for word := range strings.SplitSeq(s, ".") {
		if strings.Trim(word, plain+"-") != "" || strings.Trim(word, "-") != word || word == "" {
			return false
		}
	}
	return len(s) <= 253
}
