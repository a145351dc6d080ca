package fit

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/ephemeral"
)

// host is a node with the sums over its pods. Pods may be bound to a node before it is known, or after it is gone.
type host struct {
	name string
	// node is nil as long as the node is not known.
	node        *corev1.Node
	allocatable amounts
	// room is how many pods the node may have.
	room      int64
	requested amounts
	pods      map[types.UID]*placed
	// ports counts the host ports that are occupied.
	ports map[port]int
	// withVolumes are those of its pods that have claims or exclusive disks.
	withVolumes map[types.UID]*placed
}

func newHost(name string) *host {
	return &host{name: name, pods: map[types.UID]*placed{}}
}

// become takes over what a Node object says, nil if it is gone.
func (h *host) become(node *corev1.Node) {
	h.node, h.allocatable, h.room = node, amounts{}, 0
	if node != nil {
		h.allocatable.add(node.Status.Allocatable, 1)
		h.room = node.Status.Allocatable.Pods().Value()
	}
}

func (h *host) enter(p *placed) {
	h.pods[p.uid] = p
	h.requested.merge(&p.holds, 1)
	for _, occupied := range p.ports {
		if h.ports == nil {
			h.ports = map[port]int{}
		}
		h.ports[occupied]++
	}
	if len(p.claims)+len(p.disks) > 0 {
		if h.withVolumes == nil {
			h.withVolumes = map[types.UID]*placed{}
		}
		h.withVolumes[p.uid] = p
	}
}

func (h *host) leave(p *placed) {
	delete(h.pods, p.uid)
	h.requested.merge(&p.holds, -1)
	for _, occupied := range p.ports {
		decrease(h.ports, occupied)
	}
	if len(h.ports) == 0 {
		h.ports = nil
	}
	delete(h.withVolumes, p.uid)
	if len(h.withVolumes) == 0 {
		h.withVolumes = nil
	}
}

// clone copies what enter and leave change.
func (h *host) clone() *host {
	c := *h
	c.requested.others = maps.Clone(h.requested.others)
	c.pods = maps.Clone(h.pods)
	c.ports = maps.Clone(h.ports)
	c.withVolumes = maps.Clone(h.withVolumes)
	return &c
}

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
	// controller is the UID of the object that makes the replacement, if there is one.
	controller types.UID
	holds      amounts
	ports      []port
	// terms are the required anti-affinity terms, repels their keys.
	terms  []term
	repels []string
	// wishes are the affinity terms that score nodes for other pods.
	wishes []wish
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
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		p.controller = owner.UID
	}
	p.cohort = cohortKey(p.namespace, p.labels, p.terminating)
	// Terms that cannot be read are left out, all of them, as the scheduler does with pods that it finds on nodes.
	p.terms, _ = newTerms(pod, requiredAntiAffinity(&pod.Spec))
	for i := range p.terms {
		p.repels = append(p.repels, p.terms[i].key())
	}
	p.wishes = wishesOf(pod)
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
