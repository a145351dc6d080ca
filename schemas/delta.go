package schemas

import (
	corev1 "k8s.io/api/core/v1"
)

// DeltaType is the CloudEvents type of a [Delta].
const DeltaType = "dev.rehome.delta.v1"

// DeltaKind says what changed: the kind of object and the aspect, which are also two tokens of the NATS subject.
type DeltaKind string

// The changes that Rehome observes.
const (
	NodeAdded         DeltaKind = "node.added"         // a node joined
	NodeRemoved       DeltaKind = "node.removed"       // a node is gone
	NodeReady         DeltaKind = "node.ready"         // its Ready condition changed its status
	NodeLabels        DeltaKind = "node.labels"        // labels were added, removed or changed
	NodeTaints        DeltaKind = "node.taints"        // taints were added, removed or changed
	NodeUnschedulable DeltaKind = "node.unschedulable" // it was cordoned or uncordoned
	NodeAllocatable   DeltaKind = "node.allocatable"   // what it offers to pods changed
	NodeLoad          DeltaKind = "node.load"          // by its measured load, pods should leave it now, or no more

	PodScheduled DeltaKind = "pod.scheduled" // a pod got its node
	PodDeleted   DeltaKind = "pod.deleted"   // a pod is gone
	PodLabels    DeltaKind = "pod.labels"    // labels were added, removed or changed
	PodRestarted DeltaKind = "pod.restarted" // a container's restart count rose
	PodFailed    DeltaKind = "pod.failed"    // its phase became Failed
	PodStatus    DeltaKind = "pod.status"    // its phase, reason, a condition or the state of a container changed
)

// DeltaKinds lists every kind, nodes first.
func DeltaKinds() []DeltaKind {
	return []DeltaKind{
		NodeAdded, NodeRemoved, NodeReady, NodeLabels, NodeTaints, NodeUnschedulable, NodeAllocatable, NodeLoad,
		PodScheduled, PodDeleted, PodLabels, PodRestarted, PodFailed, PodStatus,
	}
}

// Delta says that one aspect of one object changed. It is thin on purpose: names, and the aspect before and after.
// Two aspects that changed in one update are two deltas.
type Delta struct {
	Kind   DeltaKind `json:"kind"`
	Object ObjectRef `json:"object"`
	// Node is the node that a pod was on; empty for a delta about a node.
	Node string `json:"node,omitempty"`
	// Before and After hold only the aspect that changed. Before is nil when there was nothing, After when nothing is left.
	Before *State `json:"before,omitempty"`
	After  *State `json:"after,omitempty"`
}

// State is one aspect of an object at one moment; only the field of that aspect is set. Of labels and allocatable
// resources only the entries that differ are given; taints are given whole.
type State struct {
	Ready         corev1.ConditionStatus `json:"ready,omitempty"`
	Labels        map[string]string      `json:"labels,omitempty"`
	Taints        []corev1.Taint         `json:"taints,omitempty"`
	Unschedulable *bool                  `json:"unschedulable,omitempty"`
	Allocatable   corev1.ResourceList    `json:"allocatable,omitempty"`
	// Load is how much of what the node offers is in use by measurement, in whole percent by resource, [LoadMetric] included.
	Load map[corev1.ResourceName]int64 `json:"load,omitempty"`
	// Restarts is the sum over all containers, init containers included.
	Restarts *int32          `json:"restarts,omitempty"`
	Phase    corev1.PodPhase `json:"phase,omitempty"`
	// Reason is the pod's status.reason, such as Evicted or NodeAffinity.
	Reason string `json:"reason,omitempty"`
	// Containers are the states of the containers that differ, ephemeral ones included, by name, such as
	// Waiting:CrashLoopBackOff, Running or, with the exit code, Terminated:OOMKilled:137.
	Containers map[string]string `json:"containers,omitempty"`
	// Conditions are the statuses of the conditions that differ in status or reason, by type.
	Conditions map[corev1.PodConditionType]corev1.ConditionStatus `json:"conditions,omitempty"`
}

// EventType returns [DeltaType].
func (Delta) EventType() string { return DeltaType }

// About is the path of the object, such as nodes/worker-1.
func (d Delta) About() string { return d.Object.about() }

// Channel is rehome.delta.node.ASPECT.NAME or rehome.delta.pod.ASPECT.NAMESPACE.NAME.
func (d Delta) Channel() string {
	if d.Object.Namespace == "" {
		return channel("delta."+string(d.Kind), d.Object.Name)
	}
	return channel("delta."+string(d.Kind), d.Object.Namespace, d.Object.Name)
}
