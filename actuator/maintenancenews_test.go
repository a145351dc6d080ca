package actuator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/actuator/maintenance"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/schematest"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

// kernelSpec is what the maintenances of these tests want.
var kernelSpec = v1alpha1.NodeMaintenanceSpec{Stage: v1alpha1.Drain, Reason: "new kernel"}

// inStage is a node and how far it is.
func inStage(name string, stage v1alpha1.NodeStage) v1alpha1.NodeStatus {
	return v1alpha1.NodeStatus{Name: name, UID: "n", Stage: stage}
}

// kernelStatus is a status of an accepted maintenance.
func kernelStatus(summary string, nodes ...v1alpha1.NodeStatus) v1alpha1.NodeMaintenanceStatus {
	return v1alpha1.NodeMaintenanceStatus{
		ObservedGeneration: 3, Nodes: nodes, Summary: v1alpha1.Summary{Nodes: summary, PodsLeft: 5},
		Stages:     []v1alpha1.StageTime{{Stage: v1alpha1.Drain, Start: metav1.NewTime(noon)}},
		Conditions: []metav1.Condition{{Type: v1alpha1.Accepted, Status: metav1.ConditionTrue, Reason: "Accepted", Message: "yes"}},
	}
}

// kernelNews is what is told of such a status, but for its nodes.
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

func TestAnEventOfAMaintenanceSaysWhatWasNotToldYet(t *testing.T) {
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
	was := func(s v1alpha1.NodeMaintenanceStatus, spec v1alpha1.NodeMaintenanceSpec) *lastNews {
		steps := schemas.MaintenanceSteps{Name: "kernel", UID: "m", Status: s}
		_, told := news(nil, steps, maintenance.Result{Before: &v1alpha1.NodeMaintenance{Spec: spec}}, false)
		return &told
	}
	of := was(before, kernelSpec)
	earlier := *of
	earlier.head.UID = "before"
	idle := kernelSpec
	idle.Stage = ""
	for _, test := range []struct {
		name   string
		last   *lastNews
		status v1alpha1.NodeMaintenanceStatus
		dryRun bool
		want   []schemas.Maintenance
	}{
		{"what nobody was told of is told as a whole", nil, before, false,
			with("0/3", func(m *schemas.Maintenance) { m.Whole, m.Nodes = true, before.Nodes })},
		{"what was told is not told again", of, before, false, nil},
		{"numbers alone are told without a node", of, kernelStatus("1/3", a, b, c), false,
			with("1/3", func(*schemas.Maintenance) {})},
		{"a node in another stage is told alone", of, kernelStatus("1/3", drained, b, c), false,
			with("1/3", func(m *schemas.Maintenance) { m.Nodes = []v1alpha1.NodeStatus{drained} })},
		{"a node with another blocked pod is told alone", of, kernelStatus("0/3", blocked, b, c), false,
			with("0/3", func(m *schemas.Maintenance) { m.Nodes = []v1alpha1.NodeStatus{blocked} })},
		{"a node that the status has no more is forgotten", of, kernelStatus("0/2", a, c), false,
			with("0/2", func(m *schemas.Maintenance) { m.Forgotten = []string{"b"} })},
		{"another stage of the spec is told", was(before, idle), before, false, with("0/3", func(*schemas.Maintenance) {})},
		{"a refusal is told with its reason", of, refused, false, with("0/3", func(m *schemas.Maintenance) {
			m.Accepted, m.Refusal = false, &schemas.Refusal{Reason: "AllNodes", Message: "m"}
			m.Conditions = refused.Conditions
		})},
		{"one that had the name before is another one", &earlier, before, false,
			with("0/3", func(m *schemas.Maintenance) { m.Whole, m.Nodes = true, before.Nodes })},
		{"a dry run says so", nil, before, true,
			with("0/3", func(m *schemas.Maintenance) { m.Whole, m.Nodes, m.DryRun = true, before.Nodes, true })},
		{"no more nodes than an event has room for are one event", nil, kernelStatus("0/100", many(100)...), false,
			with("0/100", func(m *schemas.Maintenance) { m.Whole, m.Nodes = true, many(100) })},
		{"more nodes are several events", nil, kernelStatus("0/250", many(250)...), false, slices.Concat(
			with("0/250", func(m *schemas.Maintenance) { m.Whole, m.Nodes, m.More = true, many(250)[:100], 150 }),
			with("0/250", func(m *schemas.Maintenance) { m.Nodes, m.More = many(250)[100:200], 50 }),
			with("0/250", func(m *schemas.Maintenance) { m.Nodes = many(250)[200:] }),
		)},
	} {
		s := schemas.MaintenanceSteps{Name: "kernel", UID: "m", Status: test.status}
		got, _ := news(test.last, s, maintenance.Result{Before: &v1alpha1.NodeMaintenance{Spec: kernelSpec}}, test.dryRun)
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", test.name, got, test.want)
		}
	}
}

func TestAnEventOfAMaintenanceTellsOfTheChangesOfNodesThatNoStatusTells(t *testing.T) {
	step := func(action schemas.NodeAction, outcome maintenance.Outcome, message string) maintenance.Done {
		return maintenance.Done{NodeStep: schemas.NodeStep{Name: "a", UID: "n", Action: action}, Outcome: outcome, Message: message}
	}
	again := step(schemas.NodeCordon, maintenance.Changed, "")
	again.Again = true
	before := step(schemas.NodeReturn, maintenance.Changed, "it stays cordoned, as it was before")
	before.Mark.CordonedBefore = true
	stays := "it stays cordoned: kubectl-cordon has cordoned it meanwhile"
	change := func(action schemas.NodeAction, message string) []schemas.NodeChange {
		return []schemas.NodeChange{{Name: "a", UID: "n", Action: action, Message: message}}
	}
	for _, test := range []struct {
		name string
		done maintenance.Done
		want []schemas.NodeChange
	}{
		{"a cordon is told by the status", step(schemas.NodeCordon, maintenance.Changed, ""), nil},
		{"a cordon of what was cordoned is told by the status", step(schemas.NodeCordon, maintenance.Changed, "it was"), nil},
		{"a cordon after somebody has uncordoned the node is told", again,
			change(schemas.NodeCordon, "somebody has uncordoned it while it is maintained; it is cordoned again")},
		{"a return is told by the status", step(schemas.NodeReturn, maintenance.Changed, ""), nil},
		{"a return to how it was before is told by the status", before, nil},
		{"a return of what somebody else has cordoned is told", step(schemas.NodeReturn, maintenance.Changed, stays),
			change(schemas.NodeReturn, stays)},
		{"a step that was done before is not told", step(schemas.NodeReturn, maintenance.Unchanged, stays), nil},
		{"a step that failed is not told", step(schemas.NodeReturn, maintenance.Failed, "refused"), nil},
		{"conditions are not told", step(schemas.NodeMark, maintenance.Changed, ""), nil},
	} {
		var want []schemas.Maintenance
		if test.want != nil {
			want = []schemas.Maintenance{kernelNews("0/1")}
			want[0].Changes = test.want
		}
		s := schemas.MaintenanceSteps{Name: "kernel", UID: "m", Status: kernelStatus("0/1", inStage("a", v1alpha1.Draining))}
		r := maintenance.Result{Before: &v1alpha1.NodeMaintenance{Spec: kernelSpec}}
		_, told := news(nil, s, r, false)
		r.Nodes = []maintenance.Done{test.done}
		if got, _ := news(&told, s, r, false); !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", test.name, got, want)
		}
	}
}

// reader is somebody who reads all events of a maintenance, as their description says.
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

// TestWhoReadsAllEventsOfAMaintenanceInOrderKnowsItsStatus goes through statuses and changes of the leader. When a leader ends,
// some of its events may not be stored, and the status after that is told by the next one.
func TestWhoReadsAllEventsOfAMaintenanceInOrderKnowsItsStatus(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d: to repeat, put it here in place of rand.Uint64()", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	stages := []v1alpha1.NodeStage{v1alpha1.Waiting, v1alpha1.Draining, v1alpha1.IsDrained, v1alpha1.Returned}
	for range 200 {
		var told *lastNews
		var knows reader
		stored := map[string]bool{}
		all := many(1 + random.IntN(300))
		for sequence := range uint64(20) {
			var nodes []v1alpha1.NodeStatus
			one := []int{1, 20}[random.IntN(2)] // of so many has changed
			for _, n := range all {
				if random.IntN(one) == 0 {
					n.Stage = stages[random.IntN(len(stages))]
				}
				if random.IntN(200) > 0 {
					nodes = append(nodes, n)
				}
			}
			a := maintaining("kernel", sequence)
			a.Maintenance.Status = kernelStatus(fmt.Sprintf("%d/%d", random.IntN(2), len(nodes)), nodes...)
			for _, dies := range []bool{random.IntN(3) == 0, false} { // and the next leader does it again
				list, next := news(told, *a.Maintenance, maintenance.Result{Before: &v1alpha1.NodeMaintenance{Spec: kernelSpec}}, false)
				for i, m := range list {
					if dies && random.IntN(len(list)+1) == 0 {
						break
					}
					id, err := newsID(a, list, i)
					if err != nil {
						t.Fatal(err)
					}
					if !stored[id] {
						stored[id] = true
						knows.read(m)
					}
				}
				if told = &next; dies {
					told = nil
				}
			}
			if got, want := knows.status(), a.Maintenance.Status; !reflect.DeepEqual(got, want) {
				t.Fatalf("after status %d:\ngot  %+v\nwant %+v", sequence, got, want)
			}
		}
	}
}

// announces lets the bench carry steps out by do, and puts an answer with that status.
func (b *bench) announces(t *testing.T, sequence uint64, status v1alpha1.NodeMaintenanceStatus) schemas.Event {
	t.Helper()
	a := maintaining("kernel", sequence)
	a.Maintenance.Status = status
	e, err := schemas.NewEvent("/test/functions", a, b.start, schemas.Event{
		ID: "scope", CorrelationID: "delta", TraceParent: "00-6be1c0a49f3d4e8db2a75c31908ef764-e40b97c2d1835f6a-01", Time: b.start,
	})
	if err != nil {
		t.Fatal(err)
	}
	b.bus.put(e)
	return e
}

// wrote is the result of steps whose status was stored.
func wrote(nodes ...maintenance.Done) maintenance.Result {
	return maintenance.Result{Before: &v1alpha1.NodeMaintenance{Spec: kernelSpec}, Wrote: true, Nodes: nodes}
}

// eventOf is the event that carries m, as the answer caused it, with the ID and the span of got.
func eventOf(t *testing.T, m schemas.Maintenance, answer, got schemas.Event, now time.Time) schemas.Event {
	t.Helper()
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return schemas.Event{
		ID: got.ID, Source: "/test/actuator", Type: "dev.rehome.maintenance.v1", Subject: "maintenances/kernel", Time: now.UTC(),
		CorrelationID: answer.CorrelationID, CausationID: answer.ID, Data: data, Channel: "rehome.maintenance.kernel",
		TraceParent: answer.TraceParent[:36] + got.TraceParent[36:], Parent: answer.TraceParent, Began: answer.Time,
	}
}

func TestAStatusIsToldInOneEventOfTheChainOfItsAnswerHoweverOftenItsStepsAreTriedAndByWhom(t *testing.T) {
	for _, dryRun := range []bool{false, true} {
		inBubble(t, Config{Policy: fast, DryRun: dryRun}, evictsAll, func(t *testing.T, b *bench) {
			tries := 0
			b.carries(func(schemas.MaintenanceSteps) (maintenance.Result, error) {
				tries++
				switch tries {
				case 1: // the status is stored, a node is not changed
					return wrote(maintenance.Done{Outcome: maintenance.Failed}), errors.New("connection refused")
				case 2, 3: // it is stored already, and the finalizer is not
					return maintenance.Result{Before: &v1alpha1.NodeMaintenance{}}, errors.New("connection refused")
				}
				r := wrote()
				r.Wrote = tries == 5
				return r, nil
			})
			a, drained := inStage("a", v1alpha1.Draining), inStage("a", v1alpha1.IsDrained)
			first := b.announces(t, 1, kernelStatus("0/1", a))
			time.Sleep(time.Minute)
			began := time.Now()
			second := b.announces(t, 2, kernelStatus("1/1", drained))
			time.Sleep(time.Second)
			b.announces(t, 3, kernelStatus("1/1", drained)) // nothing new
			time.Sleep(time.Second)

			got := b.bus.told()
			if len(got) != 2 {
				t.Fatalf("%d events, want two: %+v", len(got), got)
			}
			one, other := kernelNews("0/1"), kernelNews("1/1")
			one.Whole, one.Nodes, one.DryRun = true, []v1alpha1.NodeStatus{a}, dryRun
			other.Nodes, other.DryRun = []v1alpha1.NodeStatus{drained}, dryRun
			check(t, "events", got, []schemas.Event{
				eventOf(t, one, first, got[0], b.start), eventOf(t, other, second, got[1], began),
			})
			schematest.Check(t, got...)
			check(t, "answers left", b.bus.left(), 0)
		})
	}
}

func TestTheNextLeaderTellsAStatusUnderTheSameIDAndAsAWhole(t *testing.T) {
	inBubble(t, Config{Policy: fast}, evictsAll, func(t *testing.T, b *bench) {
		b.carries(func(s schemas.MaintenanceSteps) (maintenance.Result, error) {
			if s.ResourceVersion == "2" && len(b.bus.told()) < 3 {
				return wrote(maintenance.Done{Outcome: maintenance.Failed}), errors.New("connection refused")
			}
			return wrote(), nil
		})
		a, c := inStage("a", v1alpha1.Draining), inStage("c", v1alpha1.Waiting)
		b.announces(t, 1, kernelStatus("0/2", a, c))
		time.Sleep(time.Second)
		b.announces(t, 2, kernelStatus("1/2", inStage("a", v1alpha1.IsDrained), c))
		time.Sleep(time.Second)
		b.stop()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.lead(ctx, evictsAll) }()
		time.Sleep(time.Minute)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Lead: %v", err)
		}
		type said struct {
			id    string
			nodes string
			whole bool
		}
		var got []said
		for _, e := range b.bus.told() {
			m, err := schemas.Decode[schemas.Maintenance](e)
			if err != nil {
				t.Fatal(err)
			}
			var nodes []string
			for _, n := range m.Nodes {
				nodes = append(nodes, n.Name+" "+string(n.Stage))
			}
			got = append(got, said{e.ID, strings.Join(nodes, ", "), m.Whole})
		}
		if len(got) != 3 {
			t.Fatalf("%d events, want three: %+v", len(got), got)
		}
		check(t, "events", got, []said{
			{got[0].id, "a Draining, c Waiting", true}, {got[1].id, "a Drained", false}, {got[1].id, "a Drained, c Waiting", true},
		})
		if got[0].id == got[1].id {
			t.Errorf("two statuses have one ID, %s", got[0].id)
		}
	})
}

// In a dry run, every answer rests on the same version.
func TestAStatusThatComesBackInADryRunIsToldAnew(t *testing.T) {
	inBubble(t, Config{Policy: fast, DryRun: true}, evictsAll, func(t *testing.T, b *bench) {
		b.carries(func(schemas.MaintenanceSteps) (maintenance.Result, error) { return wrote(), nil })
		for sequence, summary := range []string{"0/1", "1/1", "0/1"} {
			a := maintaining("kernel", uint64(sequence)+1)
			a.Maintenance.ResourceVersion, a.Maintenance.Status = "1", kernelStatus(summary)
			e, err := schemas.NewEvent("/test/functions", a, b.start, schemas.Event{})
			if err != nil {
				t.Fatal(err)
			}
			b.bus.put(e)
			time.Sleep(time.Second)
		}
		ids := map[string]bool{}
		for _, e := range b.bus.told() {
			ids[e.ID] = true
		}
		check(t, "IDs", len(ids), 3)
	})
}

func TestWhatIsNewOfAMaintenanceWaitsForTheBusAndItsPodsWaitForThat(t *testing.T) {
	inBubble(t, Config{Policy: fast}, evictsAll, func(t *testing.T, b *bench) {
		b.carries(func(schemas.MaintenanceSteps) (maintenance.Result, error) {
			b.bus.setRefuse(errors.New("no connection"))
			return wrote(), nil
		})
		b.maintain("kernel", 1, "1")
		time.Sleep(time.Minute)
		check(t, "told while the bus is away", len(b.bus.told())+len(b.bus.heard(t, b.start)), 0)
		b.bus.setRefuse(nil)
		time.Sleep(time.Minute)
		check(t, "told", len(b.bus.told()), 1)
		check(t, "verdicts", len(b.bus.heard(t, b.start)), 1)
		b.stop()
		check(t, "lines in the log", strings.Count(b.log.String(), "events cannot be stored, trying again"), 1)
	})
}

func TestOfAMaintenanceThatIsNotStoredNothingIsTold(t *testing.T) {
	inBubble(t, Config{Policy: fast}, evictsAll, func(t *testing.T, b *bench) {
		b.carries(func(s schemas.MaintenanceSteps) (maintenance.Result, error) {
			r := wrote()
			r.Wrote = false
			switch s.ResourceVersion {
			case "1":
				r.Dropped = "it has changed since that was verdictOn"
				return r, nil
			case "2":
				return r, errors.New("connection refused")
			}
			return maintenance.Result{Dropped: "it does not exist any more"}, nil
		})
		for sequence := range uint64(3) {
			b.announces(t, sequence+1, kernelStatus("0/1"))
			time.Sleep(time.Second)
		}
		check(t, "told", len(b.bus.told()), 0)
	})
}
