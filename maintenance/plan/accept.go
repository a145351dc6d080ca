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

// refusal returns the reason why the maintenance begins no node, or nil. Nodes that were begun before are finished.
func (w *work) refusal() *Problem {
	if problems := Validate(*w.spec); len(problems) > 0 {
		return &problems[0]
	}
	if w.spec.Window != nil && !w.InWindow && w.NextWindow.IsZero() && !w.begun() {
		ended := "ended"
		if w.spec.Window.End != nil {
			ended += " at " + clock(w.spec.Window.End.Time)
		}
		return &Problem{v1alpha1.ReasonWindowPast, "spec.window", ended + " before any node was started"}
	}
	return w.guarded()
}

// guarded returns the guard that refuses the maintenance. In a cluster of one node only SingleNode applies.
func (w *work) guarded() *Problem {
	meant, ofControlPlane := w.selected(), 0
	for _, n := range meant {
		if ControlPlane(&n.in.Node) {
			ofControlPlane++
		}
	}
	refuse := func(g v1alpha1.Guard, format string, values ...any) *Problem {
		if slices.Contains(w.spec.Force, g) {
			return nil
		}
		return &Problem{string(g), "spec.nodes",
			fmt.Sprintf(format, values...) + "; if that is what you want, add " + string(g) + " to spec.force"}
	}
	switch {
	case len(meant) == 0:
	case len(meant) > MostNodes:
		return &Problem{v1alpha1.ReasonTooManyNodes, "spec.nodes", fmt.Sprintf(
			"selects more than %d nodes; make several maintenances, such as one for each pool of nodes", MostNodes)}
	case w.Cluster.Nodes == 1:
		return refuse(v1alpha1.SingleNode, "selects the only node of the cluster: its pods have nowhere to go")
	case len(meant) >= w.Cluster.Nodes && !slices.Contains(w.spec.Force, v1alpha1.AllNodes):
		return refuse(v1alpha1.AllNodes, "selects all %d nodes of the cluster", len(meant))
	case ofControlPlane > 0 && ofControlPlane >= len(w.Cluster.ControlPlane):
		return refuse(v1alpha1.ControlPlane, "selects every node of the control plane (%d)", ofControlPlane)
	}
	return nil
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Problem is one error in the spec of a maintenance.
type Problem struct {
	// Reason is one of the Refusals of package v1alpha1.
	Reason string
	// Field is the path of the field. Message describes the error and the correct value.
	Field, Message string
}

// Error returns FIELD: MESSAGE.
func (p Problem) Error() string { return p.Field + ": " + p.Message }

// Validate returns the errors in a spec that the API server cannot detect, in the order of the fields.
func Validate(spec v1alpha1.NodeMaintenanceSpec) []Problem {
	var found []Problem
	selectorProblem := func(field string, s *metav1.LabelSelector) {
		if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
			found = append(found, Problem{v1alpha1.ReasonInvalidSelector, field, err.Error()})
		}
	}
	switch s := spec.Nodes.Selector; {
	case s == nil && len(spec.Nodes.Names) == 0:
		found = append(found, Problem{v1alpha1.ReasonEmptySelector, "spec.nodes", "selects no node; want names or a selector"})
	case s != nil && len(s.MatchLabels)+len(s.MatchExpressions) == 0:
		found = append(found, Problem{v1alpha1.ReasonEmptySelector, "spec.nodes.selector",
			"is empty, which would be every node; want at least one label"})
	default:
		selectorProblem("spec.nodes.selector", s)
	}
	if spec.Window != nil && spec.Window.Schedule != nil {
		var p Problem
		if _, err := schedule(*spec.Window.Schedule); errors.As(err, &p) {
			found = append(found, p)
		}
	}
	for i, step := range spec.Plan {
		field := fmt.Sprintf("spec.plan[%d]", i)
		selectorProblem(field+".pods", step.Pods)
		selectorProblem(field+".namespaces", step.Namespaces)
		j := slices.IndexFunc(spec.Plan[:i], func(before v1alpha1.DrainStep) bool { return covers(before, step) })
		if j >= 0 {
			found = append(found, Problem{v1alpha1.ReasonPlanContradiction, field, fmt.Sprintf(
				"can never select a pod: spec.plan[%d] selects all that it does; leave it out or move it before that one", j)})
		}
	}
	return found
}

// covers reports whether a step certainly selects every pod that another one selects.
func covers(wide, narrow v1alpha1.DrainStep) bool {
	daemonSets := func(s v1alpha1.DrainStep) bool { return s.Type == v1alpha1.DaemonSetPods }
	return daemonSets(wide) == daemonSets(narrow) && wider(wide.Pods, narrow.Pods) && wider(wide.Namespaces, narrow.Namespaces) &&
		(wide.Priority == nil || narrow.Priority != nil && *narrow.Priority <= *wide.Priority)
}

func wider(wide, narrow *metav1.LabelSelector) bool {
	all := wide == nil || len(wide.MatchLabels)+len(wide.MatchExpressions) == 0
	return all || reflect.DeepEqual(wide, narrow)
}
