package try

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/simulate"
)

// printSettlement prints the moves of each round, and the numbers that they changed.
func printSettlement(w io.Writer, s simulate.Settlement) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	before := s.Before
	moves, back := 0, 0
	for i, r := range s.Rounds {
		fmt.Fprintf(t, "Round %d: %s\n", r.Number, cmdutil.Count(len(r.Moves), "move"))
		last := i == len(s.Rounds)-1
		printMoves(t, r, last)
		printChanges(t, before, r.After)
		before = r.After
		moves += len(r.Moves)
		for _, m := range r.Moves {
			if m.To == m.Node {
				back++
			}
		}
		fmt.Fprintln(t)
	}
	switch {
	case s.Settled:
		fmt.Fprintf(t, "settled after %s", cmdutil.Count(len(s.Rounds)-1, "round"))
	case s.Loop != nil && *s.Loop == 0:
		fmt.Fprintf(t, "a loop: round %d leads back to the first state", len(s.Rounds))
	case s.Loop != nil:
		fmt.Fprintf(t, "a loop: round %d leads back to the state after round %d", len(s.Rounds), *s.Loop)
	default:
		fmt.Fprintf(t, "not settled after %s", cmdutil.Count(len(s.Rounds), "round"))
	}
	fmt.Fprintf(t, ": %s, %d back on the same node, %s Pending\n",
		cmdutil.Count(moves, "move"), back, cmdutil.Count(before.Pending, "pod"))
	return t.Flush()
}

// printMoves prints the moves of a round and the pods that got a node. For the last round it also prints the pods that should
// move and do not.
func printMoves(w io.Writer, r simulate.Round, last bool) {
	rows := [][]string{}
	for _, m := range r.Moves {
		to, reason := m.To, m.Message
		switch {
		case m.Replacement == "":
			to = "none"
		case to == "":
			to, reason = "Pending", m.Pending
		}
		rows = append(rows, []string{podName(m.Pod), m.Node, to, m.Strategy, reason})
	}
	for _, p := range r.Placed {
		rows = append(rows, []string{podName(p.Pod), "Pending", p.Node, "", "there is room for it now"})
	}
	for _, l := range r.Held {
		if last && l.Outcome != schemas.Rejected {
			rows = append(rows, []string{podName(l.Pod), l.Node, string(l.Outcome), l.Strategy, string(l.Reason) + ": " + l.Message})
		}
	}
	if len(rows) > 0 {
		fmt.Fprintln(w, "POD\tFROM\tTO\tSTRATEGY\tREASON")
	}
	for _, row := range rows {
		for i := range row {
			row[i] = cmdutil.Printable(row[i])
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
}

func podName(p schemas.PodRef) string { return p.Namespace + "/" + p.Name }

// printChanges prints the numbers that changed, and the numbers that are still wrong.
func printChanges(w io.Writer, before, after simulate.State) {
	was := map[string]string{}
	for _, f := range facts(before) {
		was[f.name] = f.value
	}
	begun := false
	for _, f := range facts(after) {
		if was[f.name] == f.value && !f.wrong {
			continue
		}
		if !begun {
			fmt.Fprintln(w, "\nSTATE\tBEFORE\tAFTER")
			begun = true
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", cmdutil.Printable(f.name), was[f.name], f.value)
	}
}

// fact is a number of a state. wrong means that a strategy would improve it, or that it violates a constraint.
type fact struct {
	name, value string
	wrong       bool
}

func facts(s simulate.State) (all []fact) {
	for _, of := range s.Strategies {
		all = append(all, fact{"pods to move: " + of.Profile + "/" + of.Strategy, fmt.Sprint(of.Wanted), of.Wanted > 0})
	}
	for _, of := range s.Spreads {
		key := of.TopologyKey[strings.LastIndex(of.TopologyKey, "/")+1:]
		name := fmt.Sprintf("skew: %s, %s, at most %d", of.Workload, key, of.MaxSkew)
		all = append(all, fact{name, fmt.Sprint(of.Skew), of.Skew > of.MaxSkew})
	}
	for _, of := range s.Nodes {
		value := fmt.Sprintf("%s, %d%% of cpu, %d%% of memory", cmdutil.Count(of.Pods, "pod"), of.CPU, of.Memory)
		all = append(all, fact{name: "requests: node " + of.Name, value: value})
	}
	return append(all, fact{"pods without a node", fmt.Sprint(s.Pending), s.Pending > 0})
}
