package maintenance

import (
	"testing"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

func TestStrategiesIgnoreMaintainedNodes(t *testing.T) {
	u := newMaintenanceScene(t, 3, scene.WithLabel("pool", "old"))
	old := u.Nodes
	u.AddDeployment("api", 12)
	u.AddNodes(3)
	before, states := map[string]int{}, u.states()
	for _, n := range old {
		before[n] = len(u.PodsOn(n))
	}
	dir := filetest.ShortDir(t)
	p := u.StartRun(u.Policy("circuitBreakers: {cluster: {nodes: 30%}}"), dir)
	p.WaitLeads()
	events := scene.Record(t, scene.BusIn(dir))

	// A cordon alone moves nothing, and an uncordon moves nothing either.
	u.apply(u.poolSelector("old"), "atOnce: 3", "stage: Cordon", "reason: new kernel")
	u.waitStages(allIn(v1alpha1.Cordoned, old...))
	<-time.After(scene.CalmTime)
	u.setStage(v1alpha1.Complete)
	u.waitStages(allIn(v1alpha1.Returned, old...))
	u.waitStates(states)
	u.WaitPlaced("api", before)
	u.CheckMoved(0, 0)
	u.remove()
	u.waitDeleted()

	// Half of all nodes are cordoned at once. The circuit breaker stays closed, and their pods move.
	u.apply(u.poolSelector("old"), "atOnce: 3", "stage: Drain", "reason: new kernel")
	u.waitStages(allIn(v1alpha1.IsDrained, old...))
	u.CheckMoved(0, 12)
	p.WaitClusterBreaker("")
	p.CheckNotLogged("circuit breaker open", "circuit breaker of a workload open")
	for _, v := range events.Verdicts() {
		if v.Strategy != schemas.MaintenanceStrategy {
			t.Errorf("pod %s: %s by %s: %s", v.Intent.Pod, v.Outcome, v.Strategy, v.Message)
		}
	}

	// They are returned, and other taints count as before.
	u.setStage(v1alpha1.Complete)
	u.waitStates(states)
	u.Taint(u.Nodes[3], "dedicated")
	u.WaitEmpty(u.Nodes[3])
}
