package fit

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Term is a required anti-affinity term of a pod: it keeps other pods out of the pod's topology domain.
type Term struct{ term }

// AntiAffinity reads the required anti-affinity of a pod. ok is false if a selector is not valid, which the API server
// prevents.
func AntiAffinity(pod *corev1.Pod) (terms []Term, ok bool) {
	of := requiredAntiAffinity(&pod.Spec)
	if len(of) == 0 {
		return nil, true
	}
	read, ok := newTerms(pod.Namespace, of)
	if !ok {
		return nil, false
	}
	for _, t := range read {
		terms = append(terms, Term{t})
	}
	return terms, true
}

// TopologyKey is the node label whose values are the domains.
func (t Term) TopologyKey() string { return t.topology }

// Key is the same for terms that mean the same.
func (t Term) Key() string { return t.key() }

// Repels says whether the term keeps away a pod with these labels. ofNamespace are the labels of its namespace, nil if
// they are not known.
func (t Term) Repels(namespace string, ofNamespace, pod labels.Set) bool {
	return t.matches(namespace, ofNamespace, pod)
}

// ByLabel is a label that every pod that the term keeps away has, if there is such a label: to look up terms by it is
// faster than to ask them all.
func (t Term) ByLabel() (key, value string, ok bool) { return RequiredLabel(t.pods) }

// SelectsNamespaces says whether the term depends on the labels of namespaces.
func (t Term) SelectsNamespaces() bool {
	return !t.ofNamespaces.Empty() && t.ofNamespaces.String() != ""
}

// RequiredLabel is a label that everything has that s matches, if there is one: the first by its key.
func RequiredLabel(s labels.Selector) (key, value string, ok bool) {
	requirements, selectable := s.Requirements()
	if !selectable {
		return "", "", false
	}
	for i := range requirements {
		if v, exact := s.RequiresExactMatch(requirements[i].Key()); exact {
			return requirements[i].Key(), v, true
		}
	}
	return "", "", false
}
