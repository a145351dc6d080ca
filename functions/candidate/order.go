package candidate

import (
	"cmp"
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/policy"
)

// Compare orders two pods by the cost of moving them: negative when a should move before b. In this order:
//
//	priority            none first, then the lower
//	quality of service  BestEffort, Burstable, Guaranteed
//	prefer-no-eviction  pods without the annotation first
//	namespace, name, UID
//
// The first three are the rules of the descheduler. The last makes the order total.
func Compare(a, b *corev1.Pod) int {
	return cmp.Or(
		CompareCost(a, b),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.UID, b.UID),
	)
}

// CompareCost is [Compare] without the name.
func CompareCost(a, b *corev1.Pod) int { return cmp.Compare(cost(a), cost(b)) }

// cost is the priority, the quality of service, and the annotation in one number.
func cost(pod *corev1.Pod) int64 {
	priority := int64(math.MinInt32 - 1) // no priority is below all priorities
	if pod.Spec.Priority != nil {
		priority = int64(*pod.Spec.Priority)
	}
	cost := priority<<3 | service(pod)<<1
	if _, reluctant := pod.Annotations[policy.PreferNoEviction]; reluctant {
		cost |= 1
	}
	return cost
}

// service is the quality of service as a number from 0 to 2, higher for the better.
func service(pod *corev1.Pod) int64 {
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

// classOf is the quality of service that Kubernetes gives to a pod without one in its status: BestEffort when no
// container requests or limits CPU or memory; Guaranteed when each container limits both and requests exactly that or
// nothing.
func classOf(pod *corev1.Pod) corev1.PodQOSClass {
	requests, guaranteed := false, true
	for _, list := range [...][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for _, name := range [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				request, hasRequest := list[i].Resources.Requests[name]
				limit, hasLimit := list[i].Resources.Limits[name]
				requests = requests || hasRequest && !request.IsZero() || hasLimit && !limit.IsZero()
				if !hasLimit || limit.IsZero() || hasRequest && request.Cmp(limit) != 0 {
					guaranteed = false
				}
			}
		}
	}
	switch {
	case !requests:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}
