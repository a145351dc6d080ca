package topologyspread

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/rehome-dev/rehome/functions/candidate"
	"github.com/rehome-dev/rehome/policy"
)

// Args are the arguments of the strategy. The zero value looks at the constraints of all pods that say DoNotSchedule, and
// moves only pods that fit elsewhere.
type Args struct {
	// Selection limits whose constraints count and which pods may move. Other pods are counted all the same, as the scheduler
	// does.
	candidate.Selection
	// WhenUnsatisfiable limits the strategy to constraints that say one of these. Empty: DoNotSchedule.
	WhenUnsatisfiable []corev1.UnsatisfiableConstraintAction `json:"constraints,omitzero"`
	// TopologyBalanceNodeFit lets a pod move only if it fits into a domain with fewer pods than the mean. nil: true.
	TopologyBalanceNodeFit *bool `json:"topologyBalanceNodeFit,omitzero"`
}

var _ policy.Spreading = Args{}

// actions are those that a constraint can say.
func actions() []string { return []string{string(corev1.DoNotSchedule), string(corev1.ScheduleAnyway)} }

// Validate returns an error for each wrong field, a *[policy.FieldError].
func (a Args) Validate() error {
	var found policy.Findings
	found.Join("", a.Selection.Validate())
	for i, action := range a.WhenUnsatisfiable {
		if !slices.Contains(actions(), string(action)) {
			found.Add("constraints"+policy.Item(i), action, "is not what a constraint can say",
				"want "+strings.Join(actions(), " or "))
		}
	}
	return found.Err()
}

// Constraints returns the constraints of the pod that count, in their order: none of a pod that is not selected.
func (a Args) Constraints(pod *corev1.Pod) []corev1.TopologySpreadConstraint {
	var found []corev1.TopologySpreadConstraint
	for _, c := range pod.Spec.TopologySpreadConstraints {
		if a.takes(c.WhenUnsatisfiable) {
			found = append(found, c)
		}
	}
	if len(found) == 0 || !a.Has(pod) {
		return nil
	}
	return found
}

func (a Args) takes(action corev1.UnsatisfiableConstraintAction) bool {
	if len(a.WhenUnsatisfiable) == 0 {
		return action == corev1.DoNotSchedule
	}
	return slices.Contains(a.WhenUnsatisfiable, action)
}

// NeedsRoom says whether a pod moves only if it fits where fewer are.
func (a Args) NeedsRoom() bool { return a.TopologyBalanceNodeFit == nil || *a.TopologyBalanceNodeFit }
