package look

import (
	"fmt"
	"io"
	"strings"

	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/explain"
)

// WorkloadPage writes the explanation of a workload as text.
type WorkloadPage struct{ explain.WorkloadExplanation }

// Write writes the explanation as text.
func (x WorkloadPage) Write(w io.Writer) error {
	fmt.Fprintf(w, "%s %s/%s has %s\n", strings.ToLower(x.Workload.Kind), cmdutil.Printable(x.Workload.Namespace),
		cmdutil.Printable(x.Workload.Name), cmdutil.Count(len(x.Pods), "pod"))
	var pods, guards, limits, unknown [][]any
	for _, p := range x.Pods {
		pods = append(pods, []any{p.Name, p.Node, p.Phase, p.Replacement})
		for _, g := range p.Guards {
			for _, r := range g.Rules {
				guards = append(guards, []any{p.Name, g.Profile, r.Rule, r.Detail})
			}
		}
		for _, b := range p.Budgets {
			if b.Allowed <= 0 {
				guards = append(guards, []any{p.Name, "", "DisruptionBudget", b.Message})
			}
		}
	}
	for _, l := range x.Limits {
		limits = append(limits, []any{l.Limit, l.Used, fmt.Sprint(l.Most)})
	}
	for _, u := range x.Unknown {
		unknown = append(unknown, []any{u.What, u.Why})
	}
	for _, s := range []struct {
		title string
		table cmdutil.Table
	}{
		{"Pods", rows("Pod,Node,Phase,Replacement", pods)}, {"Protections", rows("Pod,Profile,Rule,Message", guards)},
		{"Limits", rows("Limit,Used,Most", limits)}, {"Moves in flight", MovesTable(x.Time, x.Held.Moves)},
		{"Workload circuit breakers", BreakersTable(x.Time, x.Held.WorkloadBreakers)}, {"Unknown", rows("Part,Reason", unknown)},
	} {
		if err := section(w, s.title, s.table); err != nil {
			return err
		}
	}
	for _, c := range x.Held.Storm {
		fmt.Fprintf(w, "\ncluster circuit breaker: %s: %s\n", c.Reason, cmdutil.Printable(c.Message))
	}
	return nil
}
