package fit

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Search says how far to look. The zero value looks on all nodes until one fits.
type Search struct {
	// Allowed says which nodes come into question. nil: all.
	Allowed func(*corev1.Node) bool
	// Enough is after how many fitting nodes to stop. 0: after the first. math.MaxInt: look at all.
	Enough int
	// Jointly: the replacements that hold a reservation will be there. Otherwise the pod must also fit without them.
	Jointly bool
}

// Result is the result of a search.
type Result struct {
	// OK: there is a fitting node.
	OK bool
	// Judged is false if the pod cannot be judged; Reason says why not, and nothing else is set.
	Judged bool
	Reason Reason
	// Fitting is how many fitting nodes were found, no more than asked for.
	Fitting int
	// Node is the fitting node that the pod prefers most by its node affinity, the first by name of several, among
	// those that were found. Not necessarily the one that the scheduler takes: it weighs more than that.
	Node string
	// Preference is that node's, see [Preference].
	Preference int64
	// Refused counts the nodes that do not fit, by reason, among those that were looked at.
	Refused map[Reason]int
	// Reserved: a node that was looked at would fit, if no capacity were reserved. Not set if OK.
	Reserved bool
}

// Fits judges one node, see [Question.On].
func (c *Cluster) Fits(pod *corev1.Pod, node string) Verdict { return c.Ask(pod).On(node) }

// Elsewhere looks for nodes other than the one that the pod runs on, see [Question.Elsewhere].
func (c *Cluster) Elsewhere(pod *corev1.Pod, s Search) Result { return c.Ask(pod).Elsewhere(s) }

// Elsewhere looks for nodes where the pod fits, in the order of their names, other than the one that it runs on.
func (q *Question) Elsewhere(s Search) Result {
	if !q.all.Judged && q.all.Reason != "" {
		return Result{Reason: q.all.Reason}
	}
	r := Result{Judged: true, Refused: map[Reason]int{}, Preference: math.MinInt64}
	for _, h := range q.cluster.known {
		if h.name == q.pod.Spec.NodeName || s.Allowed != nil && !s.Allowed(h.node) {
			continue
		}
		v := q.all
		if v.Reason == "" {
			v = q.on(h, s.Jointly)
		}
		if !v.OK {
			r.Refused[v.Reason]++
			r.Reserved = r.Reserved || len(q.worlds) > 1 && q.node(h).Reason == "" && q.worlds[0].on(h).OK
			continue
		}
		r.OK = true
		r.Fitting++
		if weight := q.preference(h.node); weight > r.Preference {
			r.Node, r.Preference = h.name, weight
		}
		if r.Fitting >= s.Enough {
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

// Preference is the sum of the weights of the pod's preferred node affinity terms that match the node, which need not be
// part of a cluster. It is what the scheduler scores nodes by before it normalises the score. Higher is better, 0 is no
// preference; negative does not occur.
func Preference(pod *corev1.Pod, node *corev1.Node) int64 {
	q := Question{preferred: preferredTerms(pod)}
	return q.preference(node)
}

// preferredTerms reads the preferred node affinity; nil if there is none, or one that cannot be read.
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

func (q *Question) preference(node *corev1.Node) int64 {
	if q.preferred == nil {
		return 0
	}
	return q.preferred.Score(node)
}

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

// RepelsItself lists topology keys: the required anti-affinity of the pod allows only one pod like it in each of their domains.
func (q *Question) RepelsItself() []string {
	var keys []string
	for i := range q.apart {
		if t := &q.apart[i]; t.matches(q.pod.Namespace, q.namespace, q.pod.Labels) {
			keys = append(keys, t.topology)
		}
	}
	return keys
}
