package look

import (
	"fmt"
	"strings"

	"github.com/rehome-dev/rehome/cli/command"
	"github.com/rehome-dev/rehome/schemas"
)

// nodesShown is how many nodes of a maintenance are named on its line.
const nodesShown = 3

// describeMaintenance says why a maintenance is refused, which nodes are now how far, and how far it is itself.
func describeMaintenance(m schemas.Maintenance) string {
	var about []string
	for _, n := range m.Nodes {
		about = append(about, "node "+n.Name+" "+string(n.Stage))
	}
	if n := len(about) + m.More - nodesShown; n > 0 {
		about = append(about[:min(len(about), nodesShown)], fmt.Sprintf("%d more", n))
	}
	for _, c := range m.Changes {
		about = append(about, "node "+c.Name+": "+c.Message)
	}
	text := strings.Join(about, ", ")
	if m.DryRun {
		text = strings.TrimSuffix("(dry run) "+text, " ")
	}
	if text != "" {
		text += "  "
	}
	text += fmt.Sprintf("%s nodes, %s left", m.Summary.Nodes, command.Count(int(m.Summary.PodsLeft), "pod"))
	if m.Summary.PodsBlocked > 0 {
		text += fmt.Sprintf(", %d blocked", m.Summary.PodsBlocked)
	}
	switch {
	case m.Refusal != nil:
		text += ": refused: " + m.Refusal.Reason + ": " + m.Refusal.Message
	case m.Summary.Message != "":
		text += ": " + m.Summary.Message
	}
	return text
}
