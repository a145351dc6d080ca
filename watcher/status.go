package watcher

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
)

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
