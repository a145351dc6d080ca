package fit

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// nodeWish is a pod's nodeSelector and required node affinity, read once for many nodes. component-helpers has the same,
// but it makes a map for every node, which costs more than all other rules together.
type nodeWish struct {
	// selector is what nodeSelector says.
	selector labels.Selector
	// terms are those of the required affinity that can match anything; one has to.
	terms    []nodeTerm
	hasTerms bool
}

// nodeTerm is one term: all of it has to match.
type nodeTerm struct {
	labels labels.Selector
	// names are requirements on the name of the node.
	names []corev1.NodeSelectorRequirement
}

// newNodeWish reads what a pod wants of its node. A term that cannot be read, or says nothing, matches no node.
func newNodeWish(spec *corev1.PodSpec) nodeWish {
	wish := nodeWish{selector: labels.SelectorFromSet(spec.NodeSelector)}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return wish
	}
	required := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil {
		return wish
	}
	wish.hasTerms = true
	for i := range required.NodeSelectorTerms {
		if term, ok := newNodeTerm(&required.NodeSelectorTerms[i]); ok {
			wish.terms = append(wish.terms, term)
		}
	}
	return wish
}

func newNodeTerm(t *corev1.NodeSelectorTerm) (nodeTerm, bool) {
	term := nodeTerm{labels: labels.NewSelector(), names: t.MatchFields}
	for i := range t.MatchExpressions {
		e := &t.MatchExpressions[i]
		operator, known := operatorOf(e.Operator)
		requirement, err := labels.NewRequirement(e.Key, operator, e.Values)
		if !known || err != nil {
			return nodeTerm{}, false
		}
		term.labels = term.labels.Add(*requirement)
	}
	readable := !slices.ContainsFunc(t.MatchFields, func(f corev1.NodeSelectorRequirement) bool {
		in := f.Operator == corev1.NodeSelectorOpIn || f.Operator == corev1.NodeSelectorOpNotIn
		return !in || len(f.Values) != 1 || f.Key != metav1.ObjectNameField
	})
	return term, readable && len(t.MatchExpressions)+len(t.MatchFields) > 0
}

// operatorOf is the same operator in the words of label selectors.
func operatorOf(o corev1.NodeSelectorOperator) (selection.Operator, bool) {
	switch o {
	case corev1.NodeSelectorOpIn:
		return selection.In, true
	case corev1.NodeSelectorOpNotIn:
		return selection.NotIn, true
	case corev1.NodeSelectorOpExists:
		return selection.Exists, true
	case corev1.NodeSelectorOpDoesNotExist:
		return selection.DoesNotExist, true
	case corev1.NodeSelectorOpGt:
		return selection.GreaterThan, true
	case corev1.NodeSelectorOpLt:
		return selection.LessThan, true
	}
	return "", false
}

// matches says whether a node is as wished.
func (w *nodeWish) matches(node *corev1.Node) bool {
	if !w.selector.Matches(labels.Set(node.Labels)) {
		return false
	}
	if !w.hasTerms {
		return true
	}
	for i := range w.terms {
		if w.terms[i].matches(node) {
			return true
		}
	}
	return false
}

func (t *nodeTerm) matches(node *corev1.Node) bool {
	for i := range t.names {
		isNamed := t.names[i].Values[0] == node.Name
		if isNamed != (t.names[i].Operator == corev1.NodeSelectorOpIn) {
			return false
		}
	}
	return t.labels.Matches(labels.Set(node.Labels))
}
