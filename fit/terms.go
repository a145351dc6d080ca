package fit

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// term is a parsed required term of pod affinity or anti-affinity.
type term struct {
	topology   string
	namespaces []string
	// ofNamespaces selects namespaces by label, in addition to the named ones.
	ofNamespaces labels.Selector
	pods         labels.Selector
}

// newTerm parses a term of a pod. ok is false if a selector is invalid, which the API server prevents.
func newTerm(pod *corev1.Pod, t *corev1.PodAffinityTerm) (term, bool) {
	pods, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
	if err != nil {
		return term{}, false
	}
	for _, key := range t.MatchLabelKeys {
		pods = withLabelOf(pod, pods, key, selection.In)
	}
	for _, key := range t.MismatchLabelKeys {
		pods = withLabelOf(pod, pods, key, selection.NotIn)
	}
	ofNamespaces, err := metav1.LabelSelectorAsSelector(t.NamespaceSelector)
	if err != nil {
		return term{}, false
	}
	namespaces := slices.Sorted(slices.Values(t.Namespaces))
	if len(namespaces) == 0 && t.NamespaceSelector == nil {
		namespaces = []string{pod.Namespace}
	}
	return term{topology: t.TopologyKey, namespaces: namespaces, ofNamespaces: ofNamespaces, pods: pods}, true
}

// withLabelOf adds to a selector that a label has the pod's value, or another one, as the API server does when it
// creates a pod. A pod from a file may lack it. A pod without the label adds nothing.
func withLabelOf(pod *corev1.Pod, pods labels.Selector, key string, operator selection.Operator) labels.Selector {
	value, has := pod.Labels[key]
	requirements, selectable := pods.Requirements()
	known := slices.ContainsFunc(requirements, func(r labels.Requirement) bool { return r.Key() == key && r.Operator() == operator })
	if !has || !selectable || known {
		return pods
	}
	added, err := labels.NewRequirement(key, operator, []string{value})
	if err != nil {
		return pods
	}
	return pods.Add(*added)
}

// newTerms parses terms. ok is false if one of them is invalid.
func newTerms(pod *corev1.Pod, of []corev1.PodAffinityTerm) ([]term, bool) {
	terms := make([]term, 0, len(of))
	for i := range of {
		t, ok := newTerm(pod, &of[i])
		if !ok {
			return nil, false
		}
		terms = append(terms, t)
	}
	return terms, true
}

func requiredAffinity(spec *corev1.PodSpec) []corev1.PodAffinityTerm {
	if spec.Affinity == nil || spec.Affinity.PodAffinity == nil {
		return nil
	}
	return spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

func requiredAntiAffinity(spec *corev1.PodSpec) []corev1.PodAffinityTerm {
	if spec.Affinity == nil || spec.Affinity.PodAntiAffinity == nil {
		return nil
	}
	return spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// key returns the same key for terms with the same meaning.
func (t *term) key() string {
	return strings.Join([]string{t.topology, strings.Join(t.namespaces, ","), t.ofNamespaces.String(), t.pods.String(),
		emptiness(t.ofNamespaces), emptiness(t.pods)}, "\x00")
}

// emptiness distinguishes the selector that matches everything from the one that matches nothing, which have the same
// string.
func emptiness(s labels.Selector) string {
	if s.Empty() {
		return "all"
	}
	return ""
}

// namespace reports whether a term applies to the pods of a namespace. Its labels are nil if it is unknown.
func (t *term) namespace(name string, of labels.Set) bool {
	_, named := slices.BinarySearch(t.namespaces, name)
	return named || t.ofNamespaces.Matches(of)
}

// matches reports whether a term matches a pod with these labels in this namespace.
func (t *term) matches(namespace string, of, pod labels.Set) bool {
	return t.namespace(namespace, of) && t.pods.Matches(pod)
}

// Term is a required anti-affinity term of a pod: it keeps other pods out of the pod's topology domain.
type Term struct{ term }

// AntiAffinity parses the required anti-affinity of a pod. ok is false if a selector is invalid, which the API server
// prevents.
func AntiAffinity(pod *corev1.Pod) (terms []Term, ok bool) {
	of := requiredAntiAffinity(&pod.Spec)
	if len(of) == 0 {
		return nil, true
	}
	read, ok := newTerms(pod, of)
	if !ok {
		return nil, false
	}
	for _, t := range read {
		terms = append(terms, Term{t})
	}
	return terms, true
}

// TopologyKey returns the node label whose values are the domains.
func (t Term) TopologyKey() string { return t.topology }

// Key returns the same key for terms with the same meaning.
func (t Term) Key() string { return t.key() }

// Repels reports whether the term keeps a pod with these labels away. ofNamespace are the labels of its namespace, or
// nil if unknown.
func (t Term) Repels(namespace string, ofNamespace, pod labels.Set) bool {
	return t.matches(namespace, ofNamespace, pod)
}

// ByLabel returns a label that every repelled pod has, if there is one, to look up terms by label instead of evaluating
// all of them.
func (t Term) ByLabel() (key, value string, ok bool) { return RequiredLabel(t.pods) }

// SelectsNamespaces reports whether the term depends on the labels of namespaces.
func (t Term) SelectsNamespaces() bool {
	return !t.ofNamespaces.Empty() && t.ofNamespaces.String() != ""
}

// RequiredLabel returns a label that everything matching s has, if there is one: the first by key.
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
