package restart

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/component-helpers/resource"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

// withinQuotas refuses a pod when a quota of its namespace does not admit one more like it. A quota for priority classes or other
// objects is not looked at: when it forbids the replacement, the Deployment has the condition ReplicaFailure, and the move is
// taken back.
func withinQuotas(c candidate) *move.Refusal {
	more := usageOf(c.Pod)
	for _, q := range c.Quotas {
		if q.Spec.ScopeSelector != nil || slices.ContainsFunc(q.Spec.Scopes, func(s corev1.ResourceQuotaScope) bool {
			return !inScope(s, c.Pod)
		}) {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(q.Status.Hard)) {
			needed, counts := more[name]
			used, hard := q.Status.Used[name], q.Status.Hard[name]
			if total := used.DeepCopy(); counts {
				if total.Add(needed); total.Cmp(hard) > 0 {
					return not(c, schemas.ReasonRestartNoRoom, "resourcequota %s has no room for one more: %s, %s of %s are used",
						q.Name, name, used.String(), hard.String())
				}
			}
		}
	}
	return nil
}

// inScope says whether the pod is in the scope of a quota. It is in none that is unknown here.
func inScope(s corev1.ResourceQuotaScope, pod *corev1.Pod) bool {
	switch s {
	case corev1.ResourceQuotaScopeTerminating:
		return pod.Spec.ActiveDeadlineSeconds != nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return pod.Spec.ActiveDeadlineSeconds == nil
	case corev1.ResourceQuotaScopeBestEffort:
		return pod.Status.QOSClass == corev1.PodQOSBestEffort
	case corev1.ResourceQuotaScopeNotBestEffort:
		return pod.Status.QOSClass != corev1.PodQOSBestEffort
	}
	return false
}

// usageOf is the usage of one more pod like this one, by the names that quotas use.
func usageOf(pod *corev1.Pod) corev1.ResourceList {
	one := *resource.NewQuantity(1, resource.DecimalSI)
	out := corev1.ResourceList{corev1.ResourcePods: one, "count/pods": one}
	for name, quantity := range podresources.PodRequests(pod, podresources.PodResourcesOptions{}) {
		out["requests."+name] = quantity
		if !strings.Contains(string(name), "/") { // native resources have a short name too
			out[name] = quantity
		}
	}
	for name, quantity := range podresources.PodLimits(pod, podresources.PodResourcesOptions{}) {
		out["limits."+name] = quantity
	}
	return out
}
