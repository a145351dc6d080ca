// Package nodeaffinity is the strategy RemovePodsViolatingNodeAffinity: it moves a pod that fits on another node, if its node
// affinity forbids its node or prefers the other one.
package nodeaffinity

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/rehome-dev/rehome/functions/candidate"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// The kinds of node affinity that [Args.NodeAffinityType] may list.
const (
	Required  = "requiredDuringSchedulingIgnoredDuringExecution"
	Preferred = "preferredDuringSchedulingIgnoredDuringExecution"
)

// Args are the arguments of the strategy. NodeAffinityType is required.
type Args struct {
	candidate.Selection
	// NodeAffinityType lists the kinds of node affinity to consider: [Required], [Preferred], or both, in any order.
	NodeAffinityType []string `json:"nodeAffinityType,omitzero"`
}

// Validate returns an error for each wrong field, a *[policy.FieldError].
func (a Args) Validate() error {
	const field, right = "nodeAffinityType", "want " + Required + " or " + Preferred
	var found policy.Findings
	found.Join("", a.Selection.Validate())
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

// Decide returns the pods that should leave the node: first the pods whose required node affinity forbids the node, then the pods
// that prefer another node, each in the order of [candidate.Compare]. A pod stays if it fits on no other node or if its
// Elsewhere is unknown. A node that is not ready keeps its pods.
func (a Args) Decide(scope schemas.NodeScope) []schemas.Intent {
	if !candidate.Ready(&scope.Node) {
		return nil
	}
	selects := a.Selects()
	var forbidden, disliked []candidate.Move
	for i := range scope.Pods {
		p := &scope.Pods[i]
		if len(p.Protected) > 0 || p.Elsewhere == nil || !p.Elsewhere.Fits || !considers(&p.Pod) || !selects(&p.Pod) {
			continue
		}
		switch {
		case a.forbids(&p.Pod, &scope.Node):
			forbidden = append(forbidden, candidate.Move{Pod: p, Reason: forbiddenReason(&p.Pod, &scope.Node, p.Elsewhere)})
		case p.Elsewhere.Preference > p.Elsewhere.Here && a.dislikes(&p.Pod, &scope.Node):
			disliked = append(disliked, candidate.Move{Pod: p, Reason: dislikedReason(&scope.Node, p.Elsewhere)})
		}
	}
	return append(candidate.Intents(forbidden), candidate.Intents(disliked)...)
}

// Seeks reports whether another node could match the node affinity of the pod better. It implements [policy.Seeker].
func (a Args) Seeks(pod *corev1.Pod, node *corev1.Node) bool {
	return considers(pod) && candidate.Ready(node) && a.Has(pod) && (a.forbids(pod, node) || a.dislikes(pod, node))
}

// Concerns implements [policy.Concerned]. Decide moves only pods that [Args.Seeks] reports.
func (a Args) Concerns(pod *corev1.Pod, node *corev1.Node) bool { return a.Seeks(pod, node) }

// considers reports whether the pod has a node affinity and is not terminating or ended.
func considers(pod *corev1.Pod) bool {
	return pod.Spec.Affinity != nil && pod.Spec.Affinity.NodeAffinity != nil && !candidate.Leaves(pod)
}

// forbids reports whether the required node affinity and the node selector of the pod do not match the node. It is false without
// a required node affinity. As in the scheduler, an invalid affinity matches no node.
func (a Args) forbids(pod *corev1.Pod, node *corev1.Node) bool {
	if pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil ||
		!slices.Contains(a.NodeAffinityType, Required) {
		return false
	}
	match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return err != nil || !match
}

// dislikes reports whether a node could match more of the preferred node affinity of the pod. Invalid terms are ignored.
func (a Args) dislikes(pod *corev1.Pod, node *corev1.Node) bool {
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

// forbiddenReason returns text such as "its required node affinity does not match node-1; it fits on node-2".
func forbiddenReason(pod *corev1.Pod, node *corev1.Node, elsewhere *schemas.Elsewhere) string {
	rule := "its required node affinity does"
	if len(pod.Spec.NodeSelector) > 0 {
		rule = "its node selector and required node affinity do"
	}
	return fmt.Sprintf("%s not match %s; it fits on %s", rule, node.Name, elsewhere.Node)
}

// dislikedReason returns text such as "it prefers node-2, by the weights of its node affinity: 60 against 10 of node-1".
func dislikedReason(node *corev1.Node, elsewhere *schemas.Elsewhere) string {
	return fmt.Sprintf("it prefers %s, by the weights of its node affinity: %d against %d of %s",
		elsewhere.Node, elsewhere.Preference, elsewhere.Here, node.Name)
}
