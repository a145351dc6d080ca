package look

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cli/command"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// Write writes the status for people: the most important thing first, and no table without rows.
func (st Status) Write(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintln(&text, st.brief())
	for _, c := range st.Storm {
		fmt.Fprintf(&text, "cluster circuit breaker: %s: %s\n", c.Reason, c.Message)
	}
	st.writeMoves(&text)
	st.Counted.write(&text)
	writeBreakers(&text, st.WorkloadBreakers)
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
	command.WriteTable(w, false, "POD\tNODE\tMETHOD\tWORKLOAD\tSTRATEGY\tBEGUN\tWAITS FOR", rows)
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
	command.WriteTable(w, false, head, rows)
}

func limitInWords(limit *uint) string {
	if limit == nil {
		return "none"
	}
	return fmt.Sprint(*limit)
}

// limitsInWords lists the limits of the policy.
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

func writeBreakers(w io.Writer, list []WorkloadBreaker) {
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
	command.WriteTable(w, false, "WORKLOAD\tNODE\tSTRATEGY\tRETURNS\tCIRCUIT BREAKER", rows)
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
	command.WriteTable(w, false, "LEASE\tHOLDER\tSINCE", rows)
}

// ShownDeferred is how many deferred pods a table has at most: a screen. JSON has all of them.
const ShownDeferred = 20

func (st Status) writeDeferred(w io.Writer) {
	var rows [][]string
	for _, d := range st.Deferred[:min(len(st.Deferred), ShownDeferred)] {
		again := "-"
		if !d.Again.IsZero() {
			again = "in " + max(d.Again.Sub(st.Time), 0).Truncate(time.Second).String()
		}
		rows = append(rows, []string{
			d.Pod.String(), d.Strategy, string(d.Reason), command.Age(st.Time, d.Since), command.Age(st.Time, d.Last), again,
			command.Printable(d.Message),
		})
	}
	command.WriteTable(w, true, "DEFERRED POD\tSTRATEGY\tREASON\tSINCE\tLAST TRY\tNEXT TRY\tMESSAGE", rows)
	if more := len(st.Deferred) - ShownDeferred; more > 0 {
		fmt.Fprintf(w, "and %d more; -o json has all of them\n", more)
	}
}

func (st Status) writeRequests(w io.Writer) {
	var rows [][]string
	for _, r := range st.Requests {
		deadline := "-"
		if r.Action == schemas.ActionDeschedule || r.Action == schemas.ActionMaintain {
			deadline = "in " + max(r.ends().Sub(st.Time), 0).Truncate(time.Second).String()
		}
		rows = append(rows, []string{
			r.Sender + "/" + r.Name, command.Ago(st.Time, r.Since), deadline, command.Printable(DescribeRequest(r.Request)),
		})
	}
	command.WriteTable(w, true, "OPEN REQUEST\tSENT\tDEADLINE\tWANTS", rows)
}

// ends is the deadline, or the default one.
func (r OpenRequest) ends() time.Time {
	switch {
	case r.Deadline.IsZero() && r.Action == schemas.ActionMaintain:
		return r.Since.Add(24 * time.Hour)
	case r.Deadline.IsZero():
		return r.Since.Add(time.Hour)
	}
	return r.Deadline
}

// writeStreams writes streams, consumers, and the number of dead letters.
func (st Status) writeStreams(w io.Writer) {
	var rows, workers [][]string
	for _, s := range st.Streams {
		used := ""
		if s.MaxBytes > 0 {
			used = fmt.Sprintf("%d%% of %s", s.Bytes*100/uint64(s.MaxBytes), command.SizeOf(uint64(s.MaxBytes)))
		}
		rows = append(rows, []string{s.Name, strconv.FormatUint(s.Messages, 10), command.SizeOf(s.Bytes), used})
		for _, k := range s.Workers {
			if k == (bus.WorkerStatus{Strategy: k.Strategy}) {
				continue // nobody works on it, and there is nothing to work on
			}
			workers = append(workers, []string{
				k.Strategy, strconv.FormatUint(k.Waiting, 10), strconv.Itoa(k.InHand), strconv.Itoa(k.Again), strconv.Itoa(k.Idle),
			})
		}
	}
	command.WriteTable(w, false, "STREAM\tMESSAGES\tBYTES\tUSED", rows)
	command.WriteTable(w, false, "SCOPES OF\tWAITING\tIN HAND\tTRIED AGAIN\tIDLE HANDLERS", workers)
	if len(st.DeadLetters) == 0 {
		return
	}
	var dead []string
	for _, of := range slices.Sorted(maps.Keys(st.DeadLetters)) {
		dead = append(dead, fmt.Sprintf("%d from %s", st.DeadLetters[of], of))
	}
	fmt.Fprintf(w, "\ndead letters: %s; see rehome dead list\n", strings.Join(dead, ", "))
}

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
	command.WriteTable(w, true, "MAINTENANCE\tWANTED\tNODE IS\tPODS LEFT\tSINCE\tMESSAGE", rows)
}
