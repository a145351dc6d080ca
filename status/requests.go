package status

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// OpenRequest is a request that is not finished.
type OpenRequest struct {
	schemas.Request
	Since time.Time `json:"since"` // when the bus stored it
}

// Requests reads the open requests.
func Requests(ctx context.Context, b *bus.Bus) ([]OpenRequest, error) {
	open, err := b.OpenRequests(ctx)
	all := []OpenRequest{}
	for _, o := range open {
		all = append(all, OpenRequest{o.Request, o.Stored.UTC()})
	}
	return all, err
}

// Ends returns the deadline, or the default one.
func (r OpenRequest) Ends() time.Time {
	switch {
	case r.Deadline.IsZero() && r.Action == schemas.ActionMaintain:
		return r.Since.Add(24 * time.Hour)
	case r.Deadline.IsZero():
		return r.Since.Add(time.Hour)
	}
	return r.Deadline
}

// Maintenance is the progress of a maintenance that was requested on the bus. For NodeMaintenance objects, use kubectl.
type Maintenance struct {
	Name  string         `json:"name"`
	Stage v1alpha1.Stage `json:"stage"` // the requested one
	// Node is the stage of its node. Empty means it is not known yet.
	Node        v1alpha1.NodeStage `json:"node,omitempty"`
	PodsLeft    int32              `json:"podsLeft"`
	PodsBlocked int32              `json:"podsBlocked"`
	Message     string             `json:"message"`
	Reason      string             `json:"reason"`
	Since       time.Time          `json:"since"`
}

// Maintenances reads the maintenances that were requested on the bus.
func Maintenances(ctx context.Context, b *bus.Bus) ([]Maintenance, error) {
	list, err := b.Maintenances().List(ctx)
	all := []Maintenance{}
	for _, m := range list {
		all = append(all, MaintenanceOf(m))
	}
	slices.SortFunc(all, func(a, b Maintenance) int { return cmp.Compare(a.Name, b.Name) })
	return all, err
}

// MaintenanceOf returns the progress of a maintenance.
func MaintenanceOf(m *v1alpha1.NodeMaintenance) Maintenance {
	s := Maintenance{
		Name: m.Name, Stage: m.Spec.Stage, PodsLeft: m.Status.Summary.PodsLeft, PodsBlocked: m.Status.Summary.PodsBlocked,
		Message: m.Status.Summary.Message, Reason: m.Spec.Reason, Since: m.CreationTimestamp.UTC(),
	}
	if len(m.Status.Nodes) == 1 { // each has one
		s.Node = m.Status.Nodes[0].Stage
	}
	return s
}
