// Package placement holds what several strategies ask about a pod and the node that it runs on, or could run on.
package placement

import (
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"

	"github.com/rehome-dev/rehome/schemas"
)

// Movable says whether the pod has not ended, is not on its way out, and is not protected.
func Movable(p *schemas.ScopedPod) bool {
	return !Leaves(&p.Pod) && len(p.Protected) == 0
}

// Leaves says whether the pod has ended or is being deleted.
func Leaves(pod *corev1.Pod) bool {
	return schemas.Ended(pod) || pod.DeletionTimestamp != nil
}

// Ready says whether the node's kubelet answers. A node that does not say counts as ready, as in the peer.
func Ready(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			return false
		}
	}
	return true
}

// Tolerates says whether one of the tolerations tolerates the taint. It is the scheduler's own rule, with the operators Gt
// and Lt. A taint with the effect PreferNoSchedule is one like the others.
func Tolerates(tolerations []corev1.Toleration, taint *corev1.Taint) bool {
	return asked(schedulingv1.TolerationsTolerateTaint, tolerations, taint)
}

// asked calls the rule. L is the rule's logger; its zero value writes nothing, and being inferred it spares this package
// to import a logger.
func asked[L any](rule func(L, []corev1.Toleration, *corev1.Taint, bool) bool,
	tolerations []corev1.Toleration, taint *corev1.Taint) bool {
	var silent L
	return rule(silent, tolerations, taint, true)
}
