// Package rank says in which order the pods of one node should move: those that matter least first.
package rank

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/policy"
)

// Compare orders two pods by what it costs to move them: negative when a should move before b. In this order:
//
//	priority            none first, then the lower
//	quality of service  BestEffort, Burstable, Guaranteed
//	prefer-no-eviction  pods without the annotation first
//	namespace, name, UID
//
// The first three are the peer's; the last makes the order total, so that the same pods always come in the same order.
func Compare(a, b *corev1.Pod) int {
	return cmp.Or(
		priority(a.Spec.Priority, b.Spec.Priority),
		cmp.Compare(service(a), service(b)),
		cmp.Compare(wantsToStay(a), wantsToStay(b)),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.UID, b.UID),
	)
}

func priority(a, b *int32) int {
	switch {
	case a != nil && b != nil:
		return cmp.Compare(*a, *b)
	case a != nil:
		return 1
	case b != nil:
		return -1
	}
	return 0
}

func wantsToStay(pod *corev1.Pod) int {
	if _, set := pod.Annotations[policy.PreferNoEviction]; set {
		return 1
	}
	return 0
}

// service is the quality of service as a number, higher for the better.
func service(pod *corev1.Pod) int {
	class := pod.Status.QOSClass
	if class == "" {
		class = classOf(pod)
	}
	switch class {
	case corev1.PodQOSBestEffort:
		return 0
	case corev1.PodQOSGuaranteed:
		return 2
	}
	return 1
}

// classOf is the quality of service that Kubernetes gives to a pod whose status does not tell it: BestEffort when no
// container asks for or is limited in CPU or memory; Guaranteed when each container is limited in both, and asks for
// exactly that or leaves out what it asks for.
func classOf(pod *corev1.Pod) corev1.PodQOSClass {
	asks, guaranteed := false, true
	for _, list := range [...][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for _, name := range [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				request, hasRequest := list[i].Resources.Requests[name]
				limit, hasLimit := list[i].Resources.Limits[name]
				asks = asks || hasRequest && !request.IsZero() || hasLimit && !limit.IsZero()
				if !hasLimit || limit.IsZero() || hasRequest && request.Cmp(limit) != 0 {
					guaranteed = false
				}
			}
		}
	}
	switch {
	case !asks:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}
