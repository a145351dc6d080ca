package fit

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Term is a parsed term of the affinity or anti-affinity of a pod to other pods.
type Term struct {
	// TopologyKey is the node label whose values are the domains.
	TopologyKey string
	namespaces  []string
	// ofNamespaces selects namespaces by label, in addition to the named ones.
	ofNamespaces labels.Selector
	pods         labels.Selector
}

// newTerm parses a term of a pod. ok is false if a selector is invalid, which the API server prevents.
func newTerm(pod *corev1.Pod, t *corev1.PodAffinityTerm) (Term, bool) {
	pods, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
	if err != nil {
		return Term{}, false
	}
	for _, key := range t.MatchLabelKeys {
		pods = withLabelOf(pod, pods, key, selection.In)
	}
	for _, key := range t.MismatchLabelKeys {
		pods = withLabelOf(pod, pods, key, selection.NotIn)
	}
	ofNamespaces, err := metav1.LabelSelectorAsSelector(t.NamespaceSelector)
	if err != nil {
		return Term{}, false
	}
	namespaces := slices.Sorted(slices.Values(t.Namespaces))
	if len(namespaces) == 0 && t.NamespaceSelector == nil {
		namespaces = []string{pod.Namespace}
	}
	return Term{TopologyKey: t.TopologyKey, namespaces: namespaces, ofNamespaces: ofNamespaces, pods: pods}, true
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
func newTerms(pod *corev1.Pod, of []corev1.PodAffinityTerm) ([]Term, bool) {
	terms := make([]Term, 0, len(of))
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

// Key returns the same key for terms with the same meaning.
func (t *Term) Key() string {
	return strings.Join([]string{t.TopologyKey, strings.Join(t.namespaces, ","), t.ofNamespaces.String(), t.pods.String(),
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
func (t *Term) namespace(name string, of labels.Set) bool {
	_, named := slices.BinarySearch(t.namespaces, name)
	return named || t.ofNamespaces.Matches(of)
}

// Matches reports whether a term matches a pod with these labels in this namespace. ofNamespace are the labels of the
// namespace, or nil if unknown.
func (t *Term) Matches(namespace string, ofNamespace, pod labels.Set) bool {
	return t.namespace(namespace, ofNamespace) && t.pods.Matches(pod)
}

// AntiAffinity parses the required anti-affinity of a pod, which keeps other pods out of the pod's topology domains. ok is
// false if a selector is invalid, which the API server prevents.
func AntiAffinity(pod *corev1.Pod) (terms []Term, ok bool) {
	return newTerms(pod, requiredAntiAffinity(&pod.Spec))
}

// ByLabel returns a label that every matched pod has, if there is one, to look up terms by label instead of evaluating
// all of them.
func (t *Term) ByLabel() (key, value string, ok bool) { return RequiredLabel(t.pods) }

// Namespaces returns the namespaces that the term names. only is false if it also selects namespaces by label.
func (t *Term) Namespaces() (names []string, only bool) {
	return t.namespaces, !t.ofNamespaces.Empty() && t.ofNamespaces.String() == ""
}

// SelectsNamespaces reports whether the term depends on the labels of namespaces.
func (t *Term) SelectsNamespaces() bool {
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
