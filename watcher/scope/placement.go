package scope

import (
	"crypto/sha256"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/rehome-dev/rehome/fit"
)

// requirement is everything that pods require of the labels and taints of a node. Most pods of a cluster share a few
// requirements, so a node change is compared with each requirement once instead of each group.
type requirement struct {
	affinity    *nodeaffinity.RequiredNodeAffinity // nil matches any node
	tolerations []corev1.Toleration
	taints      bool     // whether taints matter
	keys        []string // labels that the node must have
	// takes limits the domains to those with a node that it returns true for. nil means no limit.
	takes func(*corev1.Node) bool
}

// hash identifies equal values.
type hash = [sha256.Size]byte

// newRequirement returns the requirement of a pod, with its hash. affinity and taints select the parts that count; keys are
// labels that a node must have.
func newRequirement(p *corev1.Pod, affinity, taints bool, keys []string) (r requirement, id hash) {
	values := []any{keys}
	r.keys = keys
	if affinity {
		required := nodeaffinity.GetRequiredNodeAffinity(p)
		r.affinity = &required
		values = append(values, p.Spec.NodeSelector, requiredTerms(p))
	}
	if taints {
		r.taints, r.tolerations = true, p.Spec.Tolerations
		values = append(values, p.Spec.Tolerations)
	}
	return r, hashOf(affinity, taints, values)
}

// hashOf hashes values of the Kubernetes API, which are always encodable.
func hashOf(values ...any) hash {
	text, _ := json.Marshal(values)
	return sha256.Sum256(text)
}

func requiredTerms(p *corev1.Pod) *corev1.NodeSelector {
	if p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil {
		return nil
	}
	return p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// placements holds the requirements of groups.
type placements map[hash]*placement

// placement is one requirement, with the groups that have it.
type placement struct {
	requirement
	topologyKey string         // the key over which the groups spread, or empty
	groups      map[string]int // the number of pods of each group with the requirement
	eligible    map[string]int // the number of matching nodes that takes accepts, by value of the topology key
}

// add adds a pod of a group. nodes are all nodes that the index sees.
func (all placements) add(id hash, r requirement, topologyKey, group string, nodes map[string]*corev1.Node) *placement {
	p := all[id]
	if p == nil {
		p = &placement{requirement: r, topologyKey: topologyKey, groups: map[string]int{}, eligible: map[string]int{}}
		for _, n := range nodes {
			if value, in := p.domain(n); in && p.accepts(n) {
				p.eligible[value]++
			}
		}
		all[id] = p
	}
	p.groups[group]++
	return p
}

// remove removes a pod of a group.
func (all placements) remove(id hash, group string) {
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

// setNode handles a change of a node. It calls f for every group that now counts the node in another domain.
func (all placements) setNode(before, after *corev1.Node, f func(group string)) {
	for _, p := range all {
		was, wasIn := p.domain(before)
		is, isIn := p.domain(after)
		if was == is && wasIn == isIn {
			continue
		}
		if wasIn && p.accepts(before) {
			if p.eligible[was]--; p.eligible[was] == 0 {
				delete(p.eligible, was)
			}
		}
		if isIn && p.accepts(after) {
			p.eligible[is]++
		}
		for group := range p.groups {
			f(group)
		}
	}
}

func (p *placement) accepts(n *corev1.Node) bool { return p.takes == nil || p.takes(n) }

// domain returns the topology domain of a node, and whether the node meets the requirement. Without a topology key each
// node is a domain.
func (p *placement) domain(n *corev1.Node) (value string, in bool) {
	if n == nil {
		return "", false
	}
	value, in = n.Name, true
	if p.topologyKey != "" {
		value, in = n.Labels[p.topologyKey]
	}
	for _, key := range p.keys {
		_, has := n.Labels[key]
		in = in && has
	}
	if in && p.affinity != nil {
		match, err := p.affinity.Match(n)
		in = match && err == nil
	}
	if !in || p.taints && fit.Untolerated(n.Spec.Taints, p.tolerations) != nil {
		return "", false
	}
	return value, true
}

// sets maps keys to sets of elements with values. It drops empty sets.
type sets[K, E comparable, V any] map[K]map[E]V

// podSets are sets of pods, by domain or node.
type podSets = sets[string, types.UID, *corev1.Pod]

func (s sets[K, E, V]) add(key K, element E, value V) {
	if s[key] == nil {
		s[key] = map[E]V{}
	}
	s[key][element] = value
}

func (s sets[K, E, V]) remove(key K, element E) {
	delete(s[key], element)
	if len(s[key]) == 0 {
		delete(s, key)
	}
}

// selectors finds the selectors that can match a set of labels without testing all of them, because most selectors
// require one exact label.
type selectors struct{ sets[label, string, bool] }

func newSelectors() selectors { return selectors{sets[label, string, bool]{}} }

// label is a label that a selector requires. The zero value means that it requires no exact label.
type label struct{ key, value string }

func labelOf(key, value string, exact bool) label {
	if !exact {
		return label{}
	}
	return label{key, value}
}

// each calls f for every selector that can match the labels.
func (s selectors) each(of labels.Set, f func(id string)) {
	for id := range s.sets[label{}] {
		f(id)
	}
	for key, value := range of {
		for id := range s.sets[label{key, value}] {
			f(id)
		}
	}
}
