package restart

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/component-helpers/resource"

	"github.com/rehome-dev/rehome/actuator/move"
	"github.com/rehome-dev/rehome/schemas"
)

// withinQuotas refuses a pod of which the quotas of its namespace do not admit one more, or a rollout for whose
// ReplicaSet they have no room.
func withinQuotas(c candidate) *move.Refusal {
	more := footprint(c.Pod)
	for _, q := range c.Quotas {
		name, missing := exhausted(q, more, inScope(q.Spec, c.Pod))
		if !missing && c.Method == schemas.MethodRestart {
			name, missing = exhausted(q, replicaSetFootprint(), len(scopes(q.Spec)) == 0)
		}
		if missing {
			used, hard := q.Status.Used[name], q.Status.Hard[name]
			return not(c, schemas.ReasonRestartNoRoom, "resourcequota %s has no room for one more: %s, %s of %s are used",
				q.Name, name, used.String(), hard.String())
		}
	}
	return nil
}

// footprint is what one more pod like this one counts for in a quota, by the names that quotas use.
func footprint(pod *corev1.Pod) corev1.ResourceList {
	one := *resource.NewQuantity(1, resource.DecimalSI)
	out := corev1.ResourceList{corev1.ResourcePods: one, "count/pods": one}
	for name, quantity := range podresources.PodRequests(pod, podresources.PodResourcesOptions{}) {
		out[corev1.ResourceName("requests."+string(name))] = quantity
		if name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage {
			out[name] = quantity // the short form of the same
		}
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			out[name] = quantity
		}
	}
	for name, quantity := range podresources.PodLimits(pod, podresources.PodResourcesOptions{}) {
		out[corev1.ResourceName("limits."+string(name))] = quantity
	}
	return out
}

// replicaSetFootprint is what the ReplicaSet of a new template counts for.
func replicaSetFootprint() corev1.ResourceList {
	return corev1.ResourceList{"count/replicasets.apps": *resource.NewQuantity(1, resource.DecimalSI)}
}

// exhausted returns a resource of the quota, where it applies, of which it does not have that much left.
func exhausted(q corev1.ResourceQuota, more corev1.ResourceList, applies bool) (corev1.ResourceName, bool) {
	if !applies {
		return "", false
	}
	names := make([]corev1.ResourceName, 0, len(q.Status.Hard))
	for name := range q.Status.Hard {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		needed, counts := more[name]
		if !counts {
			continue
		}
		total := q.Status.Used[name].DeepCopy()
		total.Add(needed)
		if total.Cmp(q.Status.Hard[name]) > 0 {
			return name, true
		}
	}
	return "", false
}

// scopes lists what limits a quota to certain pods, old and new form alike.
func scopes(q corev1.ResourceQuotaSpec) []corev1.ScopedResourceSelectorRequirement {
	var out []corev1.ScopedResourceSelectorRequirement
	for _, s := range q.Scopes {
		out = append(out, corev1.ScopedResourceSelectorRequirement{ScopeName: s, Operator: corev1.ScopeSelectorOpExists})
	}
	if q.ScopeSelector != nil {
		out = append(out, q.ScopeSelector.MatchExpressions...)
	}
	return out
}

// inScope says whether a quota counts the pod. A scope that is not known here counts none: then the API server will
// say.
func inScope(q corev1.ResourceQuotaSpec, pod *corev1.Pod) bool {
	for _, s := range scopes(q) {
		if !matchesScope(s, pod) {
			return false
		}
	}
	return true
}

func matchesScope(s corev1.ScopedResourceSelectorRequirement, pod *corev1.Pod) bool {
	bestEffort := pod.Status.QOSClass == corev1.PodQOSBestEffort
	switch s.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return pod.Spec.ActiveDeadlineSeconds != nil
	case corev1.ResourceQuotaScopeNotTerminating:
		return pod.Spec.ActiveDeadlineSeconds == nil
	case corev1.ResourceQuotaScopeBestEffort:
		return bestEffort
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !bestEffort
	case corev1.ResourceQuotaScopePriorityClass:
		return matchesPriority(s, pod.Spec.PriorityClassName)
	}
	return false
}

func matchesPriority(s corev1.ScopedResourceSelectorRequirement, class string) bool {
	switch s.Operator {
	case corev1.ScopeSelectorOpExists:
		return class != ""
	case corev1.ScopeSelectorOpDoesNotExist:
		return class == ""
	case corev1.ScopeSelectorOpIn:
		return slices.Contains(s.Values, class)
	case corev1.ScopeSelectorOpNotIn:
		return !slices.Contains(s.Values, class)
	}
	return false
}
