package converge

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/rehome-dev/rehome/fit"
	"github.com/rehome-dev/rehome/functions/candidate"
)

// replicated reports whether nothing protects pod i.
func (s *search) replicated(i int) bool { return s.pods[i].OwnerReferences[0].Kind == replicaSet }

// isRepelled reports whether pod i is beside a pod that its required anti-affinity forbids. Its neighbor does not move for it.
func (s *search) isRepelled(i int) bool {
	for j := range s.pods {
		if i != j && s.repels(i, j) {
			return true
		}
	}
	return false
}

// evadesTaint reports whether pod i is on a node with a taint that it does not tolerate.
func (s *search) evadesTaint(i int) bool {
	for _, taint := range s.node(s.at[i]).Spec.Taints {
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && !candidate.Tolerates(s.pods[i].Spec.Tolerations, &taint) {
			return true
		}
	}
	return false
}

// untolerated counts pods on nodes with a taint that they do not tolerate.
func (s *search) untolerated() (count int) {
	for i := range s.pods {
		if s.evadesTaint(i) {
			count++
		}
	}
	return count
}

func (s *search) node(name string) *corev1.Node {
	return &s.nodes[slices.IndexFunc(s.nodes, func(n corev1.Node) bool { return n.Name == name })]
}

// repelled counts the pairs of pods that share a domain although the required anti-affinity of one forbids it. Of three pods on a
// node that repel each other, one that leaves ends two of three violations.
func (s *search) repelled() (count int) {
	for i := range s.pods {
		for j := range i {
			if s.repels(i, j) || s.repels(j, i) {
				count++
			}
		}
	}
	return count
}

// repels reports whether pod i is beside pod j, which its required anti-affinity forbids.
func (s *search) repels(i, j int) bool { return len(s.repelsBy(i, j)) > 0 }

// repelsBy returns the topology keys of the terms with which pod i repels its neighbor j.
func (s *search) repelsBy(i, j int) (keys []string) {
	if i == j || s.pods[i].Spec.Affinity == nil || s.pods[i].Spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	for _, term := range s.pods[i].Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
		domain, has := s.node(s.at[i]).Labels[term.TopologyKey]
		other, shares := s.node(s.at[j]).Labels[term.TopologyKey]
		selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
		if err == nil && has && shares && domain == other && selector.Matches(labels.Set(s.pods[j].Labels)) {
			keys = append(keys, term.TopologyKey)
		}
	}
	return keys
}

// repelledTwice reports whether a pod repels others, or is repelled, in domains of two topology keys.
func (s *search) repelledTwice() bool {
	for i := range s.pods {
		keys := map[string]bool{}
		for j := range s.pods {
			for _, key := range append(s.repelsBy(i, j), s.repelsBy(j, i)...) {
				keys[key] = true
			}
		}
		if len(keys) > 1 {
			return true
		}
	}
	return false
}

// isSpread reports whether pod i has a topology spread constraint that the scheduler enforces.
func (s *search) isSpread(i int) bool {
	return slices.ContainsFunc(s.pods[i].Spec.TopologySpreadConstraints, enforced)
}

// countedTwice reports whether constraints of two workloads count the same pods, and the pods of both can move.
func (s *search) countedTwice() bool {
	for _, l := range s.w.workloads {
		for _, c := range l.template.Spec.TopologySpreadConstraints {
			selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
			if err == nil && !selector.Empty() && enforced(c) && l.kind == replicaSet && slices.ContainsFunc(s.w.workloads, func(other *workload) bool {
				return other != l && other.kind == replicaSet && selector.Matches(labels.Set(other.template.Labels)) &&
					slices.ContainsFunc(other.template.Spec.TopologySpreadConstraints, enforced)
			}) {
				return true
			}
		}
	}
	return false
}

func enforced(c corev1.TopologySpreadConstraint) bool {
	return c.WhenUnsatisfiable == corev1.DoNotSchedule
}

// uneven adds up how many pods each domain has in excess of the constraints of the workloads.
func (s *search) uneven() (count int) {
	for _, l := range s.w.workloads {
		for i := range l.template.Spec.TopologySpreadConstraints {
			if c := &l.template.Spec.TopologySpreadConstraints[i]; enforced(*c) && l.kind == replicaSet {
				count += s.excess(l, c)
			}
		}
	}
	return count
}

// hasKeys reports whether a node has the labels of all constraints of a pod that the scheduler enforces. The scheduler
// leaves out other nodes.
func hasKeys(n *corev1.Node, pod *corev1.Pod) bool {
	return !slices.ContainsFunc(pod.Spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
		_, has := n.Labels[c.TopologyKey]
		return enforced(c) && !has
	})
}

// excess adds up how many pods each domain has in excess of one constraint.
func (s *search) excess(l *workload, c *corev1.TopologySpreadConstraint) (count int) {
	selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
	if err != nil || selector.Empty() {
		return 0 // the scheduler counts no pods
	}
	pod := &corev1.Pod{ObjectMeta: l.template.ObjectMeta, Spec: l.template.Spec}
	affinity, domains := nodeaffinity.GetRequiredNodeAffinity(pod), map[string]int{}
	for i := range s.nodes {
		n := &s.nodes[i]
		domain, has := n.Labels[c.TopologyKey], hasKeys(n, pod)
		matches, err := affinity.Match(n)
		honored := c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor
		tainted := c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyHonor &&
			fit.Untolerated(n.Spec.Taints, pod.Spec.Tolerations) != nil
		if !has || err != nil || honored && !matches || tainted {
			continue
		}
		for j, p := range s.pods {
			if s.at[j] == n.Name && selector.Matches(labels.Set(p.Labels)) {
				domains[domain]++
			}
		}
		domains[domain] += 0
	}
	least := 0
	if c.MinDomains == nil || len(domains) >= int(*c.MinDomains) {
		least = slices.Min(append(slices.Collect(maps.Values(domains)), len(s.pods)))
	}
	for n := range maps.Values(domains) {
		count += max(0, n-least-int(c.MaxSkew))
	}
	return count
}

// duplicates adds up the squares of how many pods a node has in excess of an even spread of their workload over the nodes that
// could run its pods. So two nodes with one in excess are better than one with two.
func (s *search) duplicates() (count int) {
	for _, l := range s.w.workloads {
		if l.kind != replicaSet {
			continue
		}
		on, replicas := map[string]int{}, 0
		for i, p := range s.pods {
			if p.OwnerReferences[0].Name == l.name {
				on[s.at[i]]++
				replicas++
			}
		}
		most := replicas
		if able := s.able(l); able > 0 {
			most = (replicas + able - 1) / able
		}
		for pods := range maps.Values(on) {
			excess := max(0, pods-most)
			count += excess * excess
		}
	}
	return count
}

// able counts the nodes that could run a pod of a workload if they were empty.
func (s *search) able(l *workload) (count int) {
	pod := &corev1.Pod{ObjectMeta: l.template.ObjectMeta, Spec: l.template.Spec}
	empty := fit.New()
	for i := range s.nodes {
		empty.Set(&s.nodes[i])
	}
	question := empty.Ask(pod)
	for i := range s.nodes {
		if question.On(s.nodes[i].Name).OK {
			count++
		}
	}
	return count
}
