package candidate

import (
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rehome-dev/rehome/policy"
)

// Containers selects the containers of a pod that count in addition to the regular ones. Sidecars are init containers.
type Containers struct {
	Init, Ephemeral bool
}

// Of iterates over the statuses of the containers that count: regular, then init, then ephemeral ones.
func (c Containers) Of(pod *corev1.Pod) iter.Seq[*corev1.ContainerStatus] {
	return func(yield func(*corev1.ContainerStatus) bool) {
		for i, list := range [...][]corev1.ContainerStatus{
			pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses,
		} {
			if i == 1 && !c.Init || i == 2 && !c.Ephemeral {
				continue
			}
			for j := range list {
				if !yield(&list[j]) {
					return
				}
			}
		}
	}
}

// Restarts returns the sum of the restarts of all containers.
func (c Containers) Restarts(pod *corev1.Pod) int64 {
	var sum int64
	for s := range c.Of(pod) {
		sum += int64(s.RestartCount)
	}
	return sum
}

// Reason returns the first reason, for waiting or for being terminated now, that is among wanted. How a container ended
// before its last restart does not count.
func (c Containers) Reason(pod *corev1.Pod, wanted []string) (reason string, found bool) {
	for s := range c.Of(pod) {
		if w := s.State.Waiting; w != nil && slices.Contains(wanted, w.Reason) {
			return w.Reason, true
		}
		if t := s.State.Terminated; t != nil && slices.Contains(wanted, t.Reason) {
			return t.Reason, true
		}
	}
	return "", false
}

// ExitCode returns the first exit code of a container terminated now that is among wanted.
func (c Containers) ExitCode(pod *corev1.Pod, wanted []int32) (code int32, found bool) {
	for s := range c.Of(pod) {
		if t := s.State.Terminated; t != nil && slices.Contains(wanted, t.ExitCode) {
			return t.ExitCode, true
		}
	}
	return 0, false
}

// Owned reports whether an owner of the pod is of one of the kinds, in any API group.
func Owned(pod *corev1.Pod, kinds []string) bool {
	return slices.ContainsFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool {
		return slices.Contains(kinds, o.Kind)
	})
}

// ValidateKinds returns an error for each entry that is not a kind, a *[policy.FieldError].
func ValidateKinds(kinds []string) error {
	var found policy.Findings
	for i, kind := range kinds {
		if len(validation.IsDNS1035Label(strings.ToLower(kind))) > 0 {
			found.Add(policy.Item(i), kind, "is not a kind", "write it without its group, such as ReplicaSet")
		}
	}
	return found.Err()
}
