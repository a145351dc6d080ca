package maintenance

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/maintenance/apply"
	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/randtest"
)

// kernelSpec is the spec of the maintenance in these tests.
var kernelSpec = v1alpha1.NodeMaintenanceSpec{Stage: v1alpha1.Drain, Reason: "new kernel"}

// inStage returns a node in a stage.
func inStage(name string, stage v1alpha1.NodeStage) v1alpha1.NodeStatus {
	return v1alpha1.NodeStatus{Name: name, UID: "n", Stage: stage}
}

// kernelStatus returns the status of an accepted maintenance.
func kernelStatus(summary string, nodes ...v1alpha1.NodeStatus) v1alpha1.NodeMaintenanceStatus {
	return v1alpha1.NodeMaintenanceStatus{
		ObservedGeneration: 3, Nodes: nodes, Summary: v1alpha1.Summary{Nodes: summary, PodsLeft: 5},
		Stages:     []v1alpha1.StageTime{{Stage: v1alpha1.Drain, Start: metav1.NewTime(noon())}},
		Conditions: []metav1.Condition{{Type: v1alpha1.Accepted, Status: metav1.ConditionTrue, Reason: "Accepted", Message: "yes"}},
	}
}

// kernelNews returns the event about such a status, without nodes.
func kernelNews(summary string) schemas.Maintenance {
	status := kernelStatus(summary)
	return schemas.Maintenance{
		Name: "kernel", UID: "m", Generation: 3, Stage: v1alpha1.Drain, Reason: "new kernel", Accepted: true,
		Stages: status.Stages, Summary: status.Summary, Conditions: status.Conditions,
	}
}

func many(n int) []v1alpha1.NodeStatus {
	var nodes []v1alpha1.NodeStatus
	for i := range n {
		nodes = append(nodes, inStage(fmt.Sprintf("worker-%04d", i), v1alpha1.Waiting))
	}
	return nodes
}

func TestEventsOfStatus(t *testing.T) {
	a, b, c := inStage("a", v1alpha1.Draining), inStage("b", v1alpha1.Waiting), inStage("c", v1alpha1.Waiting)
	drained, blocked := inStage("a", v1alpha1.IsDrained), a
	blocked.Blocked = []v1alpha1.BlockedPod{{Namespace: "shop", Name: "cart-0", Reason: "DisruptionBudget"}}
	before := kernelStatus("0/3", a, b, c)
	refused := kernelStatus("0/3", a, b, c)
	refused.Conditions = []metav1.Condition{{Type: v1alpha1.Accepted, Status: metav1.ConditionFalse, Reason: "AllNodes", Message: "m"}}
	with := func(summary string, change func(*schemas.Maintenance)) []schemas.Maintenance {
		m := kernelNews(summary)
		change(&m)
		return []schemas.Maintenance{m}
	}
	was := func(s v1alpha1.NodeMaintenanceStatus, spec v1alpha1.NodeMaintenanceSpec) *published {
		steps := plan.Decision{Name: "kernel", UID: "m", Status: s}
		_, told := newEvents(nil, steps, spec, nil, false)
		return &told
	}
	of := was(before, kernelSpec)
	earlier := *of
	earlier.head.UID = "before"
	idle := kernelSpec
	idle.Stage = ""
	for _, tt := range []struct {
		name   string
		last   *published
		status v1alpha1.NodeMaintenanceStatus
		dryRun bool
		want   []schemas.Maintenance
	}{
		{"the first event is whole", nil, before, false,
			with("0/3", func(m *schemas.Maintenance) { m.Whole, m.Nodes = true, before.Nodes })},
		{"an unchanged status has no event", of, before, false, nil},
		{"changed numbers need no node", of, kernelStatus("1/3", a, b, c), false,
			with("1/3", func(*schemas.Maintenance) {})},
		{"a node in another stage", of, kernelStatus("1/3", drained, b, c), false,
			with("1/3", func(m *schemas.Maintenance) { m.Nodes = []v1alpha1.NodeStatus{drained} })},
		{"a node with another blocked pod", of, kernelStatus("0/3", blocked, b, c), false,
			with("0/3", func(m *schemas.Maintenance) { m.Nodes = []v1alpha1.NodeStatus{blocked} })},
		{"a node that left the status", of, kernelStatus("0/2", a, c), false,
			with("0/2", func(m *schemas.Maintenance) { m.Forgotten = []string{"b"} })},
		{"another stage of the spec", was(before, idle), before, false, with("0/3", func(*schemas.Maintenance) {})},
		{"a refusal with its reason", of, refused, false, with("0/3", func(m *schemas.Maintenance) {
			m.Accepted, m.Refusal = false, &schemas.Refusal{Reason: "AllNodes", Message: "m"}
			m.Conditions = refused.Conditions
		})},
		{"another maintenance with the same name", &earlier, before, false,
			with("0/3", func(m *schemas.Maintenance) { m.Whole, m.Nodes = true, before.Nodes })},
		{"a dry run", nil, before, true,
			with("0/3", func(m *schemas.Maintenance) { m.Whole, m.Nodes, m.DryRun = true, before.Nodes, true })},
		{"one event for as many nodes as fit", nil, kernelStatus("0/100", many(100)...), false,
			with("0/100", func(m *schemas.Maintenance) { m.Whole, m.Nodes = true, many(100) })},
		{"several events for more nodes", nil, kernelStatus("0/250", many(250)...), false, slices.Concat(
			with("0/250", func(m *schemas.Maintenance) { m.Whole, m.Nodes, m.More = true, many(250)[:100], 150 }),
			with("0/250", func(m *schemas.Maintenance) { m.Nodes, m.More = many(250)[100:200], 50 }),
			with("0/250", func(m *schemas.Maintenance) { m.Nodes = many(250)[200:] }),
		)},
	} {
		s := plan.Decision{Name: "kernel", UID: "m", Status: tt.status}
		got, _ := newEvents(tt.last, s, kernelSpec, nil, tt.dryRun)
		expect.Equal(t, tt.name, got, tt.want)
	}
}

func TestEventsOfNodeChanges(t *testing.T) {
	step := func(action schemas.NodeAction, outcome apply.Outcome, message string) apply.Done {
		return apply.Done{NodeStep: plan.NodeStep{Name: "a", UID: "n", Action: action}, Outcome: outcome, Message: message}
	}
	again := step(schemas.NodeCordon, apply.Changed, "")
	again.Again = true
	before := step(schemas.NodeReturn, apply.Changed, "it stays cordoned, as it was before")
	before.Mark.CordonedBefore = true
	stays := "it stays cordoned: kubectl-cordon has cordoned it meanwhile"
	change := func(action schemas.NodeAction, message string) []schemas.NodeChange {
		return []schemas.NodeChange{{Name: "a", UID: "n", Action: action, Message: message}}
	}
	for _, tt := range []struct {
		name string
		done apply.Done
		want []schemas.NodeChange
	}{
		{"a cordon is in the status", step(schemas.NodeCordon, apply.Changed, ""), nil},
		{"a cordon of a cordoned node is in the status", step(schemas.NodeCordon, apply.Changed, "it was"), nil},
		{"a second cordon after an uncordon", again,
			change(schemas.NodeCordon, "it was uncordoned during its maintenance, and is cordoned again")},
		{"a return is in the status", step(schemas.NodeReturn, apply.Changed, ""), nil},
		{"a return to the cordon before is in the status", before, nil},
		{"a return of a node that another user cordoned", step(schemas.NodeReturn, apply.Changed, stays),
			change(schemas.NodeReturn, stays)},
		{"a step that was done before", step(schemas.NodeReturn, apply.Unchanged, stays), nil},
		{"a failed step", step(schemas.NodeReturn, apply.Failed, "refused"), nil},
		{"conditions of a node", step(schemas.NodeMark, apply.Changed, ""), nil},
	} {
		var want []schemas.Maintenance
		if tt.want != nil {
			want = []schemas.Maintenance{kernelNews("0/1")}
			want[0].Changes = tt.want
		}
		s := plan.Decision{Name: "kernel", UID: "m", Status: kernelStatus("0/1", inStage("a", v1alpha1.Draining))}
		_, told := newEvents(nil, s, kernelSpec, nil, false)
		changes := changesOf([]apply.Done{tt.done})
		if got, _ := newEvents(&told, s, kernelSpec, changes, false); !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", tt.name, got, want)
		}
	}
}

// reader reads all events of a maintenance as the contract describes.
type reader struct {
	last  schemas.Maintenance
	nodes map[string]v1alpha1.NodeStatus
}

func (r *reader) read(m schemas.Maintenance) {
	if m.Whole {
		r.nodes = map[string]v1alpha1.NodeStatus{}
	}
	for _, n := range m.Nodes {
		r.nodes[n.Name] = n
	}
	for _, name := range m.Forgotten {
		delete(r.nodes, name)
	}
	r.last = m
}

func (r *reader) status() v1alpha1.NodeMaintenanceStatus {
	return v1alpha1.NodeMaintenanceStatus{
		ObservedGeneration: r.last.Generation, Stages: r.last.Stages, Summary: r.last.Summary, Conditions: r.last.Conditions,
		Nodes: slices.SortedFunc(maps.Values(r.nodes), func(a, b v1alpha1.NodeStatus) int { return cmp.Compare(a.Name, b.Name) }),
	}
}

// TestEventsAddUpToStatus runs through statuses and changes of the leader. When a leader ends, some of its events may
// be lost, and the next leader publishes the whole status.
func TestEventsAddUpToStatus(t *testing.T) {
	random := randtest.New(t)
	stages := []v1alpha1.NodeStage{v1alpha1.Waiting, v1alpha1.Draining, v1alpha1.IsDrained, v1alpha1.Returned}
	for range 200 {
		var told *published
		var knows reader
		stored := map[string]bool{}
		all := many(1 + random.IntN(300))
		for sequence := range uint64(20) {
			var nodes []v1alpha1.NodeStatus
			one := []int{1, 20}[random.IntN(2)] // the number of changed nodes
			for _, n := range all {
				if random.IntN(one) == 0 {
					n.Stage = stages[random.IntN(len(stages))]
				}
				if random.IntN(200) > 0 {
					nodes = append(nodes, n)
				}
			}
			d := plan.Decision{Name: "kernel", UID: "m", ResourceVersion: fmt.Sprint(sequence)}
			d.Status = kernelStatus(fmt.Sprintf("%d/%d", random.IntN(2), len(nodes)), nodes...)
			for _, dies := range []bool{random.IntN(3) == 0, false} { // and the next leader repeats it
				list, next := newEvents(told, d, kernelSpec, nil, false)
				for i, m := range list {
					if dies && random.IntN(len(list)+1) == 0 {
						break
					}
					id, err := eventID(d, list, i)
					expect.Must(t, err)
					if !stored[id] {
						stored[id] = true
						knows.read(m)
					}
				}
				if told = &next; dies {
					told = nil
				}
			}
			if got, want := knows.status(), d.Status; !reflect.DeepEqual(got, want) {
				t.Fatalf("after status %d:\ngot  %+v\nwant %+v", sequence, got, want)
			}
		}
	}
}
