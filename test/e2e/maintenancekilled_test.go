package e2e

import (
	"fmt"
	"maps"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/filetest"
)

// packed is a maintenance of four nodes, two at a time. Each node is full until its drain, so no pod moves to a node that is
// drained later, and none moves twice.
type packed struct {
	*upkeep
	old       []string
	before    map[types.UID]string // the pods on these nodes
	places    map[types.UID]string // and its node
	untouched map[string]nodeState // of all nodes
}

// newPacked creates ten pods on each of four nodes, including the pods of first, and then three more nodes.
func newPacked(t *testing.T, first func(*upkeep)) packed {
	t.Helper()
	const full = 10
	p := packed{
		upkeep: newUpkeep(t, 4, labeled("pool", "old"), holding(full)), before: map[types.UID]string{}, places: map[types.UID]string{},
	}
	p.old = p.nodes
	first(p.upkeep)
	there := 0
	for _, n := range p.old {
		there += len(p.pods(n))
	}
	p.deployments(full*len(p.old)-there, "api")
	for _, n := range p.old {
		maps.Copy(p.before, p.pods(n))
		for uid := range p.pods(n) {
			p.places[uid] = n
		}
	}
	p.addNodes(3)
	p.untouched = p.states()
	return p
}

func nothing(*upkeep) {}

// slowly returns a policy with a rate.
func (p packed) slowly(perSecond float64) string {
	return p.quiet(fmt.Sprintf("rate: {evictionsPerSecond: %v, burst: 1}", perSecond))
}

// begin starts the drain, and waits until some pods have moved, but not all pods of the first two nodes.
func (p packed) begin() {
	p.t.Helper()
	p.apply(p.ofPool("old"), "atOnce: 2", "stage: Drain", "reason: new kernel")
	if n := len(p.evicted(0, 6)); n > 15 {
		p.t.Fatalf("%d pods have moved: it is not the middle", n)
	}
}

func TestMaintenanceSurvivesKilledPart(t *testing.T) {
	for _, victim := range []string{"maintenance", "functions", "actuator", "bus"} {
		t.Run(victim, func(t *testing.T) {
			p := newPacked(t, nothing)
			servers := natsCluster(t, 1)
			file := p.slowly(5)
			p.setUp(servers)
			roles := map[string]*process{}
			for _, role := range []string{"functions", "actuator", "watcher", "maintenance"} {
				roles[role] = p.role(role, file, servers.variable())
			}
			o := p.oversee(2)

			p.begin()
			if victim == "bus" {
				servers.kill(0)
				servers.start(0)
			} else {
				roles[victim].Kill()
				p.role(victim, file, servers.variable())
			}
			p.works(len(p.old))
			m := p.untilStages(allIn(v1alpha1.Returned, p.old...))
			if got, want := conditionsOf(m)[v1alpha1.Completed], "True Completed: 4 of 4 nodes were given back"; got != want {
				t.Errorf("Completed is %s, want %s", got, want)
			}
			p.untilStates(p.untouched)
			p.ready("api")
			p.evictedOnce(p.before)
			t.Logf("at most %d nodes at a time", o.worst())
		})
	}
}

func TestMaintenanceSurvivesRepeatedKills(t *testing.T) {
	p := newPacked(t, nothing)
	dir, file := filetest.ShortDir(t), p.slowly(5)
	rehome := p.rehome(file, dir)
	p.oversee(2)
	p.apply(p.ofPool("old"), "atOnce: 2", "stage: Drain", "reason: new kernel")
	kill := func() {
		rehome.Kill()
		rehome = p.rehome(file, dir)
	}
	kill() // when the first nodes are claimed or cordoned, or before
	for _, moved := range []int{1, 8, 16} {
		p.evicted(0, moved)
		kill()
	}
	p.works(1)
	kill() // when the next node is claimed or cordoned
	p.works(len(p.old) - 1)
	p.untilStages(allIn(v1alpha1.Returned, p.old...))
	p.untilStates(p.untouched)
	p.ready("api")
	p.evictedOnce(p.before)
}

func TestMaintenanceSurvivesAPIServerLoss(t *testing.T) {
	p := newPacked(t, nothing)
	rehome := p.rehome(p.slowly(5), filetest.ShortDir(t))
	rehome.leads()
	p.begin()
	p.stopAPIServer()
	rehome.notReady()
	p.startAPIServer()
	rehome.waitReady()
	p.works(len(p.old))
	p.untilStages(allIn(v1alpha1.Returned, p.old...))
	p.untilStates(p.untouched)
	p.ready("api")
	// An eviction call may be missing from the audit log if the API server died during it.
	list := p.evictions()
	if pods := uids(list); len(pods) != len(list) || !within(pods, p.before) {
		t.Errorf("%d evictions of %v, want none twice, and only of %v", len(list), pods, p.before)
	}
	for _, n := range p.old {
		for uid, name := range p.pods(n) {
			if _, was := p.before[uid]; was {
				t.Errorf("pod %s is still on %s", name, n)
			}
		}
	}
}
