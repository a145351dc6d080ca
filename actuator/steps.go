package actuator

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rehome-dev/rehome/schemas"
)

// mostSteps is how many nodes one answer may change: a maintenance lists a thousand by name, and a selector may mean more.
const mostSteps = 10_000

// checkSteps says what is wrong with what an answer wants besides moves. Only the subject of maintenances can carry that, so
// that whoever may answer for strategies alone cannot have nodes cordoned; and what is marked is marked by that maintenance.
// One of the table is about its own node alone.
func checkSteps(a schemas.Intents) error {
	ofMaintenance := a.Strategy == schemas.MaintenanceStrategy
	if ofMaintenance != (a.Scope.Kind == schemas.MaintenanceKind) {
		return fmt.Errorf("strategy %s answers a scope of the kind %s; want %s for %s, and for nothing else",
			a.Strategy, a.Scope.Kind, schemas.MaintenanceStrategy, schemas.MaintenanceKind)
	}
	s := a.Maintenance
	if s == nil {
		return nil
	}
	only, tabled := schemas.InTable(s.Name)
	switch {
	case !ofMaintenance:
		return fmt.Errorf("maintenance is set, and the strategy is %s", a.Strategy)
	case s.Name != a.Scope.Key:
		return fmt.Errorf("maintenance.name is %q, and the scope is that of maintenance %s", s.Name, a.Scope.Key)
	case strings.Contains(s.Name, "/") && !tabled:
		return fmt.Errorf("maintenance.name is %q, which is neither that of an object nor node/NODE nor sign/NODE", s.Name)
	case s.UID == "" || s.ResourceVersion == "":
		return errors.New("maintenance needs uid and resourceVersion")
	case len(s.Nodes) > mostSteps:
		return fmt.Errorf("maintenance.nodes has %d steps, want at most %d", len(s.Nodes), mostSteps)
	}
	seen := make(map[string]bool, len(s.Nodes))
	for i, n := range s.Nodes {
		if err := checkStep(*s, n); err != nil {
			return fmt.Errorf("maintenance.nodes[%d]%w", i, err)
		}
		if tabled && n.Name != only {
			return fmt.Errorf("maintenance.nodes[%d] is node %s, and the maintenance is that of node %s", i, n.Name, only)
		}
		if seen[n.Name] {
			return fmt.Errorf("maintenance.nodes[%d] lists node %s again", i, n.Name)
		}
		seen[n.Name] = true
	}
	return nil
}

func checkStep(s schemas.MaintenanceSteps, n schemas.NodeStep) error {
	switch {
	case n.Name == "" || n.UID == "":
		return errors.New(" needs name and uid")
	case n.Action != schemas.NodeCordon && n.Action != schemas.NodeReturn && n.Action != schemas.NodeMark:
		return fmt.Errorf(".action is %q, want %s, %s or %s", n.Action, schemas.NodeCordon, schemas.NodeReturn, schemas.NodeMark)
	case n.Action != schemas.NodeMark && n.Mark.UID != s.UID:
		return fmt.Errorf(".mark is that of %q, want %q", n.Mark.UID, s.UID)
	case n.Action == schemas.NodeCordon && n.Mark.Name != s.Name:
		return fmt.Errorf(".mark.name is %q, want %q", n.Mark.Name, s.Name)
	}
	return nil
}
