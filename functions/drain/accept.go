package drain

import (
	"fmt"
	"slices"
	"time"

	"github.com/rehome-dev/rehome/maintenance"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// refusal is why the maintenance begins no node. nil: it may. Nodes that were begun before are led to their end.
func (w *work) refusal() *maintenance.Problem {
	if problems := maintenance.Validate(*w.spec); len(problems) > 0 {
		return &problems[0]
	}
	if w.spec.Window != nil && !w.InWindow && w.NextWindow.IsZero() && !w.begun() {
		return &maintenance.Problem{
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
func (w *work) guarded() *maintenance.Problem {
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
	case len(meant) > maintenance.MostNodes:
		return &maintenance.Problem{Reason: v1alpha1.ReasonTooManyNodes, Field: "spec.nodes", Message: fmt.Sprintf(
			"means more than %d nodes; make several maintenances, such as one for each pool of nodes", maintenance.MostNodes)}
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

func (w *work) guard(g v1alpha1.Guard, message string) *maintenance.Problem {
	if slices.Contains(w.spec.Force, g) {
		return nil
	}
	return &maintenance.Problem{
		Reason: string(g), Field: "spec.nodes", Message: message + "; if that is what you want, add " + string(g) + " to spec.force",
	}
}

// clock is a time for people.
func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }
