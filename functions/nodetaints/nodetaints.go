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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rehome-dev/rehome/functions/placement"
	"github.com/rehome-dev/rehome/functions/rank"
	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Args are the arguments of the strategy. The zero value moves every pod that may be moved and does not tolerate a
// NoSchedule taint.
type Args struct {
	Namespaces policy.Namespaces `json:"namespaces,omitzero"`
	// LabelSelector limits the strategy to the pods that it selects. nil: all.
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitzero"`
	// IncludePreferNoSchedule makes taints with the effect PreferNoSchedule count.
	IncludePreferNoSchedule bool `json:"includePreferNoSchedule,omitzero"`
	// ExcludedTaints are those that do not count, as KEY or KEY=VALUE. At most one of the two lists may be used.
	ExcludedTaints []string `json:"excludedTaints,omitzero"`
	// IncludedTaints are the only ones that count, as KEY or KEY=VALUE. nil: all count. Empty but not nil: none counts.
	IncludedTaints []string `json:"includedTaints,omitzero"`
}

// Validate says what is wrong with the arguments; each error in it is a *[policy.FieldError].
func (a Args) Validate() error {
	var found policy.Findings
	found.Join("namespaces", a.Namespaces.Validate())
	found.Join("labelSelector", policy.ValidateSelector(a.LabelSelector))
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

// Decide returns the pods that should leave the node, in the order of [rank.Compare]. A node that is not ready keeps
// its pods: evicting them there would only wait for a kubelet that does not answer.
func (a Args) Decide(scope schemas.NodeScope) []schemas.Intent {
	taints := a.relevant(&scope.Node)
	if len(taints) == 0 || !placement.Ready(&scope.Node) {
		return nil
	}
	selector := policy.Selects(a.LabelSelector)
	var leaving []move
	for i := range scope.Pods {
		p := &scope.Pods[i]
		if !placement.Movable(p) || !a.Namespaces.Has(p.Pod.Namespace) || !selector.Matches(labels.Set(p.Pod.Labels)) {
			continue
		}
		if reason := violation(taints, p.Pod.Spec.Tolerations); reason != "" {
			leaving = append(leaving, move{p, reason})
		}
	}
	slices.SortFunc(leaving, func(x, y move) int { return rank.Compare(&x.pod.Pod, &y.pod.Pod) })
	intents := make([]schemas.Intent, len(leaving))
	for i, m := range leaving {
		intents[i] = m.pod.Move(m.reason)
	}
	return intents
}

// Concerns says whether the pod is one that the arguments select, and does not tolerate a taint that counts. It is
// [policy.Concerned].
func (a Args) Concerns(pod *corev1.Pod, node *corev1.Node) bool {
	return violation(a.relevant(node), pod.Spec.Tolerations) != "" && placement.Ready(node) && a.Namespaces.Has(pod.Namespace) &&
		policy.Selects(a.LabelSelector).Matches(labels.Set(pod.Labels))
}

// move is a pod that should leave, and why.
type move struct {
	pod    *schemas.ScopedPod
	reason string
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

// names says whether one of the entries is the taint's KEY or KEY=VALUE. KEY= is no entry; Validate refuses it.
func names(entries []string, t corev1.Taint) bool {
	return slices.Contains(entries, t.Key) || slices.Contains(entries, t.Key+"="+t.Value)
}

// violation names the taints that no toleration tolerates, in their order, such as "does not tolerate
// dedicated=gpu:NoSchedule". Nothing: all are tolerated.
func violation(taints []corev1.Taint, tolerations []corev1.Toleration) string {
	var text string
	for i := range taints {
		if placement.Tolerates(tolerations, &taints[i]) {
			continue
		}
		if text == "" {
			text = "does not tolerate " + taints[i].ToString()
		} else {
			text += ", " + taints[i].ToString()
		}
	}
	return text
}
