package index

import (
	"crypto/sha256"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/rehome-dev/rehome/fit"
)

// demand is what pods ask of a node by its labels and taints. Most pods of a cluster share a few demands, so a change of a node
// is compared with each demand once, and not with each group.
type demand struct {
	affinity    *nodeaffinity.RequiredNodeAffinity // nil: every node will do
	tolerations []corev1.Toleration
	// taints: a taint that is not tolerated keeps the pod away.
	taints bool
}

// newDemand returns the demand of a pod, and values that are equal for equal demands. affinity and taints select the parts that
// count.
func newDemand(p *corev1.Pod, affinity, taints bool) (d demand, identity []any) {
	if affinity {
		required := nodeaffinity.GetRequiredNodeAffinity(p)
		d.affinity = &required
		var terms *corev1.NodeSelector
		if p.Spec.Affinity != nil && p.Spec.Affinity.NodeAffinity != nil {
			terms = p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		}
		identity = append(identity, p.Spec.NodeSelector, terms)
	}
	if taints {
		d.taints, d.tolerations = true, p.Spec.Tolerations
		identity = append(identity, p.Spec.Tolerations)
	}
	return d, identity
}

// meets says whether a node meets the demand; nil does not.
func (d *demand) meets(n *corev1.Node) bool {
	if n == nil {
		return false
	}
	if d.affinity != nil {
		if match, err := d.affinity.Match(n); err != nil || !match {
			return false
		}
	}
	return !d.taints || fit.Untolerated(n.Spec.Taints, d.tolerations) == nil
}

// digest hashes values. ok is false if one cannot be encoded.
func digest(values ...any) (sum [sha256.Size]byte, ok bool) {
	text, err := json.Marshal(values)
	return sha256.Sum256(text), err == nil
}

// placements are the demands of groups, each with the groups that have it.
type placements map[[sha256.Size]byte]*placement

type placement struct {
	demand
	// key is the label that the groups spread over; empty: they do not.
	key    string
	groups map[string]int // how many pods of each group have the demand
	// eligible is how many nodes meet it, by the value of the key.
	eligible map[string]int
}

// add counts a group of a demand in. nodes are all that there are.
func (all placements) add(id [sha256.Size]byte, d demand, key, group string, nodes map[string]*corev1.Node) *placement {
	p := all[id]
	if p == nil {
		p = &placement{demand: d, key: key, groups: map[string]int{}, eligible: map[string]int{}}
		for _, n := range nodes {
			if value, in := p.domain(n); in {
				p.eligible[value]++
			}
		}
		all[id] = p
	}
	p.groups[group]++
	return p
}

// remove counts a group out.
func (all placements) remove(id [sha256.Size]byte, group string) {
	p := all[id]
	if p == nil {
		return
	}
	if p.groups[group]--; p.groups[group] <= 0 {
		delete(p.groups, group)
	}
	if len(p.groups) == 0 {
		delete(all, id)
	}
}

// setNode updates the counts for a change of a node, and calls f for every group that counts the node in another domain than before.
func (all placements) setNode(before, after *corev1.Node, f func(group string)) {
	for _, p := range all {
		was, wasIn := p.domain(before)
		is, isIn := p.domain(after)
		if was == is && wasIn == isIn {
			continue
		}
		if wasIn {
			if p.eligible[was]--; p.eligible[was] == 0 {
				delete(p.eligible, was)
			}
		}
		if isIn {
			p.eligible[is]++
		}
		for group := range p.groups {
			f(group)
		}
	}
}

// domain is the value that a node is in, and whether it meets the demand. Without a key each node is a domain.
func (p *placement) domain(n *corev1.Node) (value string, in bool) {
	if n == nil {
		return "", false
	}
	value, in = n.Name, true
	if p.key != "" {
		value, in = n.Labels[p.key]
	}
	if !in || !p.meets(n) {
		return "", false
	}
	return value, true
}
