package eviction

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rehome-dev/rehome/cluster"
	"github.com/rehome-dev/rehome/schemas"
)

// Matching returns the budgets of the pod's namespace that select it, in the given order. An invalid selector matches
// nothing, as in the API server.
func Matching(pod *corev1.Pod, budgets []policyv1.PodDisruptionBudget) []policyv1.PodDisruptionBudget {
	var out []policyv1.PodDisruptionBudget
	for _, b := range budgets {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err == nil && b.Namespace == pod.Namespace && selector.Matches(labels.Set(pod.Labels)) {
			out = append(out, b)
		}
	}
	return out
}

// Checked returns the budgets that the API server checks before it evicts the pod. If there are several, it refuses the
// eviction. It evicts without a check a pod that is Pending, ended, or terminating, and a pod that is not ready if its
// only budget has enough healthy pods or allows this by its unhealthyPodEvictionPolicy.
func Checked(pod *corev1.Pod, budgets []policyv1.PodDisruptionBudget) []policyv1.PodDisruptionBudget {
	if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodPending || schemas.Ended(pod) {
		return nil
	}
	matching := Matching(pod, budgets)
	if len(matching) == 1 && !cluster.PodReady(pod) && unhealthyMayGo(&matching[0]) {
		return nil
	}
	return matching
}

// unhealthyMayGo reports whether the budget allows to evict pods that are not ready.
func unhealthyMayGo(b *policyv1.PodDisruptionBudget) bool {
	if always := b.Spec.UnhealthyPodEvictionPolicy; always != nil && *always == policyv1.AlwaysAllow {
		return true
	}
	return b.Status.DesiredHealthy > 0 && b.Status.CurrentHealthy >= b.Status.DesiredHealthy
}

// Blockers returns the matching budgets that allow no disruption now, with a description. If all of them allow one by
// now, because one was freed since the call, it returns all: one of them was the cause. Without a budget it returns the
// given message.
func Blockers(matching []policyv1.PodDisruptionBudget, message string) ([]schemas.ObjectRef, string) {
	var holding []policyv1.PodDisruptionBudget
	for _, b := range matching {
		if b.Status.DisruptionsAllowed <= 0 || b.Status.ObservedGeneration < b.Generation {
			holding = append(holding, b)
		}
	}
	if len(holding) == 0 {
		holding = matching
	}
	if len(holding) == 0 {
		return nil, message
	}
	refs := make([]schemas.ObjectRef, len(holding))
	words := make([]string, len(holding))
	for i, b := range holding {
		refs[i] = ref(b)
		words[i] = fmt.Sprintf("poddisruptionbudget %s/%s: %s", b.Namespace, b.Name, numbers(b))
	}
	return refs, strings.Join(words, "; ")
}

func ref(b policyv1.PodDisruptionBudget) schemas.ObjectRef {
	return schemas.ObjectRef{Kind: "PodDisruptionBudget", Namespace: b.Namespace, Name: b.Name, UID: b.UID}
}

// numbers describes why a budget allows no disruption.
func numbers(b policyv1.PodDisruptionBudget) string {
	switch s := b.Status; {
	case s.ObservedGeneration < b.Generation:
		return "not yet counted by the disruption controller"
	case s.DisruptionsAllowed > 0:
		return fmt.Sprintf("freed meanwhile, %d of %d healthy pods needed", s.DesiredHealthy, s.CurrentHealthy)
	case s.CurrentHealthy < s.DesiredHealthy:
		return fmt.Sprintf("%d healthy pods, %d needed", s.CurrentHealthy, s.DesiredHealthy)
	default:
		return fmt.Sprintf("%d of %d healthy pods needed", s.DesiredHealthy, s.CurrentHealthy)
	}
}
