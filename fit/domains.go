package fit

import corev1 "k8s.io/api/core/v1"

// Domains counts the pods in each domain of a topology spread constraint of the pod, and the pods in the emptiest domain: 0 while
// there are fewer domains than minDomains. The constraint counts the pod itself only if it runs. ok is false if the selector is not
// valid, or the pod cannot be judged.
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
