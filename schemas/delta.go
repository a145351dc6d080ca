package schemas

import (
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// DeltaType is the CloudEvents type of a [Delta].
const DeltaType = "dev.rehome.delta.v1"

// DeltaKind is what changed: the kind of the object and the aspect. Both are tokens of the NATS subject.
type DeltaKind string

// The changes that Rehome publishes.
const (
	NodeAdded         DeltaKind = "node.added"         // a node joined
	NodeRemoved       DeltaKind = "node.removed"       // a node is gone
	NodeReady         DeltaKind = "node.ready"         // the status of its Ready condition changed
	NodeLabels        DeltaKind = "node.labels"        // labels were added, removed, or changed
	NodeTaints        DeltaKind = "node.taints"        // taints were added, removed, or changed
	NodeUnschedulable DeltaKind = "node.unschedulable" // it was cordoned or uncordoned
	NodeAllocatable   DeltaKind = "node.allocatable"   // its allocatable resources changed
	NodeLoad          DeltaKind = "node.load"          // it became overloaded by measurement, or is no longer

	PodScheduled DeltaKind = "pod.scheduled" // a pod was bound to a node
	PodDeleted   DeltaKind = "pod.deleted"   // a pod is gone
	PodLabels    DeltaKind = "pod.labels"    // labels were added, removed, or changed
	PodRestarted DeltaKind = "pod.restarted" // the restart count of a container increased
	PodFailed    DeltaKind = "pod.failed"    // its phase became Failed
	PodStatus    DeltaKind = "pod.status"    // its phase, its reason, a condition, or the state of a container changed
)

// DeltaKinds returns every kind, nodes first.
func DeltaKinds() []DeltaKind {
	return []DeltaKind{
		NodeAdded, NodeRemoved, NodeReady, NodeLabels, NodeTaints, NodeUnschedulable, NodeAllocatable, NodeLoad,
		PodScheduled, PodDeleted, PodLabels, PodRestarted, PodFailed, PodStatus,
	}
}

var _ = define[Delta]("watcher, operator", nil, Prefix+".delta.node.ASPECT.NAME", Prefix+".delta.pod.ASPECT.NAMESPACE.NAME")

// Delta is a change of one aspect of one object. It has only names and the aspect before and after. If one update changes two
// aspects, there are two deltas.
//
//nolint:lll // the generator reads a condition from one line
//schema:allOf {"if":{"properties":{"kind":{"pattern":"^node\\."}}},"then":{"properties":{"object":{"properties":{"kind":{"const":"Node"}}},"node":{"$ref":"#/$defs/later"}}}}
//nolint:lll // the generator reads a condition from one line
//schema:allOf {"if":{"properties":{"kind":{"pattern":"^pod\\."}}},"then":{"properties":{"object":{"properties":{"kind":{"const":"Pod"}},"required":["namespace"]}}}}
type Delta struct {
	Kind DeltaKind `json:"kind"`
	// Object is the node or the pod.
	Object ObjectRef `json:"object"`
	// Node is the node of a pod. It is absent for a node, and for a pod without a node.
	Node string `json:"node,omitempty"`
	// Before and After have only the changed aspect. Before is nil if there was no value, and After if there is none now.
	Before *State `json:"before,omitempty"`
	After  *State `json:"after,omitempty"`
}

// State is one aspect of an object at one time. Only the field of that aspect is set. Labels and allocatable resources have only
// the entries that differ; taints are complete.
type State struct {
	// Ready is the status of the node condition with this name.
	Ready corev1.ConditionStatus `json:"ready,omitempty"`
	// Labels are the labels that differ. An added label is only in the state after the change, and a removed one only in the state
	// before.
	Labels map[string]string `json:"labels,omitempty" empty:"true"`
	// Taints are all taints of a node.
	Taints []corev1.Taint `json:"taints,omitempty"`
	// Unschedulable: the node is cordoned.
	Unschedulable *bool `json:"unschedulable,omitempty"`
	// Allocatable has the resources that differ.
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
	// Load is the measured usage of the allocatable resources, in whole percent by resource, including [LoadMetric].
	Load map[corev1.ResourceName]int64 `json:"load,omitempty"`
	// Restarts is the sum over all containers, including init containers.
	Restarts *int32 `json:"restarts,omitempty"`
	// Phase is the status.phase of the pod.
	Phase corev1.PodPhase `json:"phase,omitempty"`
	// Reason is the status.reason of the pod, such as Evicted or NodeAffinity.
	Reason string `json:"reason,omitempty"`
	// Containers has the states of the containers that differ, including ephemeral ones, by name, such as
	// Waiting:CrashLoopBackOff, Running, or, with the exit code, Terminated:OOMKilled:137.
	Containers map[string]string `json:"containers,omitempty"`
	// Conditions has the statuses of the conditions that differ in status or reason, by type.
	Conditions map[corev1.PodConditionType]corev1.ConditionStatus `json:"conditions,omitempty"`
}

// EventType returns [DeltaType].
func (Delta) EventType() string { return DeltaType }

// About returns the path of the object, such as nodes/worker-1.
func (d Delta) About() string { return d.Object.about() }

// Channel returns rehome.delta.node.ASPECT.NAME or rehome.delta.pod.ASPECT.NAMESPACE.NAME.
func (d Delta) Channel() string {
	if d.Object.Namespace == "" {
		return channel("delta."+string(d.Kind), d.Object.Name)
	}
	return channel("delta."+string(d.Kind), d.Object.Namespace, d.Object.Name)
}

// Describe returns the object, such as node/worker-1, and the aspect before and after the change.
func (d Delta) Describe() (about, text string) {
	_, aspect, _ := strings.Cut(string(d.Kind), ".")
	if d.Before == nil && d.After == nil {
		return d.Object.String(), aspect
	}
	return d.Object.String(), aspect + ": " + d.Before.describe() + " → " + d.After.describe()
}

func (s *State) describe() string {
	if s == nil {
		return "none"
	}
	if len(s.Taints) > 0 {
		var list []string
		for _, t := range s.Taints {
			list = append(list, t.ToString())
		}
		return strings.Join(list, ", ")
	}
	line, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return strings.Trim(string(line), "{}")
}
