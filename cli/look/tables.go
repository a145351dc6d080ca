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
)

// MovesTable is what `rehome get` prints about the moves in flight.
func MovesTable(now time.Time, moves []actuator.Move) cmdutil.Table {
	t := cmdutil.Table{
		Kind: "Move", Wide: []string{"Profile", "Intent"},
		Columns: []string{"Namespace", "Pod", "Node", "Method", "Workload", "Strategy", "Age", "Waits for"},
	}
	for _, m := range moves {
		t.Rows = append(t.Rows, cmdutil.Row{
			Namespace: m.Pod.Namespace, Name: m.Pod.Name, Type: "pod", Object: m,
			Cells: []any{
				m.Pod.Namespace, m.Pod.Name, m.Node, string(m.Method), workload(m.Workload, ""), m.Strategy, cmdutil.Age(now, m.Begun),
				m.WaitsFor, m.Profile, m.Intent,
			},
		})
	}
	return t
}

// DeferredTable is what `rehome get` prints about the deferred pods.
func DeferredTable(now time.Time, pods []DeferredPod) cmdutil.Table {
	t := cmdutil.Table{
		Kind: "DeferredPod", Wide: []string{"Node", "Profile", "Verdicts"},
		Columns: []string{"Namespace", "Pod", "Strategy", "Reason", "Age", "Last try", "Next try", "Message"},
	}
	for _, d := range pods {
		t.Rows = append(t.Rows, cmdutil.Row{
			Namespace: d.Pod.Namespace, Name: d.Pod.Name, Type: "pod", Object: d,
			Cells: []any{
				d.Pod.Namespace, d.Pod.Name, d.Strategy, string(d.Reason), cmdutil.Age(now, d.Since), cmdutil.Age(now, d.Last),
				cmdutil.In(now, d.Again), d.Message, d.Node, d.Profile, d.Times,
			},
		})
	}
	return t
}

// BreakersTable is what `rehome get` prints about the circuit breakers of workloads.
func BreakersTable(now time.Time, breakers []WorkloadBreaker) cmdutil.Table {
	t := cmdutil.Table{
		Kind: "WorkloadBreaker", Columns: []string{"Namespace", "Workload", "Node", "Strategy", "Returns", "State", "Until"},
		Wide: []string{"UID"},
	}
	for _, l := range breakers {
		state, until := "over", cmdutil.Age(now, l.Until)+" ago"
		if l.Holds {
			state, until = "holds", cmdutil.In(now, l.Until)
		}
		row := cmdutil.Row{Name: string(l.Workload), Type: "uid", Object: l}
		if l.Name != nil {
			row.Namespace, row.Name, row.Type = l.Name.Namespace, l.Name.Name, strings.ToLower(l.Name.Kind)
		}
		row.Cells = []any{
			row.Namespace, workload(l.Name, string(l.Workload)), l.Node, l.Strategy, l.Returns, state, until, string(l.Workload),
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// workload is KIND/NAME, or else the UID.
func workload(ref *schemas.ObjectRef, uid string) string {
	if ref == nil {
		return uid
	}
	return strings.ToLower(ref.Kind) + "/" + ref.Name
}

// RequestsTable is what `rehome get` prints about the open requests.
func RequestsTable(now time.Time, requests []OpenRequest) cmdutil.Table {
	t := cmdutil.Table{Kind: "Request", Columns: []string{"Sender", "Name", "Age", "Deadline", "Wants"}}
	for _, r := range requests {
		deadline := ""
		if r.Action == schemas.ActionDeschedule || r.Action == schemas.ActionMaintain {
			deadline = cmdutil.In(now, r.ends())
		}
		t.Rows = append(t.Rows, cmdutil.Row{
			Name: r.Name, Type: "request", Object: r,
			Cells: []any{r.Sender, r.Name, cmdutil.Age(now, r.Since), deadline, DescribeRequest(r.Request)},
		})
	}
	return t
}

// MaintenancesTable is what `rehome get` prints about the maintenances of the bus.
func MaintenancesTable(now time.Time, maintenances []MaintenanceStatus) cmdutil.Table {
	t := cmdutil.Table{Kind: "Maintenance", Columns: []string{"Name", "Wanted", "Node", "Left", "Blocked", "Age", "Message"}}
	for _, m := range maintenances {
		t.Rows = append(t.Rows, cmdutil.Row{
			Name: m.Name, Type: "maintenance", Object: m,
			Cells: []any{
				m.Name, string(m.Stage), string(m.Node), m.PodsLeft, m.PodsBlocked, cmdutil.Age(now, m.Since), cmp.Or(m.Message, m.Reason),
			},
		})
	}
	return t
}

// DeadLettersTable is what `rehome get` prints about dead letters.
func DeadLettersTable(now time.Time, letters []bus.DeadLetter) cmdutil.Table {
	t := cmdutil.Table{
		Kind: "DeadLetter", Columns: []string{"Number", "Age", "Stream", "By", "Type", "Subject", "Error"}, Wide: []string{"Channel", "Sequence"},
	}
	for _, d := range letters {
		b, number := briefOf(d), strconv.FormatUint(d.Number, 10)
		t.Rows = append(t.Rows, cmdutil.Row{
			Name: number, Type: "deadletter", Object: b,
			Cells: []any{number, cmdutil.Age(now, d.Buried), d.Stream, d.By, b.Type, b.Subject, d.Error, d.Channel, strconv.FormatUint(d.Sequence, 10)},
		})
	}
	return t
}
