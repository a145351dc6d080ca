package look

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/status"
)

// shownDeferred limits the deferred pods in the status to one screen. `rehome get deferred` lists all of them.
const shownDeferred = 20

// Write writes the status as text, with the most important part first and without empty tables.
func (st StatusPage) Write(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintln(&text, st.brief())
	for _, c := range st.Storm {
		fmt.Fprintf(&text, "cluster circuit breaker: %s: %s\n", c.Reason, cmdutil.Printable(c.Message))
	}
	err := errors.Join(
		section(&text, "Moves in flight", MovesTable(st.Time, st.MovesInFlight)),
		writeCounted(st.Counted, &text),
		section(&text, "Workload circuit breakers", BreakersTable(st.Time, st.WorkloadBreakers)),
		st.writeLeaders(&text),
		section(&text, "Deferred pods", DeferredTable(st.Time, st.Deferred[:min(len(st.Deferred), shownDeferred)])),
	)
	if more := len(st.Deferred) - shownDeferred; more > 0 {
		fmt.Fprintf(&text, "and %d more; `rehome get deferred` lists all of them\n", more)
	}
	err = errors.Join(err,
		section(&text, "Open requests", RequestsTable(st.Time, st.Requests)),
		section(&text, "Maintenances", MaintenancesTable(st.Time, st.Maintenances)),
		st.writeStreams(&text),
	)
	for _, limit := range st.LimitsReached {
		fmt.Fprintln(&text, "limit reached:", limit)
	}
	if st.BusWarning != "" {
		fmt.Fprintln(&text, st.BusWarning)
	}
	if st.ClockWarning != "" {
		fmt.Fprintln(&text, st.ClockWarning)
	}
	for _, u := range st.Unreadable {
		fmt.Fprintln(&text, "cannot be read:", cmdutil.Printable(u))
	}
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, text.String())
	return err
}

func writeCounted(c status.MoveCount, w io.Writer) error {
	switch allows := limitsInWords(c); {
	case c.Window != "" && allows != "":
		fmt.Fprintf(w, "\n%s in the window of %s; the policy allows %s\n", cmdutil.Count(c.Total, "move"), c.Window, allows)
	case c.Window != "":
		fmt.Fprintf(w, "\n%s in the window of %s\n", cmdutil.Count(c.Total, "move"), c.Window)
	case len(c.Ages) > 0 && c.Total > 0:
		fmt.Fprintf(w, "\nrecorded moves: %d in the last minute, %d in the last 5 minutes, %d in the last hour, %d older\n",
			c.Ages[0], c.Ages[0]+c.Ages[1], c.Ages[0]+c.Ages[1]+c.Ages[2], c.Ages[3])
	case allows != "":
		fmt.Fprintf(w, "\nthe policy allows %s\n", allows)
	}
	if c.Window == "" && len(c.Ages) == 0 {
		return nil // the ledger has only some of the moves
	}
	limits := status.MoveLimits{}
	if c.Limits != nil {
		limits = *c.Limits
	}
	var cells [][]any
	for _, of := range []struct {
		kind   string
		counts map[string]int
		limit  *uint
	}{{"node", c.Nodes, limits.PerNode}, {"namespace", c.Namespaces, limits.PerNamespace}} {
		for _, name := range slices.SortedFunc(maps.Keys(of.counts), func(a, b string) int {
			return cmp.Or(cmp.Compare(of.counts[b], of.counts[a]), cmp.Compare(a, b))
		}) {
			cells = append(cells, []any{of.kind + "/" + name, of.counts[name], limitInWords(of.limit)})
		}
	}
	return section(w, "Moves off nodes and namespaces", rows("Place,Pods,Limit", cells))
}

func limitInWords(limit *uint) string {
	if limit == nil {
		return "none"
	}
	return fmt.Sprint(*limit)
}

// limitsInWords lists the limits of the policy.
func limitsInWords(c status.MoveCount) string {
	var words []string
	if c.Limits != nil && c.Limits.Total != nil {
		words = append(words, fmt.Sprintf("at most %d", *c.Limits.Total))
	}
	if c.InFlight != nil {
		for _, of := range []struct {
			what  string
			limit *uint
		}{
			{"at once", c.InFlight.Total}, {"per node", c.InFlight.PerNode}, {"per namespace", c.InFlight.PerNamespace},
			{"per workload", c.InFlight.PerWorkload},
		} {
			if of.limit != nil {
				words = append(words, fmt.Sprintf("%d in flight %s", *of.limit, of.what))
			}
		}
	}
	return strings.Join(words, ", ")
}

func (st StatusPage) writeLeaders(w io.Writer) error {
	if st.NoLeaders != "" {
		_, err := fmt.Fprintf(w, "\nThe leaders are unknown: %s\n", st.NoLeaders)
		return err
	}
	var cells [][]any
	for _, l := range st.Leaders {
		cells = append(cells, []any{l.Lease, l.Holder, cmdutil.Age(st.Time, l.Since)})
	}
	return section(w, "Leaders", rows("Lease,Holder,Age", cells))
}

// writeStreams writes streams, consumers, and the number of dead letters.
func (st StatusPage) writeStreams(w io.Writer) error {
	var streams, strategies, listeners [][]any
	for _, s := range st.Streams {
		used := ""
		if s.MaxBytes > 0 {
			used = fmt.Sprintf("%d%% of %s", s.Bytes*100/uint64(s.MaxBytes), cmdutil.SizeOf(uint64(s.MaxBytes)))
		}
		streams = append(streams, []any{s.Name, strconv.FormatUint(s.Messages, 10), cmdutil.SizeOf(s.Bytes), used})
		for _, k := range s.Workers {
			if k == (bus.WorkerStatus{Strategy: k.Strategy}) { // it has no work and no workers
				continue
			}
			row := []any{k.Strategy, strconv.FormatUint(k.Pending, 10), k.AckPending, k.Redelivered, k.Idle}
			switch s.Name {
			case bus.StreamScopes:
				strategies = append(strategies, row)
			case bus.StreamEvents:
				listeners = append(listeners, row)
			}
		}
	}
	err := errors.Join(
		section(w, "Streams", rows("Name,Messages,Size,Used", streams)),
		section(w, "Scopes to evaluate", rows("Strategy,Waiting,Being evaluated,Redelivered,Free processes", strategies)),
		section(w, "Listeners", rows("Listener,Waiting,Unacknowledged,Redelivered,Free processes", listeners)),
	)
	if len(st.DeadLetters) > 0 {
		var dead []string
		for _, of := range slices.Sorted(maps.Keys(st.DeadLetters)) {
			dead = append(dead, fmt.Sprintf("%d from %s", st.DeadLetters[of], of))
		}
		fmt.Fprintf(w, "\ndead letters: %s; see `rehome get deadletters`\n", strings.Join(dead, ", "))
	}
	return err
}
