package look

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cli/command"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// MaintenanceStatus is how far a maintenance is that was asked for on the bus. Those that are objects, kubectl shows.
type MaintenanceStatus struct {
	Name  string         `json:"name"`
	Stage v1alpha1.Stage `json:"stage"` // what is wanted
	// Node is how far its node is. Empty: nothing is known of it yet.
	Node        v1alpha1.NodeStage `json:"node,omitempty"`
	PodsLeft    int32              `json:"podsLeft"`
	PodsBlocked int32              `json:"podsBlocked"`
	Message     string             `json:"message"`
	Reason      string             `json:"reason"`
	Since       time.Time          `json:"since"`
}

// readMaintenances reads those of the bus, by name.
func readMaintenances(ctx context.Context, b *bus.Bus) ([]MaintenanceStatus, error) {
	list, err := b.Maintenances().List(ctx)
	all := []MaintenanceStatus{}
	for _, m := range list {
		all = append(all, MaintenanceStatusOf(m))
	}
	slices.SortFunc(all, func(a, b MaintenanceStatus) int { return cmp.Compare(a.Name, b.Name) })
	return all, err
}

func MaintenanceStatusOf(m *v1alpha1.NodeMaintenance) MaintenanceStatus {
	s := MaintenanceStatus{
		Name: m.Name, Stage: m.Spec.Stage, PodsLeft: m.Status.Summary.PodsLeft, PodsBlocked: m.Status.Summary.PodsBlocked,
		Message: m.Status.Summary.Message, Reason: m.Spec.Reason, Since: m.CreationTimestamp.UTC(),
	}
	if len(m.Status.Nodes) == 1 { // an entry is about one
		s.Node = m.Status.Nodes[0].Stage
	}
	return s
}

func (st Status) writeMaintenances(w io.Writer) {
	var rows [][]string
	for _, m := range st.Maintenances {
		left := strconv.Itoa(int(m.PodsLeft))
		if m.PodsBlocked > 0 {
			left += ", " + strconv.Itoa(int(m.PodsBlocked)) + " blocked"
		}
		rows = append(rows, []string{
			m.Name, string(m.Stage), cmp.Or(string(m.Node), "-"), left, command.Ago(st.Time, m.Since),
			command.Printable(cmp.Or(m.Message, m.Reason)),
		})
	}
	const head = "MAINTENANCE\tWANTED\tNODE IS\tPODS LEFT\tSINCE\tMESSAGE"
	command.CutLast(rows, strings.Split(head, "\t"))
	command.WriteTable(w, head, rows)
}
