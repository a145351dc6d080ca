package restart

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

// because adds to the reason of a move that is taken back what the scheduler says about the replacement. Without
// an answer nothing is added.
func (m *Method) because(ctx context.Context, d *appsv1.Deployment, back *move.Refusal) *move.Refusal {
	pods, err := m.cfg.Client.CoreV1().Pods(d.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: metav1.FormatLabelSelector(d.Spec.Selector), FieldSelector: "spec.nodeName=",
	})
	if err != nil {
		return back
	}
	return withScheduling(*back, pods.Items)
}

// withScheduling is the refusal with the words of the scheduler about the first of the pods that no node takes, if any.
func withScheduling(refusal move.Refusal, pods []corev1.Pod) *move.Refusal {
	for _, pod := range pods {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				refusal.Reason = schemas.ReasonRestartNoRoom
				refusal.Message += "; pod " + pod.Name + ": " + c.Message
				return &refusal
			}
		}
	}
	return &refusal
}
