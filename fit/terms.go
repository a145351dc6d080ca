package fit

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// term is a required term of pod affinity or anti-affinity, read.
type term struct {
	topology   string
	namespaces []string
	// ofNamespaces selects namespaces by their labels, besides those that are named.
	ofNamespaces labels.Selector
	pods         labels.Selector
}

// newTerm reads a term of a pod. ok is false if a selector is not valid, which the API server prevents.
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

// withLabelOf adds to a selector that a label has the value of the pod, or another one, as the API server does when the pod is made. A
// pod in a file may lack it. A pod without the label adds nothing.
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

// newTerms reads terms; ok is false if one of them is not valid.
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

// key is the same for terms that mean the same.
func (t *term) key() string {
	return strings.Join([]string{t.topology, strings.Join(t.namespaces, ","), t.ofNamespaces.String(), t.pods.String(),
		emptiness(t.ofNamespaces), emptiness(t.pods)}, "\x00")
}

// emptiness tells the selector of everything from the one of nothing, which are written alike.
func emptiness(s labels.Selector) string {
	if s.Empty() {
		return "all"
	}
	return ""
}

// namespace says whether a term concerns the pods of a namespace. Its labels are nil if it is not known.
func (t *term) namespace(name string, of labels.Set) bool {
	_, named := slices.BinarySearch(t.namespaces, name)
	return named || t.ofNamespaces.Matches(of)
}

// matches says whether a term concerns a pod with these labels in this namespace.
func (t *term) matches(namespace string, of, pod labels.Set) bool {
	return t.namespace(namespace, of) && t.pods.Matches(pod)
}

// Term is a required anti-affinity term of a pod: it keeps other pods out of the pod's topology domain.
type Term struct{ term }

// AntiAffinity reads the required anti-affinity of a pod. ok is false if a selector is not valid, which the API server
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
