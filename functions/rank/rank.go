// Package rank says in which order the pods of one node should move: those that matter least first.
package rank

import (
	"cmp"
	"math"

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
func Compare(a, b *corev1.Pod) int { return Of(a).Compare(Of(b)) }

// Rank is the place of one pod in the order of [Compare], worked out once, for who compares the same pods often. It holds
// on to the pod, which must not change meanwhile. The zero value cannot be compared.
type Rank struct {
	cost int64
	pod  *corev1.Pod
}

// Of is the rank of the pod.
func Of(pod *corev1.Pod) Rank {
	return Rank{priority(pod.Spec.Priority)<<3 | int64(service(pod)<<1|wantsToStay(pod)), pod}
}

// Compare is [Compare] of the two pods.
func (r Rank) Compare(other Rank) int {
	if r.cost != other.cost {
		return cmp.Compare(r.cost, other.cost)
	}
	return cmp.Or(
		cmp.Compare(r.pod.Namespace, other.pod.Namespace),
		cmp.Compare(r.pod.Name, other.pod.Name),
		cmp.Compare(r.pod.UID, other.pod.UID),
	)
}

// priority as a number, higher for the higher; none is below all.
func priority(p *int32) int64 {
	if p == nil {
		return math.MinInt32 - 1
	}
	return int64(*p)
}

func wantsToStay(pod *corev1.Pod) int {
	if _, set := pod.Annotations[policy.PreferNoEviction]; set {
		return 1
	}
	return 0
}

// service is the quality of service as a number from 0 to 2, higher for the better.
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
