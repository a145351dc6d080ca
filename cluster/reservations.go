package cluster

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/fit/score"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// reservation is capacity on a node for the replacement of a moved pod, so that no other pod counts on it.
type reservation struct {
	pod    schemas.PodRef
	owner  types.UID
	number int // in the order of the reservations
	// ended means that the replacement has a node, or is no longer expected. The reservation remains until the pod is
	// gone, so that a late report of the move does not reserve again.
	ended bool
}

// mostBlockers bounds the pods that [Cache.Reserve] names.
const mostBlockers = 5

// Move is a pod that is about to move.
type Move struct {
	Pod *corev1.Pod
	// To are the nodes that should take the replacement.
	To policy.Targets
	// Scheduler predicts the node of the replacement.
	Scheduler *score.Profile
	// InVain returns the reason why the move would not improve anything if the scheduler chose a node, or "". nil
	// accepts every node.
	InVain func(q *fit.Question, to *corev1.Node) string
}

// Room is the result of [Cache.Reserve] for a replacement.
type Room struct {
	// Fits means that it fits on another target. Judged is false if the pod cannot be judged. Why is
	// the reason why it does not fit.
	Fits, Judged bool
	Why          string
	// By are up to five moved pods whose replacements hold reservations, on any node, the first ones by name. It is set only
	// if reservations or moves in flight are why the replacement does not fit.
	By []schemas.ObjectRef
	// InVain is the reason why the move would not improve anything.
	InVain string
}

// Reserve reserves capacity for the replacement of a pod on the node that the scheduler would choose. The replacements
// of all other moves count as present. It reserves nothing if the replacement fits nowhere, or if the move would be in
// vain. A second call for a pod replaces its reservation.
//
// A reservation ends when a new pod of the same owner gets a node, or with [Cache.Release].
func (c *Cache) Reserve(m Move) Room {
	r := c.capacity
	if !r.known {
		return Room{Why: notKnown}
	}
	r.lock()
	defer r.mu.Unlock()
	r.fit.Release(fit.UID(m.Pod))
	delete(r.reserved, m.Pod.UID)
	q := r.fit.Ask(m.Pod)
	found := q.Elsewhere(fit.Search{Allowed: IsTarget(m.To), Jointly: true})
	room := Room{Fits: found.OK, Judged: found.Judged, Why: describe(found, m.To.Nodes)}
	if found.Reserved {
		room.By = r.blockers()
	}
	nodes := score.Predict(q, m.Scheduler, IsReady) // the scheduler does not know the targets
	if found.OK && len(nodes) == 0 {                // the moved pods count in topology spread constraints until they are gone
		return Room{Judged: true, Why: "fits on no node after the moves in flight", By: r.blockers()}
	}
	for _, to := range nodes {
		if room.InVain == "" && m.InVain != nil {
			room.InVain = m.InVain(q, to)
		}
	}
	if found.OK && room.InVain == "" {
		r.reserve(m.Pod, nodes[0].Name)
	}
	return room
}

// ReserveMoved reserves capacity for the replacement of a moved pod, if a node has room for it, and reports whether it
// did. It does nothing if the pod is gone, or has or had a reservation, because its replacement may have a node.
func (c *Cache) ReserveMoved(uid types.UID, scheduler *score.Profile) bool {
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
	nodes := score.Predict(r.fit.Ask(pod), scheduler, IsReady)
	return len(nodes) > 0 && r.reserve(pod, nodes[0].Name)
}

// Release ends the reservation for the replacement of a pod. It does not wait for a running question.
func (c *Cache) Release(pod types.UID) {
	r := c.capacity
	r.add(func() { r.end(pod, c.PodByUID(pod) == nil) })
}

// Forget removes the reservation for the replacement of a pod, unless it has ended, so that [Cache.ReserveMoved] can make
// it again. It does not wait for a running question.
func (c *Cache) Forget(pod types.UID) {
	r := c.capacity
	r.add(func() {
		if n := r.reserved[pod]; n != nil && !n.ended {
			r.end(pod, true)
		}
	})
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

// end ends a reservation. It removes it if forget is true.
func (r *capacity) end(pod types.UID, forget bool) {
	n := r.reserved[pod]
	if n == nil {
		return
	}
	r.fit.Release(pod)
	if n.ended = true; forget {
		delete(r.reserved, pod)
	}
}

// gone handles a deleted pod. The reservation for its replacement remains until it ends.
func (r *capacity) gone(pod types.UID) {
	if n := r.reserved[pod]; n != nil && n.ended {
		delete(r.reserved, pod)
	}
}

// bound handles a pod that got a node: it is the replacement of the pod of its owner that was moved first.
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

// ownerOf returns the owner that replaces a pod: its controller, or else the first owner, because an object from a file
// may not name the controller.
func ownerOf(pod *corev1.Pod) (uid types.UID, found bool) {
	if controller := metav1.GetControllerOfNoCopy(pod); controller != nil {
		return controller.UID, true
	}
	if len(pod.OwnerReferences) == 0 {
		return "", false
	}
	return pod.OwnerReferences[0].UID, true
}

// blockers returns the pods whose replacements hold a reservation, the first ones by name.
func (r *capacity) blockers() []schemas.ObjectRef {
	var by []schemas.ObjectRef
	for _, n := range r.reserved {
		if !n.ended {
			by = append(by, n.pod.Object())
		}
	}
	slices.SortFunc(by, func(a, b schemas.ObjectRef) int { return strings.Compare(a.String(), b.String()) })
	return by[:min(len(by), mostBlockers)]
}
