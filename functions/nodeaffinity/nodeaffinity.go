// Package nodeaffinity is the strategy RemovePodsViolatingNodeAffinity: a pod on a node that its node affinity does not
// allow, or likes less than another, should move, if the other would take it.
package nodeaffinity

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/rehome-dev/rehome/functions/placement"
	"github.com/rehome-dev/rehome/functions/rank"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// The kinds of node affinity that [Args.NodeAffinityType] may list.
const (
	Required  = "requiredDuringSchedulingIgnoredDuringExecution"
	Preferred = "preferredDuringSchedulingIgnoredDuringExecution"
)

// Args are the arguments of the strategy. NodeAffinityType has no default and must be given.
type Args struct {
	Namespaces policy.Namespaces `json:"namespaces,omitzero"`
	// LabelSelector limits the strategy to the pods that it selects. nil: all.
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitzero"`
	// NodeAffinityType are the kinds of node affinity that count: [Required], [Preferred] or both, in any order.
	NodeAffinityType []string `json:"nodeAffinityType,omitzero"`
}

// Validate says what is wrong with the arguments; each error in it is a *[policy.FieldError].
func (a Args) Validate() error {
	const field, right = "nodeAffinityType", "want " + Required + " or " + Preferred
	var found policy.Findings
	found.Join("namespaces", a.Namespaces.Validate())
	found.Join("labelSelector", policy.ValidateSelector(a.LabelSelector))
	if len(a.NodeAffinityType) == 0 {
		found.Add(field, nil, "is missing", right+", or both")
	}
	for i, kind := range a.NodeAffinityType {
		switch {
		case kind != Required && kind != Preferred:
			found.Add(field+policy.Item(i), kind, "is not known", right)
		case slices.Contains(a.NodeAffinityType[:i], kind):
			found.Add(field+policy.Item(i), kind, "is given twice", "keep one")
		}
	}
	return found.Err()
}

// Decide returns the pods that should leave the node: those that it may not run by their required node affinity, then
// those that prefer another node, each in the order of [rank.Compare]. No pod moves that would be placed nowhere else,
// or whose Elsewhere is not known. A node that is not ready keeps its pods.
func (a Args) Decide(scope schemas.NodeScope) []schemas.Intent {
	if !placement.Ready(&scope.Node) {
		return nil
	}
	selector := policy.Selects(a.LabelSelector)
	var leaving []move
	for i := range scope.Pods {
		p := &scope.Pods[i]
		if len(p.Protected) > 0 || p.Elsewhere == nil || !p.Elsewhere.Fits || !a.looksAt(&p.Pod, selector) {
			continue
		}
		switch {
		case a.forbids(&p.Pod, &scope.Node):
			leaving = append(leaving, move{p, true, forbidden(&p.Pod, &scope.Node, p.Elsewhere)})
		case p.Elsewhere.Preference > p.Elsewhere.Here && a.wishes(&p.Pod, &scope.Node):
			leaving = append(leaving, move{p, false, disliked(&scope.Node, p.Elsewhere)})
		}
	}
	slices.SortFunc(leaving, func(x, y move) int {
		switch {
		case x.required == y.required:
			return rank.Compare(&x.pod.Pod, &y.pod.Pod)
		case x.required:
			return -1
		}
		return 1
	})
	intents := make([]schemas.Intent, len(leaving))
	for i, m := range leaving {
		intents[i] = m.pod.Move(m.reason)
	}
	return intents
}

// move is a pod that should leave, and why.
type move struct {
	pod      *schemas.ScopedPod
	required bool
	reason   string
}

// Seeks says whether Decide looks at the Elsewhere of the pod, unless the pod is protected: whether its node affinity of
// a kind that counts could be served better by another node. It is [policy.Seeker].
func (a Args) Seeks(pod *corev1.Pod, node *corev1.Node) bool {
	if pod.Spec.Affinity == nil { // as most pods: they cost nothing
		return false
	}
	return placement.Ready(node) && a.looksAt(pod, policy.Selects(a.LabelSelector)) &&
		(a.forbids(pod, node) || a.wishes(pod, node))
}

// Concerns says whether Decide could move the pod: only one whose Elsewhere it looks at. It is [policy.Concerned].
func (a Args) Concerns(pod *corev1.Pod, node *corev1.Node) bool { return a.Seeks(pod, node) }

// looksAt says whether the pod has a node affinity, has not ended, is not being deleted, and is one that the namespaces
// and the selector let through.
func (a Args) looksAt(pod *corev1.Pod, selector labels.Selector) bool {
	return pod.Spec.Affinity != nil && pod.Spec.Affinity.NodeAffinity != nil && !placement.Leaves(pod) &&
		a.Namespaces.Has(pod.Namespace) && selector.Matches(labels.Set(pod.Labels))
}

// forbids says whether the pod has a required node affinity that counts, and that together with its node selector does
// not match the node. What cannot be read matches no node, as for the scheduler.
func (a Args) forbids(pod *corev1.Pod, node *corev1.Node) bool {
	if pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil ||
		!slices.Contains(a.NodeAffinityType, Required) {
		return false
	}
	match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return err != nil || !match
}

// wishes says whether the pod has a preferred node affinity that counts, and of which a node could match more. Terms of
// which one cannot be read prefer no node.
func (a Args) wishes(pod *corev1.Pod, node *corev1.Node) bool {
	terms := pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	if len(terms) == 0 || !slices.Contains(a.NodeAffinityType, Preferred) {
		return false
	}
	read, err := nodeaffinity.NewPreferredSchedulingTerms(terms)
	if err != nil {
		return false
	}
	var most int64
	for i := range terms {
		most += int64(terms[i].Weight)
	}
	return read.Score(node) < most
}

// forbidden is such as "its required node affinity does not match node-1; it fits on node-2".
func forbidden(pod *corev1.Pod, node *corev1.Node, elsewhere *schemas.Elsewhere) string {
	rule := "its required node affinity does"
	if len(pod.Spec.NodeSelector) > 0 {
		rule = "its node selector and required node affinity do"
	}
	return fmt.Sprintf("%s not match %s; it fits on %s", rule, node.Name, elsewhere.Node)
}

// disliked is such as "it prefers node-2, by the weights of its node affinity: 60 against 10 of node-1".
func disliked(node *corev1.Node, elsewhere *schemas.Elsewhere) string {
	return fmt.Sprintf("it prefers %s, by the weights of its node affinity: %d against %d of %s",
		elsewhere.Node, elsewhere.Preference, elsewhere.Here, node.Name)
}
