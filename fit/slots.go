package fit

import "math"

// Slots is how many pods like this one the scheduler would place on a node one after the other, and at most limit. If the pod runs on
// the node, its own place is not among them: it is free only once. Rules between pods are judged for the first of them; see
// [Question.RepelsItself].
func (q *Question) Slots(node string, limit int) int {
	if limit <= 0 || !q.On(node).OK {
		return 0
	}
	h := q.cluster.hosts[node]
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

// slots is how many pods like this one a node takes that takes one.
func (w *world) slots(h *host) int64 {
	q := w.question
	if len(q.ports) > 0 || len(q.claims.attaches) > 0 && len(q.cluster.storage.limits[h.name]) > 0 {
		return 1
	}
	if changed := w.changed[h.name]; changed != nil {
		h = changed
	}
	n := h.room - int64(len(h.pods))
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

// times is how often an amount is there.
func times(want, have int64) int64 {
	if want <= 0 {
		return math.MaxInt64
	}
	return have / want
}

// RepelsItself lists the topology keys of which the pod's required anti-affinity allows only one pod like it in a domain.
func (q *Question) RepelsItself() []string {
	var keys []string
	for i := range q.apart {
		if t := &q.apart[i]; t.matches(q.pod.Namespace, q.namespace, q.pod.Labels) {
			keys = append(keys, t.topology)
		}
	}
	return keys
}
