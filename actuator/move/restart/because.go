package restart

import (
	"context"

	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

// because adds to the reason of a move that is taken back what the scheduler says about the replacement. A cluster that
// cannot be asked adds nothing.
func (r *Method) because(ctx context.Context, d *appsv1.Deployment, back *move.Refusal) *move.Refusal {
	pods, err := r.cfg.Client.CoreV1().Pods(d.Namespace).List(ctx, metav1.ListOptions{
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

// where says in words where the newest pod of the Deployment runs, empty if that cannot be said.
func (r *Method) where(ctx context.Context, s state, v view) string {
	if v.Deployment == nil {
		return ""
	}
	pods, err := r.cfg.Client.CoreV1().Pods(s.Pod.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: metav1.FormatLabelSelector(v.Deployment.Spec.Selector),
	})
	if err != nil {
		return ""
	}
	return placed(s, pods.Items)
}

// placed says in words where the newest of the pods runs that were made since the move began.
func placed(s state, pods []corev1.Pod) string {
	old := func(p corev1.Pod) bool {
		return p.DeletionTimestamp != nil || p.Spec.NodeName == "" || p.UID == s.Pod.UID ||
			p.CreationTimestamp.Time.Before(s.At.Truncate(time.Second))
	}
	pods = slices.DeleteFunc(slices.Clone(pods), old)
	if len(pods) == 0 {
		return ""
	}
	newest := slices.MaxFunc(pods, func(a, b corev1.Pod) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	if newest.Spec.NodeName == s.Node {
		return "; pod " + newest.Name + " runs on the same node again, " + s.Node
	}
	return "; pod " + newest.Name + " runs on node " + newest.Spec.NodeName
}
