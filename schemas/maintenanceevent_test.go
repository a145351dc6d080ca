package schemas_test

import (
	"testing"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
)

func TestMaintenanceLines(t *testing.T) {
	checkLines(t, "maintenance", map[string]string{
		"maintenance": "maintenance kernel: node worker-3 Draining  0/2 nodes, 2 pods left, 1 blocked: cannot move shop/cart-0 on " +
			"worker-3: PodDisruptionBudget cart allows no disruption: 2 of 2 pods have to stay available",
		"maintenance-refused": "maintenance firmware: node worker-1 Waiting, node worker-2 Waiting, node worker-3 Waiting  " +
			"0/3 nodes, no pod left: refused: AllNodes: spec.nodes: means all 3 nodes of the cluster; if that is what you want, " +
			"add AllNodes to spec.force",
	})
	rolling := schemas.Maintenance{Summary: v1alpha1.Summary{Nodes: "2/30", PodsLeft: 41}}
	node := func(names ...string) (list []v1alpha1.NodeStatus) {
		for _, name := range names {
			list = append(list, v1alpha1.NodeStatus{Name: name, Stage: v1alpha1.IsDrained})
		}
		return list
	}
	maintenance := func(change func(*schemas.Maintenance)) schemas.Maintenance {
		m := rolling
		change(&m)
		return m
	}
	checkTexts(t, []described{
		{"a maintenance with new numbers", rolling, "2/30 nodes, 41 pods left"},
		{"a node of a maintenance", maintenance(func(m *schemas.Maintenance) { m.Nodes = node("worker-3") }),
			"node worker-3 Drained  2/30 nodes, 41 pods left"},
		{"as many nodes as are named", maintenance(func(m *schemas.Maintenance) { m.Nodes = node("a", "b", "c") }),
			"node a Drained, node b Drained, node c Drained  2/30 nodes, 41 pods left"},
		{"more nodes than are named", maintenance(func(m *schemas.Maintenance) { m.Nodes, m.More = node("a", "b", "c", "d"), 7 }),
			"node a Drained, node b Drained, node c Drained, 8 more  2/30 nodes, 41 pods left"},
		{"a node that was cordoned again, in a dry run", maintenance(func(m *schemas.Maintenance) {
			m.DryRun, m.Changes = true, []schemas.NodeChange{{Name: "a", Message: "uncordoned meanwhile"}}
		}), "(dry run) node a: uncordoned meanwhile  2/30 nodes, 41 pods left"},
		{"a maintenance in a dry run", maintenance(func(m *schemas.Maintenance) { m.DryRun = true }), "(dry run)  2/30 nodes, 41 pods left"},
		{"a blocked maintenance", maintenance(func(m *schemas.Maintenance) {
			m.Summary.PodsBlocked, m.Summary.Message = 2, "cannot move shop/cart-0"
		}), "2/30 nodes, 41 pods left, 2 blocked: cannot move shop/cart-0"},
	})
}
