package look

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rehome-dev/rehome/cli/command"
)

// Write writes the status for people: the most important thing first, and no table without rows.
func (st Status) Write(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintln(&text, st.brief())
	for _, c := range st.Storm {
		fmt.Fprintf(&text, "storm brake: %s: %s\n", c.Reason, c.Message)
	}
	st.writeMoves(&text)
	st.Counted.write(&text)
	writeBreakers(&text, st.LoopBreakers)
	st.writeLeaders(&text)
	st.writeDeferred(&text)
	st.writeRequests(&text)
	st.writeMaintenances(&text)
	st.writeStreams(&text)
	for _, u := range st.Unreadable {
		fmt.Fprintln(&text, "cannot be read:", u)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

func (st Status) writeMoves(w io.Writer) {
	var rows [][]string
	for _, m := range st.MovesInFlight {
		rows = append(rows, []string{
			m.Pod.String(), m.Node, string(m.Method), nameOfWorkload(m.Workload, ""), m.Strategy, command.Ago(st.Time, m.Begun), m.WaitsFor,
		})
	}
	command.WriteTable(w, "POD\tNODE\tMETHOD\tWORKLOAD\tSTRATEGY\tBEGUN\tWAITS FOR", rows)
}

func (c moveCount) write(w io.Writer) {
	if c.Window == "" {
		if c.Total > 0 {
			fmt.Fprintf(w, "\nmoves that are remembered: %d in the last minute, %d in the last 5 minutes, %d in the last hour, %d older\n",
				c.Ages[0], c.Ages[0]+c.Ages[1], c.Ages[0]+c.Ages[1]+c.Ages[2], c.Ages[3])
		}
	} else {
		fmt.Fprintf(w, "\n%s in the window of %s%s\n", command.Count(c.Total, "move"), c.Window, c.limitsInWords())
	}
	limits := moveLimits{}
	if c.Limits != nil {
		limits = *c.Limits
	}
	head, limited := "MOVED OFF\tPODS", limits.PerNode != nil || limits.PerNamespace != nil
	if limited {
		head += "\tLIMIT"
	}
	var rows [][]string
	for _, of := range []struct {
		kind   string
		counts map[string]int
		limit  *uint
	}{{"node", c.Nodes, limits.PerNode}, {"namespace", c.Namespaces, limits.PerNamespace}} {
		for _, name := range slices.SortedFunc(maps.Keys(of.counts), func(a, b string) int {
			return cmp.Or(cmp.Compare(of.counts[b], of.counts[a]), cmp.Compare(a, b))
		}) {
			row := []string{of.kind + "/" + name, fmt.Sprint(of.counts[name])}
			if limited {
				row = append(row, limitInWords(of.limit))
			}
			rows = append(rows, row)
		}
	}
	command.WriteTable(w, head, rows)
}

func limitInWords(limit *uint) string {
	if limit == nil {
		return "none"
	}
	return fmt.Sprint(*limit)
}

// limitsInWords are the limits on all moves of the window, and on what is in flight at once. Empty: there are none.
func (c moveCount) limitsInWords() string {
	var words []string
	if c.Limits != nil && c.Limits.Total != nil {
		words = append(words, fmt.Sprintf("at most %d", *c.Limits.Total))
	}
	if c.InFlight != nil {
		for _, of := range []struct {
			what  string
			limit *uint
		}{
			{"at once", c.InFlight.Total}, {"a node", c.InFlight.PerNode}, {"a namespace", c.InFlight.PerNamespace},
			{"a workload", c.InFlight.PerWorkload},
		} {
			if of.limit != nil {
				words = append(words, fmt.Sprintf("%d in flight %s", *of.limit, of.what))
			}
		}
	}
	if len(words) == 0 {
		return ""
	}
	return "; the policy allows " + strings.Join(words, ", ")
}

// writeBreakers writes a table of loop breakers.
func writeBreakers(w io.Writer, list []LoopBreaker) {
	var rows [][]string
	for _, l := range list {
		state := "over since "
		if l.Holds {
			state = "holds until "
		}
		rows = append(rows, []string{
			nameOfWorkload(l.Name, string(l.Workload)), l.Node, l.Strategy, fmt.Sprint(l.Returns),
			state + l.Until.Local().Format(time.DateTime),
		})
	}
	command.WriteTable(w, "WORKLOAD\tNODE\tSTRATEGY\tRETURNS\tLOOP BREAKER", rows)
}

func (st Status) writeLeaders(w io.Writer) {
	if st.NoLeaders != "" {
		fmt.Fprintf(w, "\nwho leads is not known: %s\n", st.NoLeaders)
		return
	}
	var rows [][]string
	for _, l := range st.Leaders {
		holder, since := "nobody", ""
		if l.Holder != "" {
			holder = l.Holder
		}
		if !l.Since.IsZero() {
			since = command.Ago(st.Time, l.Since)
		}
		rows = append(rows, []string{l.Lease, holder, since})
	}
	command.WriteTable(w, "LEASE\tHOLDER\tSINCE", rows)
}
