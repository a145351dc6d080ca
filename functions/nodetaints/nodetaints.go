// Package nodetaints is the strategy RemovePodsViolatingNodeTaints: pods on a node that has a taint they do not
// tolerate should move.
//
// Only taints with the effect NoSchedule count, and PreferNoSchedule if asked for. Kubernetes itself removes pods
// because of NoExecute. The taint of a cordon counts as long as the cordon, which it outlasts by a moment.
package nodetaints

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rehome-dev/rehome/functions/candidate"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Args are the arguments of the strategy. The zero value moves every pod that may be moved and does not tolerate a
// NoSchedule taint.
type Args struct {
	candidate.Selection
	// IncludePreferNoSchedule makes taints with the effect PreferNoSchedule count.
	IncludePreferNoSchedule bool `json:"includePreferNoSchedule,omitzero"`
	// ExcludedTaints are those that do not count, as KEY or KEY=VALUE. At most one of the two lists may be used.
	ExcludedTaints []string `json:"excludedTaints,omitzero"`
	// IncludedTaints are the only ones that count, as KEY or KEY=VALUE. nil: all count. Empty but not nil: none counts.
	IncludedTaints []string `json:"includedTaints,omitzero"`
}

// Validate returns an error for each wrong field, a *[policy.FieldError].
func (a Args) Validate() error {
	var found policy.Findings
	found.Join("", a.Selection.Validate())
	if len(a.ExcludedTaints) > 0 && len(a.IncludedTaints) > 0 {
		found.Add("includedTaints", nil, "cannot be used together with excludedTaints", "keep one")
	}
	found.Join("excludedTaints", validateTaints(a.ExcludedTaints))
	found.Join("includedTaints", validateTaints(a.IncludedTaints))
	return found.Err()
}

// validateTaints refuses entries that can match no taint that the API server accepts.
func validateTaints(entries []string) error {
	var found policy.Findings
	for i, entry := range entries {
		key, value, hasValue := strings.Cut(entry, "=")
		if len(validation.IsQualifiedName(key)) > 0 || hasValue && value == "" || len(validation.IsValidLabelValue(value)) > 0 {
			found.Add(policy.Item(i), entry, "can match no taint", "write KEY or KEY=VALUE, without an effect or a pattern")
		}
	}
	return found.Err()
}

// Decide returns the pods that should leave the node, in the order of [candidate.Compare]. A node that is not ready keeps
// its pods: an eviction would only wait for a kubelet that does not answer.
func (a Args) Decide(scope schemas.NodeScope) []schemas.Intent {
	taints := a.relevant(&scope.Node)
	if len(taints) == 0 || !candidate.Ready(&scope.Node) {
		return nil
	}
	selects := a.Selects()
	var leaving []candidate.Move
	for i := range scope.Pods {
		p := &scope.Pods[i]
		if !candidate.Movable(p) || !selects(&p.Pod) {
			continue
		}
		if reason := violation(taints, p.Pod.Spec.Tolerations); reason != "" {
			leaving = append(leaving, candidate.Move{Pod: p, Reason: reason})
		}
	}
	return candidate.Intents(leaving)
}

// Concerns reports whether the pod is selected and does not tolerate a taint that counts. It implements [policy.Concerned].
func (a Args) Concerns(pod *corev1.Pod, node *corev1.Node) bool {
	return violation(a.relevant(node), pod.Spec.Tolerations) != "" && candidate.Ready(node) && a.Has(pod)
}

// relevant returns the taints that count, in the node's order.
func (a Args) relevant(node *corev1.Node) []corev1.Taint {
	var found []corev1.Taint
	for _, t := range node.Spec.Taints {
		counts := t.Effect == corev1.TaintEffectNoSchedule ||
			t.Effect == corev1.TaintEffectPreferNoSchedule && a.IncludePreferNoSchedule
		if t.Key == corev1.TaintNodeUnschedulable {
			counts = counts && node.Spec.Unschedulable
		}
		if counts && !names(a.ExcludedTaints, t) && (a.IncludedTaints == nil || names(a.IncludedTaints, t)) {
			found = append(found, t)
		}
	}
	return found
}

// names reports whether one of the entries is the taint's KEY or KEY=VALUE. KEY= is no entry; Validate refuses it.
func names(entries []string, t corev1.Taint) bool {
	return slices.Contains(entries, t.Key) || slices.Contains(entries, t.Key+"="+t.Value)
}

// violation names the taints that no toleration tolerates: "does not tolerate dedicated=gpu:NoSchedule". Empty: none.
func violation(taints []corev1.Taint, tolerations []corev1.Toleration) string {
	text, separator := "", "does not tolerate "
	for i := range taints {
		if !candidate.Tolerates(tolerations, &taints[i]) {
			text, separator = text+separator+taints[i].ToString(), ", "
		}
	}
	return text
}
