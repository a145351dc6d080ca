package e2e

import (
	"testing"
	"time"

	"github.com/rehome-dev/rehome/schemas"
	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

func TestStrategiesIgnoreMaintainedNodes(t *testing.T) {
	u := newUpkeep(t, 3, labeled("pool", "old"))
	old := u.nodes
	u.deployment("api", 12)
	u.addNodes(3)
	before, states := map[string]int{}, u.states()
	for _, n := range old {
		before[n] = len(u.pods(n))
	}
	dir := filetest.ShortDir(t)
	p := u.rehome(u.policy("circuitBreakers: {cluster: {nodes: 30%}}"), dir)
	p.leads()
	events := record(t, at(dir))

	// A cordon alone moves nothing, and an uncordon moves nothing either.
	u.apply(u.ofPool("old"), "atOnce: 3", "stage: Cordon", "reason: new kernel")
	u.untilStages(allIn(v1alpha1.Cordoned, old...))
	<-time.After(calm)
	u.wants(v1alpha1.Complete)
	u.untilStages(allIn(v1alpha1.Returned, old...))
	u.untilStates(states)
	u.placed("api", before)
	u.moved(0, 0)
	u.remove()
	u.gone()

	// Half of all nodes are cordoned at once. The circuit breaker stays closed, and their pods move.
	u.apply(u.ofPool("old"), "atOnce: 3", "stage: Drain", "reason: new kernel")
	u.untilStages(allIn(v1alpha1.IsDrained, old...))
	u.moved(0, 12)
	p.clusterBreaker("")
	p.saidNothingOf("circuit breaker open", "circuit breaker of a workload open")
	for _, v := range events.verdicts() {
		if v.Strategy != schemas.MaintenanceStrategy {
			t.Errorf("pod %s: %s by %s: %s", v.Intent.Pod, v.Outcome, v.Strategy, v.Message)
		}
	}

	// They are released, and other taints count as before.
	u.wants(v1alpha1.Complete)
	u.untilStates(states)
	u.taint(u.nodes[3], "dedicated")
	u.emptied(u.nodes[3])
}
