package maintenance

import (
	"errors"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// Problem is one thing that is wrong with the spec of a maintenance.
type Problem struct {
	// Reason is one of the Refusals of package v1alpha1.
	Reason string
	// Field is the path of what is wrong, and Message what is wrong with it and what would be right.
	Field, Message string
}

// Error is FIELD: MESSAGE.
func (p Problem) Error() string { return p.Field + ": " + p.Message }

// Validate lists what is wrong with a spec that the API server cannot see itself, in the order of the fields.
func Validate(spec v1alpha1.NodeMaintenanceSpec) []Problem {
	var found []Problem
	if p, wrong := wrongNodes(spec.Nodes); wrong {
		found = append(found, p)
	}
	if spec.Window != nil && spec.Window.Schedule != nil {
		var p Problem
		if _, err := schedule(*spec.Window.Schedule); errors.As(err, &p) {
			found = append(found, p)
		}
	}
	return append(found, wrongPlan(spec.Plan)...)
}

func wrongNodes(set v1alpha1.NodeSet) (Problem, bool) {
	s := set.Selector
	switch {
	case s == nil && len(set.Names) == 0:
		return Problem{v1alpha1.ReasonEmptySelector, "spec.nodes", "means no node; want names or a selector"}, true
	case s != nil && len(s.MatchLabels)+len(s.MatchExpressions) == 0:
		return Problem{v1alpha1.ReasonEmptySelector, "spec.nodes.selector",
			"is empty, which would be every node; want at least one label"}, true
	}
	return wrongSelector("spec.nodes.selector", s)
}

func wrongSelector(field string, s *metav1.LabelSelector) (Problem, bool) {
	if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
		return Problem{v1alpha1.ReasonInvalidSelector, field, err.Error()}, true
	}
	return Problem{}, false
}

func wrongPlan(plan []v1alpha1.DrainStep) []Problem {
	var found []Problem
	for i, step := range plan {
		field := fmt.Sprintf("spec.plan[%d]", i)
		if p, wrong := wrongSelector(field+".pods", step.Pods); wrong {
			found = append(found, p)
		}
		if p, wrong := wrongSelector(field+".namespaces", step.Namespaces); wrong {
			found = append(found, p)
		}
		for j, before := range plan[:i] {
			if covers(before, step) {
				found = append(found, Problem{v1alpha1.ReasonPlanContradiction, field, fmt.Sprintf(
					"can never select a pod: spec.plan[%d] selects all that it does; leave it out or move it before that one", j)})
				break
			}
		}
	}
	return found
}

// covers says whether a step selects every pod that another one does, as far as that can be told from their fields.
func covers(wide, narrow v1alpha1.DrainStep) bool {
	return typeOf(wide) == typeOf(narrow) && widerSelector(wide.Pods, narrow.Pods) &&
		widerSelector(wide.Namespaces, narrow.Namespaces) &&
		(wide.Priority == nil || narrow.Priority != nil && *narrow.Priority <= *wide.Priority)
}

func typeOf(step v1alpha1.DrainStep) v1alpha1.PodType {
	if step.Type == "" {
		return v1alpha1.DefaultPods
	}
	return step.Type
}

func widerSelector(wide, narrow *metav1.LabelSelector) bool {
	all := wide == nil || len(wide.MatchLabels)+len(wide.MatchExpressions) == 0
	return all || reflect.DeepEqual(wide, narrow)
}
