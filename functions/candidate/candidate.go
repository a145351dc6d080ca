// Package candidate has the common questions of strategies about pods: which pods a strategy may move, and in what order.
//
//	candidate.go   Selection, Movable, Intents; Ready and Tolerates: one pod and its node
//	order.go       Compare: the cheapest moves first
//	containers.go  Containers: restarts, reasons, and exit codes; owners
//	age.go         AtAge, AnswerWhenDue: strategies that move a pod at a certain time
package candidate

import (
	"cmp"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"

	"github.com/rehome-dev/rehome/policy"
	"github.com/rehome-dev/rehome/schemas"
)

// Selection limits a strategy to some pods. Arguments of strategies embed it. The zero value selects all pods.
type Selection struct {
	Namespaces    policy.Namespaces     `json:"namespaces,omitzero"`
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitzero"`
}

// Validate returns an error for each wrong field, a *[policy.FieldError].
func (s Selection) Validate() error {
	var found policy.Findings
	found.Join("namespaces", s.Namespaces.Validate())
	found.Join("labelSelector", policy.ValidateSelector(s.LabelSelector))
	return found.Err()
}

// Selects compiles the selection.
func (s Selection) Selects() func(pod *corev1.Pod) bool {
	selector := policy.Selects(s.LabelSelector)
	return func(pod *corev1.Pod) bool {
		return s.Namespaces.Has(pod.Namespace) && selector.Matches(labels.Set(pod.Labels))
	}
}

// Has reports whether the pod is selected.
func (s Selection) Has(pod *corev1.Pod) bool {
	return s.Namespaces.Has(pod.Namespace) && (s.LabelSelector == nil || s.Selects()(pod))
}

// Leaves reports whether the pod has ended or is being deleted.
func Leaves(pod *corev1.Pod) bool { return schemas.Ended(pod) || pod.DeletionTimestamp != nil }

// Movable reports whether the pod is not leaving by itself and nothing protects it.
func Movable(p *schemas.ScopedPod) bool { return !Leaves(&p.Pod) && len(p.Protected) == 0 }

// Move is a pod that should leave its node, and the reason.
type Move struct {
	Pod    *schemas.ScopedPod
	Reason string
}

// Intents returns the intents for the moves, by node and then in the order of [Compare]. It sorts moves.
func Intents(moves []Move) []schemas.Intent {
	slices.SortFunc(moves, func(x, y Move) int {
		return cmp.Or(cmp.Compare(x.Pod.Pod.Spec.NodeName, y.Pod.Pod.Spec.NodeName), Compare(&x.Pod.Pod, &y.Pod.Pod))
	})
	var intents []schemas.Intent
	for _, m := range moves {
		intents = append(intents, m.Pod.Move(m.Reason))
	}
	return intents
}

// Ready reports whether the kubelet of the node answers. A node without the condition counts as ready, as in the descheduler.
func Ready(node *corev1.Node) bool {
	return !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
}

// Tolerates reports whether one of the tolerations tolerates the taint, whatever its effect, by the scheduler's own rule.
func Tolerates(tolerations []corev1.Toleration, taint *corev1.Taint) bool {
	return schedulingv1.TolerationsTolerateTaint(logr.Logger{}, tolerations, taint, true)
}

// ToleratesAll reports whether the tolerations tolerate all of the taints.
func ToleratesAll(tolerations []corev1.Toleration, taints []corev1.Taint) bool {
	for i := range taints {
		if !Tolerates(tolerations, &taints[i]) {
			return false
		}
	}
	return true
}
