package fit

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// constraint is a parsed hard topology spread constraint.
type constraint struct {
	topology   string
	pods       labels.Selector
	maxSkew    int
	minDomains int
	// honorAffinity and honorTaints exclude the nodes that the pod cannot go to for these reasons.
	honorAffinity, honorTaints bool
	// self is 1 if the pod counts itself, else 0.
	self int
}

// hardConstraints parses the hard constraints of a pod. ok is false if a selector is invalid.
func hardConstraints(pod *corev1.Pod) (found []constraint, ok bool) {
	for i := range pod.Spec.TopologySpreadConstraints {
		t := &pod.Spec.TopologySpreadConstraints[i]
		if t.WhenUnsatisfiable != corev1.DoNotSchedule {
			continue
		}
		c, ok := newConstraint(pod, t)
		if !ok {
			return nil, false
		}
		found = append(found, c)
	}
	return found, true
}

func newConstraint(pod *corev1.Pod, t *corev1.TopologySpreadConstraint) (constraint, bool) {
	pods, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
	if err != nil {
		return constraint{}, false
	}
	// A selector that matches nothing stays one. Newer API servers have added the same requirement already.
	for _, key := range t.MatchLabelKeys {
		if value, has := pod.Labels[key]; has {
			same, _ := labels.SelectorFromSet(labels.Set{key: value}).Requirements()
			pods = pods.Add(same...)
		}
	}
	c := constraint{topology: t.TopologyKey, pods: pods, maxSkew: int(t.MaxSkew), minDomains: 1}
	if t.MinDomains != nil {
		c.minDomains = int(*t.MinDomains)
	}
	c.honorAffinity = t.NodeAffinityPolicy == nil || *t.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor
	c.honorTaints = t.NodeTaintsPolicy != nil && *t.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor
	if pods.Matches(labels.Set(pod.Labels)) {
		c.self = 1
	}
	return c, true
}

// domains are the numbers of matching pods in each domain of one constraint.
type domains struct {
	pods map[string]int
	// least is the number in the emptiest domain, or zero if there are fewer domains than required.
	least int
}

// countDomains counts the matching pods on the included nodes, for every constraint.
func (w *world) countDomains() {
	q := w.question
	if len(q.spread) == 0 {
		return
	}
	w.domains = make([]domains, len(q.spread))
	affine := q.affineHosts()
	for i := range q.spread {
		c := &q.spread[i]
		onNode := w.countOnNodes(c)
		counts := make(map[string]int, q.cluster.expected(c.topology))
		for at, h := range q.cluster.known {
			if !hasTopologies(q.spread, h) || !q.includes(c, h, affine == nil || affine[at]) {
				continue
			}
			counts[h.node.Labels[c.topology]] += onNode[h.name]
		}
		w.domains[i] = domains{pods: counts, least: least(counts, c.minDomains)}
	}
}

// expected returns an estimate of the number of domains of a topology, to allocate memory for them at once.
func (c *Cluster) expected(topology string) int {
	if topology == corev1.LabelHostname {
		return len(c.known)
	}
	return 0
}

// affineHosts reports which known nodes match the node affinity of the pod. It is nil if no constraint needs it.
func (q *Question) affineHosts() []bool {
	if !slices.ContainsFunc(q.spread, func(c constraint) bool { return c.honorAffinity }) {
		return nil
	}
	matching := make([]bool, len(q.cluster.known))
	for at, h := range q.cluster.known {
		matching[at] = q.nodes.matches(h.node)
	}
	return matching
}

// countOnNodes counts the matching pods by node.
func (w *world) countOnNodes(c *constraint) map[string]int {
	onNode := map[string]int{}
	own := w.question.pod.Namespace
	if c.pods.Empty() {
		// The scheduler counts no pods for a selector that matches everything, except nominated ones.
		for _, p := range w.coming {
			if p.nominated && p.namespace == own {
				onNode[p.node]++
			}
		}
		return onNode
	}
	w.tally(matcher{
		namespace: func(name string) bool { return name == own },
		pod:       func(_ string, of labels.Set) bool { return c.pods.Matches(of) },
	}, func(_ labels.Set, name string, n int) { onNode[name] += n })
	return onNode
}

// includes reports whether the policies of a constraint include a node. affine means that the node matches the node
// affinity of the pod.
func (q *Question) includes(c *constraint, h *host, affine bool) bool {
	if c.honorAffinity && !affine {
		return false
	}
	return !c.honorTaints || Untolerated(h.node.Spec.Taints, q.pod.Spec.Tolerations) == nil
}

// hasTopologies reports whether a node has the topology keys of all constraints.
func hasTopologies(constraints []constraint, h *host) bool {
	for i := range constraints {
		if _, has := h.node.Labels[constraints[i].topology]; !has {
			return false
		}
	}
	return true
}

func least(counts map[string]int, minDomains int) int {
	if len(counts) < minDomains {
		return 0
	}
	lowest := math.MaxInt32 // like the scheduler: without domains nothing is skewed
	for _, n := range counts {
		lowest = min(lowest, n)
	}
	return lowest
}

// spreads judges a node by the spread constraints. A verdict without a reason is no objection.
func (w *world) spreads(node labels.Set) Verdict {
	for i := range w.question.spread {
		c := &w.question.spread[i]
		value, has := node[c.topology]
		if !has || w.domains[i].pods[value]+c.self-w.domains[i].least > c.maxSkew {
			return no(TopologySpread, c.topology)
		}
	}
	return Verdict{}
}

// Domains returns the number of pods in each domain of a topology spread constraint of the pod, and in the emptiest
// domain: 0 while there are fewer domains than minDomains. The constraint counts the pod itself only if it runs. ok is
// false if the selector is invalid or the pod cannot be judged.
func (q *Question) Domains(of *corev1.TopologySpreadConstraint) (pods map[string]int, emptiest int, ok bool) {
	c, ok := newConstraint(q.pod, of)
	if !ok || q.all.Reason != "" {
		return nil, 0, false
	}
	var together []constraint // the scheduler counts only nodes with the keys of all of them
	for i := range q.pod.Spec.TopologySpreadConstraints {
		if t := &q.pod.Spec.TopologySpreadConstraints[i]; t.WhenUnsatisfiable == of.WhenUnsatisfiable {
			together = append(together, constraint{topology: t.TopologyKey})
		}
	}
	onNode := q.worlds[0].countOnNodes(&c)
	pods = map[string]int{}
	for _, h := range q.cluster.known {
		if hasTopologies(together, h) && q.includes(&c, h, c.honorAffinity && q.nodes.matches(h.node)) {
			pods[h.node.Labels[c.topology]] += onNode[h.name]
		}
	}
	if len(pods) == 0 {
		return pods, 0, true
	}
	return pods, least(pods, c.minDomains), true
}
