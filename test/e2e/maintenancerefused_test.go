package e2e

import (
	"strings"
	"testing"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

func TestForcedSingleNodeMaintenance(t *testing.T) {
	u := newUpkeep(t, 1, labeled("pool", "old"))
	u.statefulSet("db", 1, u.nodes[0])
	u.budget("db", "db", 1)
	u.pod("bare", u.nodes[0], nil)
	before, states := u.pods(u.nodes[0]), u.states()
	policy := u.quiet()
	p := u.rehome(policy, filetest.ShortDir(t))
	p.leads()
	u.apply(u.ofPool("old"), "stage: Drain", "reason: new kernel")
	const why = "spec.nodes: selects the only node of the cluster: its pods have nowhere to go; if that is what you want, " +
		"add SingleNode to spec.force"
	m := u.until("it is refused", func(m *v1alpha1.NodeMaintenance) bool {
		return conditionsOf(m)[v1alpha1.Accepted] == "False SingleNode: "+why
	})
	u.moved(0, 0)
	if got := u.states(); len(u.touched(u.nodes[0])) > 0 || got[u.nodes[0]].said != nil || len(m.Finalizers) > 0 {
		t.Errorf("the node was touched: %+v; finalizers %v", got, m.Finalizers)
	}

	u.change(`{"force":["SingleNode"]}`)
	u.until("the budget holds up the drain", func(m *v1alpha1.NodeMaintenance) bool { return m.Status.Summary.PodsBlocked == 1 })
	filetest.Write(t, policy, strings.Replace(u.text(policy), "maxPodLifeTimeSeconds: 86400", "maxPodLifeTimeSeconds: 86000", 1))
	p.reloaded("applied")
	u.changeBudget("db", 0)
	u.untilStages(allIn(v1alpha1.IsDrained, u.nodes...))
	u.evictedOnce(before)
	u.wants(v1alpha1.Complete)
	u.untilStages(allIn(v1alpha1.Returned, u.nodes...))
	u.untilStates(states)
	u.running("app=db", 1)
}
