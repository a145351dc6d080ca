package maintenance

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/maintenance/apply"
	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

func TestNodesOfMaintenancesAreCountedUntilTheyAreCompleted(t *testing.T) {
	r := prometheus.NewRegistry()
	m := newMetrics(r)
	found := &v1alpha1.NodeMaintenance{}
	status := func(name string, stages ...v1alpha1.NodeStage) plan.Decision {
		s := plan.Decision{Name: name, Finalizer: true}
		for _, stage := range stages {
			s.Status.Nodes = append(s.Status.Nodes, v1alpha1.NodeStatus{Stage: stage})
		}
		return s
	}
	done := apply.Result{Before: found, Wrote: true, Nodes: []apply.Done{
		{NodeStep: plan.NodeStep{Action: schemas.NodeCordon}, Outcome: apply.Changed}}}
	m.observe(status("kernel", v1alpha1.Waiting, v1alpha1.Waiting), done, nil)
	m.observe(status("kernel", v1alpha1.Waiting, v1alpha1.Claimed), done, nil)
	m.observe(status("disks", v1alpha1.Draining), done, nil)
	over := status("disks", v1alpha1.Returned)
	over.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Completed, Status: "True"}}
	m.observe(over, apply.Result{Before: found}, nil)
	m.observe(status("gone", v1alpha1.Draining), apply.Result{Dropped: "it does not exist any more"}, nil)
	m.observe(status("kernel"), apply.Result{Before: found, Dropped: "it has changed"}, nil)
	m.observe(status("kernel"), apply.Result{}, errors.New("away"))
	m.observe(status("memory", v1alpha1.Waiting), done, nil)
	m.observe(status("memory", v1alpha1.Returning), apply.Result{Before: found, Wrote: true, Nodes: []apply.Done{
		{NodeStep: plan.NodeStep{Action: schemas.NodeReturn}, Outcome: apply.Failed}}}, errors.New("denied"))
	const want = `
# HELP rehome_maintenance_nodes Nodes of each maintenance that is or was accepted and is not completed, by how far they are; of at most 100 maintenances.
# TYPE rehome_maintenance_nodes gauge
rehome_maintenance_nodes{maintenance="kernel",stage="Claimed"} 1
rehome_maintenance_nodes{maintenance="kernel",stage="Waiting"} 1
rehome_maintenance_nodes{maintenance="memory",stage="Returning"} 1
# HELP rehome_maintenance_steps_total What was done for maintenances besides moves, by what became of it, dry runs included.
# TYPE rehome_maintenance_steps_total counter
rehome_maintenance_steps_total{action="cordon",outcome="changed"} 4
rehome_maintenance_steps_total{action="return",outcome="failed"} 1
rehome_maintenance_steps_total{action="status",outcome="changed"} 5
rehome_maintenance_steps_total{action="status",outcome="failed"} 1
rehome_maintenance_steps_total{action="status",outcome="outdated"} 2
rehome_maintenance_steps_total{action="status",outcome="unchanged"} 1
`
	err := testutil.GatherAndCompare(r, strings.NewReader(want), "rehome_maintenance_nodes", "rehome_maintenance_steps_total")
	if err != nil {
		t.Error(err)
	}
	for i := range 2 * mostMaintenances {
		m.observe(status(fmt.Sprint("m", i), v1alpha1.Waiting), done, nil)
	}
	if got, want := testutil.CollectAndCount(m.nodes), mostMaintenances+1; got != want {
		t.Errorf("got %d series of nodes, want %d: two of kernel, and one of each other", got, want)
	}
	m.forget()
	if got := testutil.CollectAndCount(m.nodes); got != 0 {
		t.Errorf("got %d series of nodes after the lead was lost, want none", got)
	}
}

// A maintenance that is refused from the start, or means no node, is deleted without a last answer, since nothing has ever to be
// taken back of it.
func TestNodesOfAMaintenanceThatNothingKeepsWhenItIsDeletedAreNotCounted(t *testing.T) {
	m := newMetrics(prometheus.NewRegistry())
	stored := apply.Result{Before: &v1alpha1.NodeMaintenance{}, Wrote: true}
	steps := func(name string, finalizer bool) plan.Decision {
		s := plan.Decision{Name: name, Finalizer: finalizer}
		s.Status.Nodes = []v1alpha1.NodeStatus{{Stage: v1alpha1.Waiting}}
		return s
	}
	for i := range mostMaintenances {
		m.observe(steps(fmt.Sprint("refused", i), false), stored, nil)
	}
	m.observe(steps("kernel", true), stored, nil)
	if got := testutil.CollectAndCount(m.nodes); got != 1 {
		t.Errorf("got %d series of nodes, want that of the one maintenance which is accepted", got)
	}
	m.observe(steps("kernel", false), stored, nil) // nothing of it is on a node any more
	if got := testutil.CollectAndCount(m.nodes); got != 0 {
		t.Errorf("got %d series of nodes after its finalizer is gone, want none", got)
	}
}
