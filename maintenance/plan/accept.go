package plan

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// refusal is why the maintenance begins no node. nil: it may. Nodes that were begun before are led to their end.
func (w *work) refusal() *Problem {
	if problems := Validate(*w.spec); len(problems) > 0 {
		return &problems[0]
	}
	if w.spec.Window != nil && !w.InWindow && w.NextWindow.IsZero() && !w.begun() {
		return &Problem{
			Reason: v1alpha1.ReasonWindowPast, Field: "spec.window", Message: "is over" + w.windowEnd() + ", and no node was begun",
		}
	}
	return w.guarded()
}

func (w *work) windowEnd() string {
	if w.spec.Window.End == nil {
		return ""
	}
	return " since " + clock(w.spec.Window.End.Time)
}

// guarded is the guard that the maintenance runs into. In a cluster of one node that is SingleNode alone.
func (w *work) guarded() *Problem {
	meant := w.meant()
	if len(meant) == 0 {
		return nil
	}
	ofControlPlane := 0
	for _, n := range meant {
		if n.in.ControlPlane {
			ofControlPlane++
		}
	}
	switch {
	case len(meant) > MostNodes:
		return &Problem{Reason: v1alpha1.ReasonTooManyNodes, Field: "spec.nodes", Message: fmt.Sprintf(
			"means more than %d nodes; make several maintenances, such as one for each pool of nodes", MostNodes)}
	case w.Cluster.Nodes == 1:
		return w.guard(v1alpha1.SingleNode, "means the only node of the cluster: its pods have nowhere to go")
	case len(meant) >= w.Cluster.Nodes && !slices.Contains(w.spec.Force, v1alpha1.AllNodes):
		return w.guard(v1alpha1.AllNodes, fmt.Sprintf("means all %d nodes of the cluster", len(meant)))
	case ofControlPlane > 0 && ofControlPlane >= w.Cluster.ControlPlane:
		return w.guard(v1alpha1.ControlPlane, fmt.Sprintf("means every node of the control plane (%d)", ofControlPlane))
	}
	return nil
}

// tooMany says whether so many nodes are meant that those that wait are not listed.
func (w *work) tooMany() bool {
	return w.refused != nil && w.refused.Reason == v1alpha1.ReasonTooManyNodes
}

func (w *work) guard(g v1alpha1.Guard, message string) *Problem {
	if slices.Contains(w.spec.Force, g) {
		return nil
	}
	return &Problem{
		Reason: string(g), Field: "spec.nodes", Message: message + "; if that is what you want, add " + string(g) + " to spec.force",
	}
}

// clock is a time for people.
func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

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
