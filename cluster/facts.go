package cluster

import (
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
)

var _ policy.Facts = (*Cache)(nil)

// Replicas returns the number of pods that name an owner.
func (c *Cache) Replicas(owner types.UID) int { return c.workloads.replicas(owner) }

// Budgeted reports whether a PodDisruptionBudget selects the pod.
func (c *Cache) Budgeted(pod *corev1.Pod) bool { return c.workloads.budgeted(pod) }

// StorageClass returns the storage class of a claim.
func (c *Cache) StorageClass(namespace, claim string) (class string, found bool) {
	pvc := get[corev1.PersistentVolumeClaim](c, PersistentVolumeClaims, namespace, claim)
	if pvc == nil {
		return "", false
	}
	return ClassOf(pvc), true
}

// ClassOf returns the storage class that a claim names, or "".
func ClassOf(pvc *corev1.PersistentVolumeClaim) string {
	if pvc.Spec.StorageClassName == nil {
		return ""
	}
	return *pvc.Spec.StorageClassName
}

// Priority returns the value of a PriorityClass.
func (c *Cache) Priority(class string) (value int32, found bool) {
	p := get[schedulingv1.PriorityClass](c, PriorityClasses, "", class)
	if p == nil {
		return 0, false
	}
	return p.Value, true
}

// NamespaceLabels returns the labels of a namespace.
func (c *Cache) NamespaceLabels(name string) (of labels.Set, found bool) {
	n := c.Namespace(name)
	if n == nil {
		return nil, false
	}
	return n.Labels, true
}

// Allows reports whether a budget allows a disruption now, according to its status.
func Allows(b *policyv1.PodDisruptionBudget) bool {
	return b.Status.DisruptionsAllowed > 0 && b.Status.ObservedGeneration >= b.Generation
}

// BudgetAllows reports whether the budget of that name allows a disruption now, or is gone.
func (c *Cache) BudgetAllows(namespace, name string) bool {
	b := c.Budget(namespace, name)
	return b == nil || Allows(b)
}

// BudgetSelector selects the pods of a budget. It selects none for nil, or without a selector.
func BudgetSelector(b *policyv1.PodDisruptionBudget) labels.Selector {
	if b == nil || b.Spec.Selector == nil {
		return labels.Nothing()
	}
	return policy.Selects(b.Spec.Selector)
}
