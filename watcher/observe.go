package watcher

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/rehome-dev/rehome/schemas"
)

// ObserveNode says what changed from old to new, one delta for each aspect, in the order of [schemas.DeltaKinds]. old
// is nil for a node that joined, new for one that is gone; a node that was replaced by another of the same name is
// both. It is pure.
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
		deltas = append(deltas, schemas.Delta{Kind: kind, Object: nodeRef(new), Before: before, After: after})
	}
	if a, b := readiness(old), readiness(new); a != b {
		changed(schemas.NodeReady, &schemas.State{Ready: a}, &schemas.State{Ready: b})
	}
	if before, after := labelDifference(old.Labels, new.Labels); before != nil || after != nil {
		changed(schemas.NodeLabels, before, after)
	}
	if !equality.Semantic.DeepEqual(old.Spec.Taints, new.Spec.Taints) {
		changed(schemas.NodeTaints, taints(old), taints(new))
	}
	if a, b := old.Spec.Unschedulable, new.Spec.Unschedulable; a != b {
		changed(schemas.NodeUnschedulable, &schemas.State{Unschedulable: &a}, &schemas.State{Unschedulable: &b})
	}
	if before, after := resourceDifference(old.Status.Allocatable, new.Status.Allocatable); before != nil || after != nil {
		changed(schemas.NodeAllocatable, before, after)
	}
	return deltas
}

// ObservePod says what changed from old to new, one delta for each aspect, in the order of [schemas.DeltaKinds]. old is
// nil for a new pod, new for one that is gone. It is pure.
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

// podChanges are the deltas between two states of one pod.
func podChanges(old, new *corev1.Pod) []schemas.Delta {
	var deltas []schemas.Delta
	changed := func(kind schemas.DeltaKind, before, after *schemas.State) {
		d := podDelta(kind, new)
		d.Before, d.After = before, after
		deltas = append(deltas, d)
	}
	bound := old.Spec.NodeName != "" // before that no scope holds the pod; binding itself sets labels and a condition
	if !bound && new.Spec.NodeName != "" {
		changed(schemas.PodScheduled, nil, nil)
	}
	if before, after := labelDifference(old.Labels, new.Labels); bound && (before != nil || after != nil) {
		changed(schemas.PodLabels, before, after)
	}
	if a, b := restarts(old), restarts(new); b > a {
		changed(schemas.PodRestarted, &schemas.State{Restarts: &a}, &schemas.State{Restarts: &b})
	}
	if before, after := failure(old, new); after != nil {
		changed(schemas.PodFailed, before, after)
	}
	if before, after := statusDifference(old, new); bound && (before != nil || after != nil) {
		changed(schemas.PodStatus, before, after)
	}
	return deltas
}

// failure gives the phases of a pod that has just failed; nil for any other.
func failure(old, new *corev1.Pod) (before, after *schemas.State) {
	if old.Status.Phase == corev1.PodFailed || new.Status.Phase != corev1.PodFailed {
		return nil, nil
	}
	if old.Status.Phase != "" {
		before = &schemas.State{Phase: old.Status.Phase}
	}
	return before, &schemas.State{Phase: corev1.PodFailed, Reason: new.Status.Reason}
}

func nodeRef(n *corev1.Node) schemas.ObjectRef {
	return schemas.ObjectRef{Kind: "Node", Name: n.Name, UID: n.UID}
}

func podDelta(kind schemas.DeltaKind, p *corev1.Pod) schemas.Delta {
	return schemas.Delta{
		Kind:   kind,
		Object: schemas.ObjectRef{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID},
		Node:   p.Spec.NodeName,
	}
}

// readiness is the status of the Ready condition; a node that has none is of unknown readiness.
func readiness(n *corev1.Node) corev1.ConditionStatus {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return corev1.ConditionUnknown
}

func taints(n *corev1.Node) *schemas.State {
	if len(n.Spec.Taints) == 0 {
		return nil
	}
	return &schemas.State{Taints: n.Spec.Taints}
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

// labelDifference gives the labels that differ, on each side; nil for a side that has none of them.
func labelDifference(old, new map[string]string) (before, after *schemas.State) {
	if maps.Equal(old, new) {
		return nil, nil
	}
	return labelsNotIn(old, new), labelsNotIn(new, old)
}

func labelsNotIn(all, other map[string]string) *schemas.State {
	left := notIn(all, other)
	if left == nil {
		return nil
	}
	return &schemas.State{Labels: left}
}

// resourceDifference gives the resources whose quantities differ, on each side; nil for a side that has none of them.
func resourceDifference(old, new corev1.ResourceList) (before, after *schemas.State) {
	if reflect.DeepEqual(old, new) {
		return nil, nil
	}
	return resourcesNotIn(old, new), resourcesNotIn(new, old)
}

func resourcesNotIn(all, other corev1.ResourceList) *schemas.State {
	left := corev1.ResourceList{}
	for name, q := range all {
		if o, ok := other[name]; !ok || q.Cmp(o) != 0 {
			left[name] = q
		}
	}
	if len(left) == 0 {
		return nil
	}
	return &schemas.State{Allocatable: left}
}

// statusDifference gives what differs of the phase, the reason, the conditions and the states of the containers, on
// each side; nil for a side that has none of it. Times and messages alone are no difference.
func statusDifference(old, new *corev1.Pod) (before, after *schemas.State) {
	a, b := statusOf(old), statusOf(new)
	if a.Phase == b.Phase {
		a.Phase, b.Phase = "", ""
	}
	if a.Reason == b.Reason {
		a.Reason, b.Reason = "", ""
	}
	a.Containers, b.Containers = notIn(a.Containers, b.Containers), notIn(b.Containers, a.Containers)
	a.Conditions, b.Conditions = conditionsNotIn(old, new), conditionsNotIn(new, old)
	return orNil(a), orNil(b)
}

// orNil is nil for a status that says nothing.
func orNil(s schemas.State) *schemas.State {
	if s.Phase == "" && s.Reason == "" && s.Containers == nil && s.Conditions == nil {
		return nil
	}
	return &s
}

// statusOf is what a pod's status says, as far as strategies look at it, without its conditions.
func statusOf(p *corev1.Pod) schemas.State {
	s := schemas.State{Phase: p.Status.Phase, Reason: p.Status.Reason}
	for _, statuses := range [...][]corev1.ContainerStatus{
		p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses,
	} {
		for i := range statuses {
			if state := containerState(statuses[i].State); state != "" {
				if s.Containers == nil {
					s.Containers = map[string]string{}
				}
				s.Containers[statuses[i].Name] = state
			}
		}
	}
	return s
}

// conditionsNotIn gives the statuses of the conditions that other does not have, or has with another status or for
// another reason; nil for none.
func conditionsNotIn(p, other *corev1.Pod) map[corev1.PodConditionType]corev1.ConditionStatus {
	var left map[corev1.PodConditionType]corev1.ConditionStatus
	for _, c := range p.Status.Conditions {
		same := func(o corev1.PodCondition) bool {
			return o.Type == c.Type && o.Status == c.Status && o.Reason == c.Reason
		}
		if slices.ContainsFunc(other.Status.Conditions, same) {
			continue
		}
		if left == nil {
			left = map[corev1.PodConditionType]corev1.ConditionStatus{}
		}
		left[c.Type] = c.Status
	}
	return left
}

func containerState(s corev1.ContainerState) string {
	switch {
	case s.Waiting != nil:
		return "Waiting:" + s.Waiting.Reason
	case s.Terminated != nil:
		return fmt.Sprintf("Terminated:%s:%d", s.Terminated.Reason, s.Terminated.ExitCode)
	case s.Running != nil:
		return "Running"
	}
	return ""
}

// notIn returns the entries of all that other does not have or has with another value; nil for none.
func notIn[K comparable, V comparable](all, other map[K]V) map[K]V {
	var left map[K]V
	for k, v := range all {
		if w, ok := other[k]; !ok || v != w {
			if left == nil {
				left = map[K]V{}
			}
			left[k] = v
		}
	}
	return left
}
