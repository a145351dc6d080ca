package policy

import (
	"math"
	"math/bits"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// costBits is the number of bits of [MoveCost].
const costBits = 42

// MostCost is more than any [MoveCost].
const MostCost = int64(1) << costBits

// MoveCost returns the cost of moving a pod. Pods with a lower cost move first. It compares, in this order:
//
//	priority            none first, then the lower
//	prefer-no-eviction  pods without the annotation first
//	quality of service  BestEffort, Burstable, Guaranteed
//	pod-deletion-cost   the lower first, by its order of magnitude
func MoveCost(pod *corev1.Pod) int64 {
	var cost int64
	if pod.Spec.Priority != nil {
		cost = int64(*pod.Spec.Priority) - math.MinInt32 + 1
	}
	cost <<= 1
	if _, reluctant := pod.Annotations[PreferNoEviction]; reluctant {
		cost |= 1
	}
	return cost<<8 | service(pod)<<6 | deletionCost(pod)
}

// deletionCost returns the annotation pod-deletion-cost as a number from 0 to 63. 32 stands for 0 and for an invalid
// annotation.
func deletionCost(pod *corev1.Pod) int64 {
	text := pod.Annotations[corev1.PodDeletionCost]
	if text == "" {
		return 32 // without allocating an error
	}
	value, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 32
	}
	if value < 0 {
		return 32 - min(int64(bits.Len64(uint64(-value))), 32)
	}
	return 32 + min(int64(bits.Len64(uint64(value))), 31)
}

// service returns the quality of service as a number from 0 to 2, higher for the better.
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

// classOf returns the quality of service that Kubernetes gives to a pod without one in its status: BestEffort if no
// container requests or limits CPU or memory; Guaranteed if each container limits both and requests exactly that or
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
