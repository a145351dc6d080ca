package maintenance

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/maintenance/apply"
	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/expect"
)

func TestKubernetesEventsOfMaintenance(t *testing.T) {
	at := metav1.NewTime(noon().Add(-time.Hour))
	s := plan.Decision{Name: "kernel", UID: "m", Status: v1alpha1.NodeMaintenanceStatus{
		Stages: []v1alpha1.StageTime{{Stage: v1alpha1.Cordon}, {Stage: v1alpha1.Drain}},
		Nodes: []v1alpha1.NodeStatus{
			{Name: "a", UID: "1", Stage: v1alpha1.IsDrained}, {Name: "b", UID: "2", Stage: v1alpha1.Held, Message: "3 pods left"},
			{Name: "c", UID: "3", Stage: v1alpha1.Draining, Blocked: []v1alpha1.BlockedPod{
				{Namespace: "shop", Name: "cart", Reason: "DisruptionBudget", By: "poddisruptionbudget/shop/cart", Since: &at},
			}},
		},
		Conditions: []metav1.Condition{{Type: v1alpha1.Accepted, Status: "False", Reason: "AllNodes", Message: "means all"}},
	}}
	before := v1alpha1.NodeMaintenance{Spec: v1alpha1.NodeMaintenanceSpec{Reason: "new kernel"}}
	before.Status.Stages = s.Status.Stages[:1]
	node := func(name string, action schemas.NodeAction, outcome apply.Outcome) apply.Done {
		return apply.Done{NodeStep: plan.NodeStep{Name: name, UID: "9", Action: action}, Outcome: outcome, Message: "words"}
	}
	again := node("e", schemas.NodeCordon, apply.Changed)
	again.Again = true
	r := apply.Result{Before: &before, Wrote: true, Nodes: []apply.Done{
		node("d", schemas.NodeCordon, apply.Changed), again, node("f", schemas.NodeReturn, apply.Changed),
		node("g", schemas.NodeCordon, apply.Taken), node("h", schemas.NodeCordon, apply.Outdated),
		node("i", schemas.NodeMark, apply.Changed),
	}}
	var got []string
	for _, n := range notices(s, r, noon()) {
		got = append(got, fmt.Sprintf("%s/%s %s %s: %s", n.Regarding.Kind, n.Regarding.Name, n.Type, n.Reason, n.Note))
	}
	want := []string{
		"Node/d Normal NodeCordoned: cordoned: new kernel; words (maintenance kernel)",
		"NodeMaintenance/kernel Normal NodeCordoned: node d: cordoned: new kernel; words",
		"Node/e Warning CordonedAgain: the node was uncordoned during its maintenance, and is cordoned again: new kernel " +
			"(maintenance kernel)",
		"NodeMaintenance/kernel Warning CordonedAgain: node e: the node was uncordoned during its maintenance, and is " +
			"cordoned again: new kernel",
		"Node/f Normal NodeReturned: given back; words (maintenance kernel)",
		"NodeMaintenance/kernel Normal NodeReturned: node f: given back; words",
		"NodeMaintenance/kernel Warning NodeTaken: node g is not cordoned: words",
		"NodeMaintenance/kernel Normal StageBegun: Drain begins: new kernel",
		"NodeMaintenance/kernel Warning Refused: AllNodes: means all",
		"Node/a Normal NodeDrained: drained: new kernel (maintenance kernel)",
		"NodeMaintenance/kernel Normal NodeDrained: node a: drained: new kernel",
		"Node/b Warning NodeDeadline: its deadline has passed; 3 pods left (maintenance kernel)",
		"NodeMaintenance/kernel Warning NodeDeadline: node b: its deadline has passed; 3 pods left",
		fmt.Sprintf("NodeMaintenance/kernel Warning Blocked: node c: pod shop/cart has been blocked since %s: DisruptionBudget; "+
			"poddisruptionbudget/shop/cart", at.UTC().Format(time.RFC3339)),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestKubernetesEventsOfTableEntry(t *testing.T) {
	s := plan.Decision{Name: "node/a", UID: "m", Status: v1alpha1.NodeMaintenanceStatus{
		Stages:     []v1alpha1.StageTime{{Stage: v1alpha1.Drain}},
		Nodes:      []v1alpha1.NodeStatus{{Name: "a", UID: "1", Stage: v1alpha1.IsDrained}},
		Conditions: []metav1.Condition{{Type: v1alpha1.Accepted, Status: "False", Reason: "SingleNode", Message: "is the only one"}},
	}}
	r := apply.Result{
		Before: &v1alpha1.NodeMaintenance{Spec: v1alpha1.NodeMaintenanceSpec{Reason: "new kernel"}}, Wrote: true,
		Nodes: []apply.Done{
			{NodeStep: plan.NodeStep{Name: "a", UID: "1", Action: schemas.NodeCordon}, Outcome: apply.Changed},
		},
	}
	var got []string
	for _, n := range notices(s, r, noon()) {
		got = append(got, fmt.Sprintf("%s/%s %s %s %s: %s", n.Regarding.Kind, n.Regarding.Name, n.Regarding.UID, n.Type, n.Reason, n.Note))
	}
	want := []string{
		"Node/a 1 Normal NodeCordoned: cordoned: new kernel (maintenance node/a)",
		"Node/a 1 Normal StageBegun: Drain begins: new kernel",
		"Node/a 1 Warning Refused: SingleNode: is the only one",
		"Node/a 1 Normal NodeDrained: drained: new kernel (maintenance node/a)",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestKubernetesEventsOfFailingStep(t *testing.T) {
	d := apply.Done{NodeStep: plan.NodeStep{Name: "a", UID: "1", Action: schemas.NodeReturn}, Err: errors.New("denied")}
	var got []string
	for _, n := range notices(plan.Decision{Name: "kernel", UID: "m"}, apply.Result{Nodes: []apply.Done{d}}, noon()) {
		got = append(got, fmt.Sprintf("%s/%s %s %s: %s", n.Regarding.Kind, n.Regarding.Name, n.Type, n.Reason, n.Note))
	}
	expect.Equal(t, "events", got, []string{
		"Node/a Warning StepFailed: return failed; retrying: denied (maintenance kernel)",
		"NodeMaintenance/kernel Warning StepFailed: node a: return failed; retrying: denied",
	})
}
