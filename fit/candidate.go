package fit

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Candidate is a node that fits a pod after all moves with a reservation.
type Candidate struct {
	Node *corev1.Node
	host *host
}

// Candidates returns the nodes that fit the pod and that allowed selects, by name. A nil selector selects all. The node
// of the pod may be among them.
func (q *Question) Candidates(allowed func(*corev1.Node) bool) []Candidate {
	if q.all.Reason != "" {
		return nil
	}
	found := make([]Candidate, 0, len(q.cluster.known))
	w := q.moved()
	for _, h := range q.cluster.known {
		if allowed != nil && !allowed(h.node) || q.node(h).Reason != "" || !w.on(h).OK {
			continue
		}
		if first := q.nominated[h.name]; len(first) > 0 && !q.newWorld(w, first).on(h).OK {
			continue
		}
		if now := w.changed[h.name]; now != nil {
			h = now
		}
		found = append(found, Candidate{Node: h.node, host: h})
	}
	return found
}

// Pod returns the pod of the question.
func (q *Question) Pod() *corev1.Pod { return q.pod }

// SchedulerIsOlderThan reports whether the scheduler is older than a minor version, see [Cluster.MinorVersion].
func (q *Question) SchedulerIsOlderThan(minorVersion int) bool {
	return q.cluster.MinorVersion != 0 && q.cluster.MinorVersion < minorVersion
}

// Replicas counts the pods of the controller of the pod by node, without the pod itself, after all moves with a
// reservation. It returns nil if the pod has no controller.
func (q *Question) Replicas() map[string]int {
	if q.all.Reason != "" {
		return nil
	}
	return q.moved().siblings()
}

// Usage calls visit for each node, by name, with the requests of its pods without the pod itself, after all moves with
// a reservation.
func (q *Question) Usage(visit func(Candidate)) {
	if q.all.Reason != "" {
		return
	}
	w := q.moved()
	for _, h := range q.cluster.known {
		if now := w.changed[h.name]; now != nil {
			h = now
		}
		visit(Candidate{Node: h.node, host: h})
	}
}

// Requests returns how much of a resource the pod requests: CPU in thousandths, others in whole units.
func (q *Question) Requests(name corev1.ResourceName) int64 { return q.wants.of(name) }

// ScoredRequests is like [Question.Requests], with 100m of CPU and 200Mi of memory for each container that requests
// none. Requests at the pod level do not count: the scheduler ignores them in the pod that it places.
func (q *Question) ScoredRequests(name corev1.ResourceName) int64 {
	if q.pod.Spec.Resources == nil {
		return q.wants.scored(name)
	}
	pod := *q.pod
	pod.Spec.Resources = nil
	wants := wanted(&pod)
	return wants.scored(name)
}

// Allocatable returns how much of a resource the node has for pods, in the units of [Question.Requests].
func (c *Candidate) Allocatable(name corev1.ResourceName) int64 { return c.host.allocatable.of(name) }

// Requested returns how much of a resource the pods on the node request.
func (c *Candidate) Requested(name corev1.ResourceName) int64 { return c.host.requested.of(name) }

// Pods returns how many pods are on the node.
func (c *Candidate) Pods() int { return int(c.host.pods) }

// ScoredRequested is like [Candidate.Requested], with the defaults of [Question.ScoredRequests].
func (c *Candidate) ScoredRequested(name corev1.ResourceName) int64 {
	return c.host.requested.scored(name)
}

// Avoids returns the number of PreferNoSchedule taints of a node that the pod does not tolerate.
func (q *Question) Avoids(node *corev1.Node) int64 {
	count := int64(0)
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		if t.Effect == corev1.TaintEffectPreferNoSchedule && !tolerates(q.pod.Spec.Tolerations, t) {
			count++
		}
	}
	return count
}

// Spread counts the pods that a topology spread constraint selects.
type Spread struct {
	// OnNode is by node, for all nodes.
	OnNode map[string]int
	// InDomain is by value of the topology key, for the nodes that the policies of the constraint include.
	InDomain map[string]int
}

// Spread counts pods for constraints, each by its selector, or with siblings all pods of the same controller. With all,
// a node counts for no constraint if it lacks one of the topology keys. ok is false if a selector is invalid.
func (q *Question) Spread(constraints []corev1.TopologySpreadConstraint, siblings, all bool) (counts []Spread, ok bool) {
	read := make([]constraint, len(constraints))
	for i := range constraints {
		if read[i], ok = newConstraint(q.pod, &constraints[i]); !ok {
			return nil, false
		}
	}
	counts = make([]Spread, len(read))
	w := q.moved()
	for i := range read {
		c := &read[i]
		if siblings {
			counts[i].OnNode = w.siblings()
		} else {
			counts[i].OnNode = w.countOnNodes(c)
		}
		counts[i].InDomain = map[string]int{}
		for name, n := range counts[i].OnNode {
			h := q.cluster.hosts[name]
			if h == nil || h.node == nil || all && !hasTopologies(read, h) {
				continue
			}
			if affine := c.honorAffinity && q.nodes.matches(h.node); !q.includes(c, h, affine) {
				continue
			}
			if value, has := h.node.Labels[c.topology]; has {
				counts[i].InDomain[value] += n
			}
		}
	}
	return counts, true
}

// siblings counts the pods of the same controller by node.
func (w *world) siblings() map[string]int {
	owner := metav1.GetControllerOfNoCopy(w.question.pod)
	if owner == nil {
		return nil
	}
	counts := map[string]int{}
	if siblings := w.question.cluster.controllers[owner.UID]; siblings != nil {
		counts = maps.Clone(siblings.on)
	}
	w.adjust(func(p *placed, n int) {
		if p.controller == owner.UID && !p.terminating {
			counts[p.node] += n
		}
	})
	return counts
}
