package cluster

import (
	"cmp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Pod is the summary of a pod. The zero value is no pod.
type Pod struct {
	Ref schemas.PodRef
	// Workload is the pod's controller, or the Deployment behind its ReplicaSet. It is zero if it has none.
	Workload schemas.ObjectRef
	Node     string // empty means none yet
	Created  time.Time
	// Ready means that it is ready and not terminating.
	Ready bool
	// Leaving means that it is terminating, Ended that it has succeeded or failed.
	Leaving, Ended bool
	// Why is the reason why it has no node or is not ready, from its conditions, or empty if unknown.
	Why string
	// Cost is the cost of moving it, see [policy.MoveCost].
	Cost int64
	// Budgeted means that a PodDisruptionBudget selects it.
	Budgeted bool
}

func (w *Workloads) show(m *member) Pod {
	p := m.pod
	shown := Pod{
		Ref:  schemas.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID},
		Node: p.Spec.NodeName, Created: p.CreationTimestamp.Time, Ready: PodReady(p), Leaving: p.DeletionTimestamp != nil,
		Ended: schemas.Ended(p), Why: why(p), Cost: policy.MoveCost(p), Budgeted: w.selects(p),
	}
	if m.of != nil {
		shown.Workload = m.of.workload
	}
	return shown
}

func podCondition(p *corev1.Pod, of corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == of {
			return c
		}
	}
	return nil
}

func isTrue(c *corev1.PodCondition) bool { return c != nil && c.Status == corev1.ConditionTrue }

// PodReady reports whether a pod runs and is ready, so that budgets count it as healthy.
func PodReady(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && !schemas.Ended(p) && isTrue(podCondition(p, corev1.PodReady))
}

// why returns the reason why a pod has no node or is not ready.
func why(p *corev1.Pod) string {
	if p.Spec.NodeName == "" {
		return message(podCondition(p, corev1.PodScheduled))
	}
	ready := podCondition(p, corev1.PodReady)
	if isTrue(ready) {
		return ""
	}
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range statuses {
			if w := statuses[i].State.Waiting; w != nil {
				return cut(strings.TrimSuffix(w.Reason+": "+w.Message, ": "))
			}
		}
	}
	return message(ready)
}

// message returns the message of a condition, or its reason if it has no message.
func message(c *corev1.PodCondition) string {
	if c == nil {
		return ""
	}
	return cmp.Or(c.Message, c.Reason)
}
