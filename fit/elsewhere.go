package fit

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Search limits a search. The zero value checks nodes until one fits.
type Search struct {
	// Allowed reports which nodes to consider. nil means all.
	Allowed func(*corev1.Node) bool
	// All checks all nodes.
	All bool
	// Jointly assumes that the replacements with a reservation will arrive. Otherwise the pod must also fit without
	// them.
	Jointly bool
	// ByNode judges only the nodes, by their cordon, taints, labels, and features, as if no pod ran on them. Then every
	// pod can be judged.
	ByNode bool
}

// Result is the result of a search.
type Result struct {
	// OK means that there is a fitting node.
	OK bool
	// Judged is false if the pod cannot be judged. Then Reason is the reason, and nothing else is set.
	Judged bool
	Reason Reason
	// Node is the found node with the highest preferred node affinity of the pod, the first by name among equals. The
	// scheduler may take another one, because it weighs more than that.
	Node string
	// Preference is the preference for Node, see [Preference].
	Preference int64
	// Refused counts the checked nodes that do not fit, by reason.
	Refused map[Reason]int
	// Reserved means that a checked node would fit without the reservations. It is not set if OK.
	Reserved bool
}

// Elsewhere searches for nodes where the pod fits other than its own, in the order of their names.
func (q *Question) Elsewhere(s Search) Result {
	if q.unjudged() && !s.ByNode {
		return Result{Reason: q.all.Reason}
	}
	r := Result{Judged: true, Refused: map[Reason]int{}, Preference: math.MinInt64}
	for _, h := range q.cluster.known {
		if h.name == q.pod.Spec.NodeName || s.Allowed != nil && !s.Allowed(h.node) {
			continue
		}
		if v := q.judge(h, s); !v.OK {
			r.Refused[v.Reason]++
			r.Reserved = r.Reserved || len(q.worlds) > 1 && q.node(h).Reason == "" && q.worlds[0].on(h).OK
			continue
		}
		r.OK = true
		if weight := q.Preference(h.node); weight > r.Preference {
			r.Node, r.Preference = h.name, weight
		}
		if !s.All {
			break
		}
	}
	if r.OK {
		r.Reserved = false
	} else {
		r.Preference = 0
	}
	return r
}

// judge returns the verdict on one node.
func (q *Question) judge(h *host, s Search) Verdict {
	switch {
	case s.ByNode:
		if v := q.node(h); v.Reason != "" {
			return v
		}
		return yes()
	case q.all.Reason == "":
		return q.on(h, s.Jointly)
	}
	return q.all
}

// Preference returns the sum of the weights of the pod's preferred node affinity terms that match the node, which need
// not be part of a cluster. It is the scheduler's score before normalization. Higher is better, 0 is no preference, and
// it is never negative.
func Preference(pod *corev1.Pod, node *corev1.Node) int64 {
	q := Question{preferred: preferredTerms(pod)}
	return q.Preference(node)
}

// preferredTerms reads the preferred node affinity. It returns nil if there is none or it is invalid.
func preferredTerms(pod *corev1.Pod) *nodeaffinity.PreferredSchedulingTerms {
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil {
		return nil
	}
	preferred := affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	if len(preferred) == 0 {
		return nil
	}
	terms, err := nodeaffinity.NewPreferredSchedulingTerms(preferred)
	if err != nil {
		return nil
	}
	return terms
}

// Preference returns the weight of the pod's preferred node affinity for a node, see [Preference].
func (q *Question) Preference(node *corev1.Node) int64 {
	if q.preferred == nil {
		return 0
	}
	return q.preferred.Score(node)
}

// Slots returns how many pods like this one the scheduler would place on a node one after another, at most limit. If
// the pod runs on the node, its own slot is not counted, because it becomes free only once. Rules between pods are
// judged for the first pod only; see [Question.RepelsItself]. A pod that cannot be judged has as many slots as limit on
// every node whose cordon, taints, labels, and features accept it.
func (q *Question) Slots(node string, limit int) int {
	h := q.cluster.hosts[node]
	if q.unjudged() && h != nil && h.node != nil && q.node(h).Reason == "" {
		return max(0, limit)
	}
	if limit <= 0 || !q.On(node).OK {
		return 0
	}
	n := int64(limit)
	if q.gone != nil && q.gone.node == node {
		n++
	}
	for _, w := range q.worlds {
		if n = min(n, w.slots(h)); len(q.nominated[node]) > 0 {
			n = min(n, q.newWorld(w, q.nominated[node]).slots(h))
		}
	}
	if q.gone != nil && q.gone.node == node {
		n--
	}
	return int(n)
}

// slots returns how many pods like this one fit on a node that fits one.
func (w *world) slots(h *host) int64 {
	q := w.question
	if len(q.ports) > 0 || len(q.claims.attaches) > 0 && len(q.cluster.storage.limits[h.name]) > 0 {
		return 1
	}
	if changed := w.changed[h.name]; changed != nil {
		h = changed
	}
	n := h.room - h.pods
	for _, r := range [...]struct{ want, have, used int64 }{
		{q.wants.cpu, h.allocatable.cpu, h.requested.cpu},
		{q.wants.memory, h.allocatable.memory, h.requested.memory},
		{q.wants.ephemeral, h.allocatable.ephemeral, h.requested.ephemeral},
	} {
		n = min(n, times(r.want, r.have-r.used))
	}
	for name, want := range q.wants.others {
		n = min(n, times(want, h.allocatable.others[name]-h.requested.others[name]))
	}
	return n
}

// times returns how often an amount fits into another.
func times(want, have int64) int64 {
	if want <= 0 {
		return math.MaxInt64
	}
	return have / want
}

// RepelsItself returns the topology keys in whose domains the required anti-affinity of the pod allows only one pod
// like it.
func (q *Question) RepelsItself() []string {
	var keys []string
	for i := range q.apart {
		if t := &q.apart[i]; t.Matches(q.pod.Namespace, q.namespace, q.pod.Labels) {
			keys = append(keys, t.TopologyKey)
		}
	}
	return keys
}
