// Package nodetaints is the strategy RemovePodsViolatingNodeTaints: it moves pods off a node with a taint that they do not
// tolerate.
//
// Only the effect NoSchedule counts, and PreferNoSchedule if enabled. Kubernetes itself evicts pods because of NoExecute. The
// taint of a cordon counts only while the node is unschedulable, because the taint remains for a moment after an uncordon.
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

// Args are the arguments of the strategy. The zero value moves every unprotected pod that does not tolerate a NoSchedule taint.
type Args struct {
	candidate.Selection
	// IncludePreferNoSchedule also considers taints with the effect PreferNoSchedule.
	IncludePreferNoSchedule bool `json:"includePreferNoSchedule,omitzero"`
	// ExcludedTaints lists taints to ignore, as KEY or KEY=VALUE. At most one of the two lists may be used.
	ExcludedTaints []string `json:"excludedTaints,omitzero"`
	// IncludedTaints lists the only taints to consider, as KEY or KEY=VALUE. nil means all. Empty but not nil means none.
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

// validateTaints rejects entries that match no valid taint.
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

// Decide returns the pods that should leave the node, in the order of [candidate.Compare]. A node that is not ready keeps its
// pods, because its kubelet would not complete the eviction.
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

// Concerns reports whether the pod is selected and does not tolerate a relevant taint. It implements [policy.Concerned].
func (a Args) Concerns(pod *corev1.Pod, node *corev1.Node) bool {
	return violation(a.relevant(node), pod.Spec.Tolerations) != "" && candidate.Ready(node) && a.Has(pod)
}

// relevant returns the taints that the arguments select, in the order of the node.
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

// names reports whether one of the entries is KEY or KEY=VALUE of the taint. Validate rejects KEY=.
func names(entries []string, t corev1.Taint) bool {
	return slices.Contains(entries, t.Key) || slices.Contains(entries, t.Key+"="+t.Value)
}

// violation returns text such as "does not tolerate dedicated=gpu:NoSchedule", or "" if the pod tolerates all taints.
func violation(taints []corev1.Taint, tolerations []corev1.Toleration) string {
	text, separator := "", "does not tolerate "
	for i := range taints {
		if !candidate.Tolerates(tolerations, &taints[i]) {
			text, separator = text+separator+taints[i].ToString(), ", "
		}
	}
	return text
}
