package maintenance

import (
	"errors"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rehome-dev/rehome/maintenance/apply"
	"github.com/rehome-dev/rehome/maintenance/plan"
	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/expect"
	"github.com/rehome-dev/rehome/test/kit/metricstest"
)

func TestMetrics(t *testing.T) {
	stored := func(name string, finalizer, isCompleted bool, stages ...v1alpha1.NodeStage) *v1alpha1.NodeMaintenance {
		m := &v1alpha1.NodeMaintenance{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if finalizer {
			m.Finalizers = []string{schemas.MaintenanceFinalizer}
		}
		if isCompleted {
			m.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Completed, Status: metav1.ConditionTrue}}
		}
		for _, stage := range stages {
			m.Status.Nodes = append(m.Status.Nodes, v1alpha1.NodeStatus{Stage: stage})
		}
		return m
	}
	const head = `# TYPE rehome_maintenance_nodes gauge
`
	for _, tt := range []struct {
		name string
		list []*v1alpha1.NodeMaintenance
		want string
	}{
		{"nodes by stage", []*v1alpha1.NodeMaintenance{
			stored("disks", true, true, v1alpha1.Returned),
			stored("kernel", true, false, v1alpha1.Waiting, v1alpha1.Claimed, v1alpha1.Waiting),
			stored("refused", false, false, v1alpha1.Waiting),
		}, head + `rehome_maintenance_nodes{maintenance="kernel",stage="Claimed"} 1
rehome_maintenance_nodes{maintenance="kernel",stage="Waiting"} 2
`},
		{"none while another process leads", nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := prometheus.NewRegistry()
			newMetrics(r, nodeCollector{func() []*v1alpha1.NodeMaintenance { return tt.list }})
			metricstest.Compare(t, r, tt.want, "rehome_maintenance_nodes")
		})
	}
	t.Run("a bounded number of maintenances", func(t *testing.T) {
		c := nodeCollector{func() (list []*v1alpha1.NodeMaintenance) {
			for i := range 2 * mostMaintenances {
				list = append(list, stored(fmt.Sprintf("m%03d", i), true, false, v1alpha1.Waiting))
			}
			return list
		}}
		expect.Equal(t, "series", testutil.CollectAndCount(c), mostMaintenances)
	})
	t.Run("steps by outcome", func(t *testing.T) {
		r := prometheus.NewRegistry()
		m := newMetrics(r, nodeCollector{func() []*v1alpha1.NodeMaintenance { return nil }})
		found := &v1alpha1.NodeMaintenance{}
		step := func(action schemas.NodeAction, outcome apply.Outcome) []apply.Done {
			return []apply.Done{{NodeStep: plan.NodeStep{Action: action}, Outcome: outcome}}
		}
		m.observe(apply.Result{Before: found, Wrote: true, Nodes: step(schemas.NodeCordon, apply.Changed)}, nil)
		m.observe(apply.Result{Before: found}, nil)
		m.observe(apply.Result{Dropped: "it has changed"}, nil)
		m.observe(apply.Result{}, errors.New("away"))
		m.observe(apply.Result{Before: found, Wrote: true, Nodes: step(schemas.NodeReturn, apply.Failed)}, errors.New("denied"))
		const want = `# TYPE rehome_maintenance_steps_total counter
rehome_maintenance_steps_total{action="cordon",outcome="changed"} 1
rehome_maintenance_steps_total{action="return",outcome="failed"} 1
rehome_maintenance_steps_total{action="status",outcome="changed"} 2
rehome_maintenance_steps_total{action="status",outcome="failed"} 1
rehome_maintenance_steps_total{action="status",outcome="outdated"} 1
rehome_maintenance_steps_total{action="status",outcome="unchanged"} 1
`
		metricstest.Compare(t, r, want, "rehome_maintenance_steps_total")
	})
}
