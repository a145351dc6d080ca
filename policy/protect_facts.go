package policy

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/schemas"
)

// The rules that need to know more than the pod. Each says what it found, or nothing when it does not apply. Without
// facts none of them applies.

// priorityOfClass is for a threshold that is the name of a class. One that does not exist protects every pod: where the
// threshold is meant to be is not known.
func (e Evictor) priorityOfClass(pod *corev1.Pod, facts Facts) string {
	name := e.args.PriorityThreshold.Name
	if name == "" || facts == nil {
		return ""
	}
	threshold, found := facts.Priority(name)
	switch p := pod.Spec.Priority; {
	case !found:
		return fmt.Sprintf("the PriorityClass %s, which is the threshold, does not exist", name)
	case p == nil || *p < threshold:
		return ""
	default:
		return fmt.Sprintf("its priority %d is not below the threshold %d, that of the PriorityClass %s", *p, threshold, name)
	}
}

// claimsProtectedClass is for claims of some storage classes only. A claim of which the class is not known might be one.
func (e Evictor) claimsProtectedClass(pod *corev1.Pod, facts Facts) string {
	if facts == nil {
		return ""
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.PersistentVolumeClaim == nil {
			continue
		}
		claim := v.PersistentVolumeClaim.ClaimName
		class, found := facts.StorageClass(pod.Namespace, claim)
		switch {
		case !found:
			return fmt.Sprintf("its volume %s is the claim %s, which does not exist", v.Name, claim)
		case class == "":
			return fmt.Sprintf("its volume %s is the claim %s, which has no storage class", v.Name, claim)
		case slices.Contains(e.classes, class):
			return fmt.Sprintf("its volume %s is the claim %s of the storage class %s", v.Name, claim, class)
		}
	}
	return ""
}

func (e Evictor) notBudgeted(pod *corev1.Pod, facts Facts) string {
	if !e.protectsUnbudgeted || facts == nil || facts.Budgeted(pod) {
		return ""
	}
	return "no PodDisruptionBudget selects it"
}

// tooFew asks for the pods of the only owner. A pod with several owners, or none, is not one of a number.
func (e Evictor) tooFew(pod *corev1.Pod, facts Facts) string {
	least := e.args.MinReplicas
	if least <= 1 || facts == nil || len(pod.OwnerReferences) != 1 {
		return ""
	}
	owner := pod.OwnerReferences[0]
	n := facts.Replicas(owner.UID)
	if n < 0 || uint(n) >= least {
		return ""
	}
	return fmt.Sprintf("the %s %s has %d of the %d pods that it must have", owner.Kind, owner.Name, n, least)
}

func (e Evictor) namespaceNotSelected(pod *corev1.Pod, facts Facts) string {
	if e.namespaces == nil || facts == nil {
		return ""
	}
	of, found := facts.NamespaceLabels(pod.Namespace)
	switch {
	case !found:
		return fmt.Sprintf("its namespace %s is not known", pod.Namespace)
	case !e.namespaces.Matches(of):
		return fmt.Sprintf("the labels of its namespace %s do not match %s", pod.Namespace, e.namespaces)
	}
	return ""
}

// fitsNowhere costs more than all other rules together, so it is asked of a pod that nothing else protects.
func (e Evictor) fitsNowhere(found []schemas.Protection, pod *corev1.Pod, facts Facts) string {
	if !e.args.NodeFit || facts == nil || len(found) > 0 {
		return ""
	}
	if fits, why := facts.Elsewhere(pod, e.targets); !fits {
		return why
	}
	return ""
}
