package cluster

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/schemas"
)

// reservation is capacity on a node for the replacement of a pod that is moved, so that no other pod counts on it.
type reservation struct {
	pod    schemas.PodRef
	owner  types.UID
	number int // in the order of the reservations
	// ended: the replacement has a node, or is not awaited any more. The reservation is kept until the pod is gone, so that a late
	// report of the move does not reserve again.
	ended bool
}

// mostBlockers bounds the pods that [Cache.Reserve] names.
const mostBlockers = 5

// Reserve reserves capacity for the replacement of a pod that is about to move, on another node that is ready and that nodes
// selects, nil all of them. The replacements of all other moves count as if they were there. If no node has capacity, it reserves
// nothing and says why not, and by names the moved pods for whose replacements capacity is reserved that would be enough. judged is
// false if the pod cannot be judged. A second call for a pod replaces its reservation.
//
// A reservation ends when a new pod of the same owner gets a node, or with [Cache.Release].
func (c *Cache) Reserve(pod *corev1.Pod, nodes labels.Selector) (fits, judged bool, why string, by []schemas.ObjectRef) {
	r := c.capacity
	if !r.known {
		return false, false, notKnown, nil
	}
	r.lock()
	defer r.mu.Unlock()
	r.fit.Release(fit.UID(pod))
	delete(r.reserved, pod.UID)
	found := r.fit.Elsewhere(pod, fit.Search{Allowed: targets(nodes), Jointly: true})
	if found.OK {
		r.reserve(pod, found.Node)
	} else if found.Reserved {
		by = r.blockers()
	}
	return found.OK, found.Judged, describe(found, nodes), by
}

// ReserveMoved reserves capacity for the replacement of a pod that was moved already, if there is a node for it, and says whether it
// did. It does nothing if the pod is gone, or has or had a reservation: its replacement may have a node.
func (c *Cache) ReserveMoved(uid types.UID) bool {
	pod := c.PodByUID(uid)
	if pod == nil || pod.Spec.NodeName == "" || !c.capacity.known {
		return false
	}
	r := c.capacity
	r.lock()
	defer r.mu.Unlock()
	if r.reserved[uid] != nil {
		return false
	}
	found := r.fit.Elsewhere(pod, fit.Search{Allowed: targets(nil), Jointly: true})
	return found.OK && r.reserve(pod, found.Node)
}

// Release ends the reservation for the replacement of a pod. It does not wait for a running question.
func (c *Cache) Release(pod types.UID) {
	r := c.capacity
	r.add(func() { r.end(pod, c.PodByUID(pod) == nil) })
}

// reserve makes a reservation, unless nothing would replace the pod. The caller holds mu, as for the functions below.
func (r *capacity) reserve(pod *corev1.Pod, node string) bool {
	owner, found := ownerOf(pod)
	if !found {
		return false
	}
	r.reservations++
	r.fit.Reserve(pod, node)
	r.reserved[pod.UID] = &reservation{
		pod:    schemas.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		number: r.reservations, owner: owner,
	}
	return true
}

func (r *capacity) end(pod types.UID, gone bool) {
	n := r.reserved[pod]
	if n == nil {
		return
	}
	r.fit.Release(pod)
	if n.ended = true; gone {
		delete(r.reserved, pod)
	}
}

// gone takes into account that a pod is gone. The reservation for its replacement stays until it ends.
func (r *capacity) gone(pod types.UID) {
	if n := r.reserved[pod]; n != nil && n.ended {
		delete(r.reserved, pod)
	}
}

// bound takes into account that a pod got a node: it is the replacement of the pod of its owner that was moved first.
func (r *capacity) bound(pod *corev1.Pod) {
	owner, found := ownerOf(pod)
	if !found || owner == "" || len(r.reserved) == 0 || r.reserved[pod.UID] != nil {
		return
	}
	var first *reservation
	for _, n := range r.reserved {
		if !n.ended && n.owner == owner && (first == nil || n.number < first.number) {
			first = n
		}
	}
	if first != nil {
		r.end(first.pod.UID, false)
	}
}

// ownerOf is the owner that replaces a pod: its controller, or the first one. A file may not say which of them is the controller.
func ownerOf(pod *corev1.Pod) (uid types.UID, found bool) {
	if controller := metav1.GetControllerOfNoCopy(pod); controller != nil {
		return controller.UID, true
	}
	if len(pod.OwnerReferences) == 0 {
		return "", false
	}
	return pod.OwnerReferences[0].UID, true
}

// blockers names the pods whose replacements have a reservation, the first ones by name.
func (r *capacity) blockers() []schemas.ObjectRef {
	var by []schemas.ObjectRef
	for _, n := range r.reserved {
		if !n.ended {
			by = append(by, schemas.ObjectRef{Kind: "Pod", Namespace: n.pod.Namespace, Name: n.pod.Name, UID: n.pod.UID})
		}
	}
	slices.SortFunc(by, func(a, b schemas.ObjectRef) int { return strings.Compare(a.String(), b.String()) })
	return by[:min(len(by), mostBlockers)]
}
