package maintenance

import (
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

func TestForcedSingleNodeMaintenance(t *testing.T) {
	u := newMaintenanceScene(t, 1, scene.WithLabel("pool", "old"))
	u.statefulSet("db", 1, u.Nodes[0])
	u.AddBudget("db", "db", 1)
	u.AddPod("bare", u.Nodes[0], nil)
	before, states := u.PodsOn(u.Nodes[0]), u.states()
	policy := u.idlePolicy()
	p := u.StartRun(policy, filetest.ShortDir(t))
	p.WaitLeads()
	u.apply(u.poolSelector("old"), "stage: Drain", "reason: new kernel")
	const why = "spec.nodes: selects the only node of the cluster: its pods have nowhere to go; if that is what you want, " +
		"add SingleNode to spec.force"
	m := u.waitUntil("it is refused", func(m *v1alpha1.NodeMaintenance) bool {
		return conditionsOf(m)[v1alpha1.Accepted] == "False SingleNode: "+why
	})
	u.CheckMoved(0, 0)
	if got := u.states(); len(u.nodeChanges(u.Nodes[0])) > 0 || got[u.Nodes[0]].said != nil || len(m.Finalizers) > 0 {
		t.Errorf("the node was touched: %+v; finalizers %v", got, m.Finalizers)
	}

	u.change(`{"force":["SingleNode"]}`)
	u.waitUntil("the budget holds up the drain", func(m *v1alpha1.NodeMaintenance) bool { return m.Status.Summary.PodsBlocked == 1 })
	filetest.Write(t, policy, strings.Replace(u.ReadPolicy(policy), "maxPodLifeTimeSeconds: 86400", "maxPodLifeTimeSeconds: 86000", 1))
	p.WaitReloaded("applied")
	u.ChangeBudget("db", 0)
	u.waitStages(allIn(v1alpha1.IsDrained, u.Nodes...))
	u.CheckEvictedOnce(before)
	u.setStage(v1alpha1.Complete)
	u.waitStages(allIn(v1alpha1.Returned, u.Nodes...))
	u.waitStates(states)
	u.WaitRunning("app=db", 1)
}
