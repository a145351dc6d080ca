package fit

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/ephemeral"
)

// placed is what a pod on a node means to others. The pod itself is not kept.
type placed struct {
	uid         types.UID
	name        string
	namespace   string
	node        string
	priority    int32
	terminating bool
	// nominated: it is not there yet, but the scheduler has made room for it.
	nominated bool
	labels    labels.Set
	cohort    string
	holds     amounts
	ports     []port
	// terms are the required anti-affinity terms, repels their keys.
	terms  []term
	repels []string
	claims []claimRef
	disks  []disk
}

// claimRef is a claim that a pod uses as a volume.
type claimRef struct {
	name string
	// ephemeral: the claim is made for the pod and must belong to it.
	ephemeral bool
}

// newPlaced reads a pod as one that is on the named node.
func newPlaced(pod *corev1.Pod, node string) *placed {
	p := &placed{
		uid:         UID(pod),
		name:        pod.Name,
		namespace:   pod.Namespace,
		node:        node,
		priority:    priority(pod),
		terminating: pod.DeletionTimestamp != nil,
		labels:      pod.Labels,
		holds:       held(pod),
		ports:       hostPorts(&pod.Spec),
		claims:      claimRefs(pod),
		disks:       exclusiveDisks(&pod.Spec),
	}
	p.cohort = cohortKey(p.namespace, p.labels, p.terminating)
	// Terms that cannot be read are left out, all of them, as the scheduler does with pods that it finds on nodes.
	p.terms, _ = newTerms(pod.Namespace, requiredAntiAffinity(&pod.Spec))
	for i := range p.terms {
		p.repels = append(p.repels, p.terms[i].key())
	}
	return p
}

// priority is zero for a pod without one.
func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// isOver says whether a pod has ended and holds nothing any more.
func isOver(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// claimRefs lists the claims that a pod uses, in the order of its volumes.
func claimRefs(pod *corev1.Pod) []claimRef {
	var refs []claimRef
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			refs = append(refs, claimRef{name: v.PersistentVolumeClaim.ClaimName})
		case v.Ephemeral != nil:
			refs = append(refs, claimRef{name: ephemeral.VolumeClaimName(pod, v), ephemeral: true})
		}
	}
	return refs
}
