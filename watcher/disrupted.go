package watcher

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// undisrupted is after which time the control plane clears the condition DisruptionTarget of a pod that was not deleted
// after all, as the documentation of Kubernetes has it.
const undisrupted = 2 * time.Minute

// disrupted is what protects a pod that the control plane is about to delete: an eviction first sets the condition
// DisruptionTarget and deletes the pod a moment later, and whoever is asked in between would want it moved once more. When
// it is not deleted, b is to be built again.
func disrupted(p *corev1.Pod, now time.Time, b *built) (schemas.Protection, bool) {
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		if c.Type != corev1.DisruptionTarget || c.Status != corev1.ConditionTrue {
			continue
		}
		end := c.LastTransitionTime.Add(undisrupted)
		if !end.After(now) {
			return schemas.Protection{}, false
		}
		b.later(end, now)
		return schemas.Protection{Rule: policy.TerminatingPods, Detail: "it is about to be deleted: " + c.Reason}, true
	}
	return schemas.Protection{}, false
}
