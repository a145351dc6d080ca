package cluster

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/policy"
)

var _ policy.Facts = (*Cache)(nil)

// Replicas counts the pods that name an owner.
func (c *Cache) Replicas(owner types.UID) int { return c.workloads.replicas(owner) }

// Budgeted says whether a PodDisruptionBudget selects the pod.
func (c *Cache) Budgeted(pod *corev1.Pod) bool { return c.workloads.budgeted(pod) }

// StorageClass is the class that a claim names in its spec.
func (c *Cache) StorageClass(namespace, claim string) (class string, found bool) {
	pvc := get[corev1.PersistentVolumeClaim](c, PersistentVolumeClaims, namespace, claim)
	if pvc == nil {
		return "", false
	}
	return ClassOf(pvc), true
}

// ClassOf is the storage class that a claim names; empty if none.
func ClassOf(pvc *corev1.PersistentVolumeClaim) string {
	if pvc.Spec.StorageClassName == nil {
		return ""
	}
	return *pvc.Spec.StorageClassName
}

// Priority is the value of a PriorityClass. In a process that does not watch them it is higher than any other, so that no pod is
// protected for its priority: the watcher has compared it.
func (c *Cache) Priority(class string) (value int32, found bool) {
	if !c.wants(PriorityClasses) {
		return math.MaxInt32, true
	}
	p := get[schedulingv1.PriorityClass](c, PriorityClasses, "", class)
	if p == nil {
		return 0, false
	}
	return p.Value, true
}

// NamespaceLabels are the labels of a namespace.
func (c *Cache) NamespaceLabels(name string) (of labels.Set, found bool) {
	n := c.Namespace(name)
	if n == nil {
		return nil, false
	}
	return n.Labels, true
}

// Allows says whether a budget allows a disruption now, as far as its status tells.
func Allows(b *policyv1.PodDisruptionBudget) bool {
	return b.Status.DisruptionsAllowed > 0 && b.Status.ObservedGeneration >= b.Generation
}

// BudgetAllows says whether the budget of that name allows a disruption now; a budget that is gone does.
func (c *Cache) BudgetAllows(namespace, name string) bool {
	b := c.Budget(namespace, name)
	return b == nil || Allows(b)
}

// BudgetSelector selects the pods of a budget: of nil, or without a selector, none.
func BudgetSelector(b *policyv1.PodDisruptionBudget) labels.Selector {
	if b == nil || b.Spec.Selector == nil {
		return labels.Nothing()
	}
	return policy.Selects(b.Spec.Selector)
}
