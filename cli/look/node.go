package look

import (
	"fmt"
	"io"

	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/explain"
)

// NodePage writes the explanation of a node as text.
type NodePage struct{ explain.NodeExplanation }

// Write writes the explanation as text.
func (x NodePage) Write(w io.Writer) error {
	stay := map[string]bool{}
	t := cmdutil.Table{Columns: []string{"Namespace", "Pod", "Profile", "Rule", "Message"}}
	for _, p := range x.Staying {
		stay[p.Namespace+"/"+p.Name] = true
		t.Rows = append(t.Rows, cmdutil.Row{Cells: []any{p.Namespace, p.Name, p.Profile, p.Rule, p.Message}})
	}
	fmt.Fprintf(w, "node %s has %s; %d of them could move, if a strategy, a request, or a maintenance wanted it\n",
		x.Node, cmdutil.Count(x.Pods, "pod"), x.Pods-len(stay))
	return section(w, "Pods that cannot move", t)
}
