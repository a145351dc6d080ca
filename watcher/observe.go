package watcher

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/rehome-dev/rehome/schemas"
)

// ObserveNode compares two states of a node and returns one delta for each aspect that changed, in the order of
// [schemas.DeltaKinds]. old is nil for an added node, new for a removed one. A node that was replaced under the same
// name is both removed and added. It is pure.
func ObserveNode(old, new *corev1.Node) []schemas.Delta {
	switch {
	case old == nil && new == nil:
		return nil
	case old == nil:
		return []schemas.Delta{{Kind: schemas.NodeAdded, Object: nodeRef(new)}}
	case new == nil:
		return []schemas.Delta{{Kind: schemas.NodeRemoved, Object: nodeRef(old)}}
	case old.UID != new.UID:
		return append(ObserveNode(old, nil), ObserveNode(nil, new)...)
	}
	var deltas []schemas.Delta
	changed := func(kind schemas.DeltaKind, before, after *schemas.State) {
		if before != nil || after != nil {
			deltas = append(deltas, schemas.Delta{Kind: kind, Object: nodeRef(new), Before: before, After: after})
		}
	}
	if a, b := readiness(old), readiness(new); a != b {
		changed(schemas.NodeReady, &schemas.State{Ready: a}, &schemas.State{Ready: b})
	}
	changed(schemas.NodeLabels, labelsNotIn(old.Labels, new.Labels), labelsNotIn(new.Labels, old.Labels))
	if a, b := old.Spec.Taints, new.Spec.Taints; !equality.Semantic.DeepEqual(a, b) {
		changed(schemas.NodeTaints, stateIf(len(a) > 0, schemas.State{Taints: a}), stateIf(len(b) > 0, schemas.State{Taints: b}))
	}
	if a, b := old.Spec.Unschedulable, new.Spec.Unschedulable; a != b {
		changed(schemas.NodeUnschedulable, &schemas.State{Unschedulable: &a}, &schemas.State{Unschedulable: &b})
	}
	a, b := old.Status.Allocatable, new.Status.Allocatable
	changed(schemas.NodeAllocatable, allocatableNotIn(a, b), allocatableNotIn(b, a))
	return deltas
}

// ObservePod compares two states of a pod like [ObserveNode]. It is pure.
func ObservePod(old, new *corev1.Pod) []schemas.Delta {
	switch {
	case old == nil && new == nil:
		return nil
	case new == nil:
		return []schemas.Delta{podDelta(schemas.PodDeleted, old)}
	case old == nil:
		return podChanges(&corev1.Pod{ObjectMeta: new.ObjectMeta}, new)
	case old.UID != new.UID:
		return append(ObservePod(old, nil), ObservePod(nil, new)...)
	}
	return podChanges(old, new)
}

// podChanges returns the deltas between two states of one pod.
func podChanges(old, new *corev1.Pod) []schemas.Delta {
	var deltas []schemas.Delta
	changed := func(kind schemas.DeltaKind, before, after *schemas.State) {
		d := podDelta(kind, new)
		d.Before, d.After = before, after
		deltas = append(deltas, d)
	}
	bound := old.Spec.NodeName != "" // before that no scope contains the pod; binding itself sets labels and a condition
	if !bound && new.Spec.NodeName != "" {
		changed(schemas.PodScheduled, nil, nil)
	}
	if a, b := labelsNotIn(old.Labels, new.Labels), labelsNotIn(new.Labels, old.Labels); bound && (a != nil || b != nil) {
		changed(schemas.PodLabels, a, b)
	}
	if a, b := restarts(old), restarts(new); b > a {
		changed(schemas.PodRestarted, &schemas.State{Restarts: &a}, &schemas.State{Restarts: &b})
	}
	if a, b := old.Status.Phase, new.Status.Phase; a != corev1.PodFailed && b == corev1.PodFailed {
		changed(schemas.PodFailed, stateIf(a != "", schemas.State{Phase: a}), &schemas.State{Phase: b, Reason: new.Status.Reason})
	}
	if bound {
		before, after := statusOf(old), statusOf(new)
		if a, b := before.notIn(after), after.notIn(before); a != nil || b != nil {
			changed(schemas.PodStatus, a, b)
		}
	}
	return deltas
}

func nodeRef(n *corev1.Node) schemas.ObjectRef {
	return *refTo("Node", n)
}

func podDelta(kind schemas.DeltaKind, p *corev1.Pod) schemas.Delta {
	return schemas.Delta{Kind: kind, Object: *refTo("Pod", p), Node: p.Spec.NodeName}
}

// readiness returns the status of the Ready condition, or Unknown without one.
func readiness(n *corev1.Node) corev1.ConditionStatus {
	if _, ready := nodeutil.GetNodeCondition(&n.Status, corev1.NodeReady); ready != nil {
		return ready.Status
	}
	return corev1.ConditionUnknown
}

func restarts(p *corev1.Pod) int32 {
	var sum int32
	for _, statuses := range [...][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range statuses {
			sum += statuses[i].RestartCount
		}
	}
	return sum
}

// The functions below return the entries of one side that the other side lacks or has with another value, or nil.

func stateIf(some bool, s schemas.State) *schemas.State {
	if !some {
		return nil
	}
	return &s
}

func labelsNotIn(all, other map[string]string) *schemas.State {
	left := notIn(all, other, equal)
	return stateIf(left != nil, schemas.State{Labels: left})
}

func allocatableNotIn(all, other corev1.ResourceList) *schemas.State {
	left := notIn(all, other, func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })
	return stateIf(left != nil, schemas.State{Allocatable: left})
}

// podStatus is the part of a status that is compared. It omits times and messages.
type podStatus struct {
	*corev1.PodStatus
	containers map[string]string
	conditions map[corev1.PodConditionType]condition
}

func statusOf(p *corev1.Pod) podStatus {
	return podStatus{&p.Status, containerStates(p), conditions(p)}
}

func (s podStatus) notIn(other podStatus) *schemas.State {
	var state schemas.State
	if s.Phase != other.Phase {
		state.Phase = s.Phase
	}
	if s.Reason != other.Reason {
		state.Reason = s.Reason
	}
	state.Containers = notIn(s.containers, other.containers, equal)
	for kind, c := range notIn(s.conditions, other.conditions, equal) {
		if state.Conditions == nil {
			state.Conditions = map[corev1.PodConditionType]corev1.ConditionStatus{}
		}
		state.Conditions[kind] = c.status
	}
	return stateIf(state.Phase != "" || state.Reason != "" || state.Containers != nil || state.Conditions != nil, state)
}

// condition is the part of a condition that is compared.
type condition struct {
	status corev1.ConditionStatus
	reason string
}

func conditions(p *corev1.Pod) map[corev1.PodConditionType]condition {
	all := make(map[corev1.PodConditionType]condition, len(p.Status.Conditions))
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		all[c.Type] = condition{c.Status, c.Reason}
	}
	return all
}

// containerStates returns the states of the containers of a pod by name.
func containerStates(p *corev1.Pod) map[string]string {
	all := map[string]string{}
	for _, statuses := range [...][]corev1.ContainerStatus{
		p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses,
	} {
		for i := range statuses {
			switch s := statuses[i].State; {
			case s.Waiting != nil:
				all[statuses[i].Name] = "Waiting:" + s.Waiting.Reason
			case s.Terminated != nil:
				all[statuses[i].Name] = fmt.Sprintf("Terminated:%s:%d", s.Terminated.Reason, s.Terminated.ExitCode)
			case s.Running != nil:
				all[statuses[i].Name] = "Running"
			}
		}
	}
	return all
}

func equal[V comparable](a, b V) bool { return a == b }

func notIn[K comparable, V any](all, other map[K]V, same func(a, b V) bool) map[K]V {
	var left map[K]V
	for k, v := range all {
		if o, has := other[k]; has && same(v, o) {
			continue
		}
		if left == nil {
			left = map[K]V{}
		}
		left[k] = v
	}
	return left
}
