package look

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/rehome-dev/rehome/actuator"
	"github.com/rehome-dev/rehome/bus"
	"github.com/rehome-dev/rehome/cli/cmdutil"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/status"
)

// table returns a table of a kind with a row for each item. columns and wide are separated by commas.
func table[T any](kind, columns, wide string, items []T, row func(T) cmdutil.Row) cmdutil.Table {
	t := cmdutil.Table{Kind: kind, Columns: strings.Split(columns, ",")}
	if wide != "" {
		t.Wide = strings.Split(wide, ",")
	}
	for _, item := range items {
		r := row(item)
		if r.Object == nil {
			r.Object = item
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}

// rows returns a table without objects.
func rows(columns string, cells [][]any) cmdutil.Table {
	return table("", columns, "", cells, func(c []any) cmdutil.Row { return cmdutil.Row{Cells: c} })
}

// MovesTable returns the table of the moves in flight.
func MovesTable(now time.Time, moves []actuator.Move) cmdutil.Table {
	const columns, wide = "Namespace,Pod,Node,Method,Workload,Strategy,Age,Waits for", "Profile,Intent"
	return table("Move", columns, wide, moves, func(m actuator.Move) cmdutil.Row {
		return cmdutil.Row{Namespace: m.Pod.Namespace, Name: m.Pod.Name, Type: "pod", Cells: []any{
			m.Pod.Namespace, m.Pod.Name, m.Node, string(m.Method), workload(m.Workload, ""), m.Strategy, cmdutil.Age(now, m.Begun),
			m.WaitsFor, m.Profile, m.Intent,
		}}
	})
}

// DeferredTable returns the table of the deferred pods.
func DeferredTable(now time.Time, pods []status.DeferredPod) cmdutil.Table {
	const columns, wide = "Namespace,Pod,Strategy,Reason,Age,Last try,Next try,Message", "Node,Profile,Verdicts"
	return table("DeferredPod", columns, wide, pods, func(d status.DeferredPod) cmdutil.Row {
		return cmdutil.Row{Namespace: d.Pod.Namespace, Name: d.Pod.Name, Type: "pod", Cells: []any{
			d.Pod.Namespace, d.Pod.Name, d.Strategy, string(d.Reason), cmdutil.Age(now, d.Since), cmdutil.Age(now, d.Last),
			cmdutil.In(now, d.Again), d.Message, d.Node, d.Profile, d.Times,
		}}
	})
}

// BreakersTable returns the table of the circuit breakers of workloads.
func BreakersTable(now time.Time, breakers []status.WorkloadBreaker) cmdutil.Table {
	const columns, wide = "Namespace,Workload,Node,Strategy,Returns,State,Until", "UID"
	return table("WorkloadBreaker", columns, wide, breakers, func(l status.WorkloadBreaker) cmdutil.Row {
		state, until := "closed", cmdutil.Age(now, l.Until)+" ago"
		if l.Holds {
			state, until = "open", cmdutil.In(now, l.Until)
		}
		row := cmdutil.Row{Name: string(l.Workload), Type: "uid"}
		if l.Name != nil {
			row.Namespace, row.Name, row.Type = l.Name.Namespace, l.Name.Name, strings.ToLower(l.Name.Kind)
		}
		row.Cells = []any{
			row.Namespace, workload(l.Name, string(l.Workload)), l.Node, l.Strategy, l.Returns, state, until, string(l.Workload),
		}
		return row
	})
}

// workload returns KIND/NAME, or the UID if they are unknown.
func workload(ref *schemas.ObjectRef, uid string) string {
	if ref == nil {
		return uid
	}
	return strings.ToLower(ref.Kind) + "/" + ref.Name
}

// RequestsTable returns the table of the open requests.
func RequestsTable(now time.Time, requests []status.OpenRequest) cmdutil.Table {
	return table("Request", "Sender,Name,Age,Deadline,Wants", "", requests, func(r status.OpenRequest) cmdutil.Row {
		deadline := ""
		if r.Action == schemas.ActionDeschedule || r.Action == schemas.ActionMaintain {
			deadline = cmdutil.In(now, r.Ends())
		}
		_, text := r.Describe()
		cells := []any{r.Sender, r.Name, cmdutil.Age(now, r.Since), deadline, text}
		return cmdutil.Row{Name: r.Name, Type: "request", Cells: cells}
	})
}

// MaintenancesTable returns the table of the maintenances on the bus.
func MaintenancesTable(now time.Time, maintenances []status.Maintenance) cmdutil.Table {
	const columns = "Name,Wanted,Node,Left,Blocked,Age,Message"
	return table("Maintenance", columns, "", maintenances, func(m status.Maintenance) cmdutil.Row {
		return cmdutil.Row{Name: m.Name, Type: "maintenance", Cells: []any{
			m.Name, string(m.Stage), string(m.Node), m.PodsLeft, m.PodsBlocked, cmdutil.Age(now, m.Since), cmp.Or(m.Message, m.Reason),
		}}
	})
}

// DeadLettersTable returns the table of dead letters.
func DeadLettersTable(now time.Time, letters []bus.DeadLetter) cmdutil.Table {
	const columns, wide = "Number,Age,Stream,By,Type,Subject,Error", "Channel,Sequence"
	return table("DeadLetter", columns, wide, letters, func(d bus.DeadLetter) cmdutil.Row {
		b, number := briefOf(d), strconv.FormatUint(d.Number, 10)
		return cmdutil.Row{Name: number, Type: "deadletter", Object: b, Cells: []any{
			number, cmdutil.Age(now, d.Buried), d.Stream, d.By, b.Type, b.Subject, d.Error, d.Channel, strconv.FormatUint(d.Sequence, 10),
		}}
	})
}
