package maintenance

import (
	"fmt"
	"maps"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/schemas/v1alpha1"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// fullNodes is a maintenance of four nodes, two at a time. Each node is full until its drain, so no pod moves to a node that is
// drained later, and none moves twice.
type fullNodes struct {
	*maintenanceScene
	old       []string
	before    map[types.UID]string // the pods on these nodes
	places    map[types.UID]string // and its node
	untouched map[string]nodeState // of all nodes
}

// newFullNodes creates ten pods on each of four nodes, including the pods of first, and then three more nodes.
func newFullNodes(t *testing.T, first func(*maintenanceScene)) fullNodes {
	t.Helper()
	const full = 10
	p := fullNodes{
		maintenanceScene: newMaintenanceScene(t, 4, scene.WithLabel("pool", "old"), scene.WithPodCapacity(full)),
		before:           map[types.UID]string{}, places: map[types.UID]string{},
	}
	p.old = p.Nodes
	first(p.maintenanceScene)
	there := 0
	for _, n := range p.old {
		there += len(p.PodsOn(n))
	}
	p.deployments(full*len(p.old)-there, "api")
	for _, n := range p.old {
		maps.Copy(p.before, p.PodsOn(n))
		for uid := range p.PodsOn(n) {
			p.places[uid] = n
		}
	}
	p.AddNodes(3)
	p.untouched = p.states()
	return p
}

func noPods(*maintenanceScene) {}

// slowPolicy returns a policy with a rate.
func (p fullNodes) slowPolicy(perSecond float64) string {
	return p.idlePolicy(fmt.Sprintf("rate: {evictionsPerSecond: %v, burst: 1}", perSecond))
}

// begin starts the drain, and waits until some pods have moved, but not all pods of the first two nodes.
func (p fullNodes) begin() {
	p.T.Helper()
	p.apply(p.poolSelector("old"), "atOnce: 2", "stage: Drain", "reason: new kernel")
	if n := len(p.WaitEvicted(0, 6)); n > 15 {
		p.T.Fatalf("%d pods have moved: it is not the middle", n)
	}
}

// A maintenance calls no function, so none runs.
func TestMaintenanceSurvivesKilledPart(t *testing.T) {
	for _, victim := range []string{"maintenance", "actuator", "bus"} {
		t.Run(victim, func(t *testing.T) {
			p := newFullNodes(t, noPods)
			servers := scene.StartNATS(t, 1)
			file := p.slowPolicy(5)
			p.SetUpBus(servers)
			roles := map[string]*scene.Process{}
			for _, role := range []string{"actuator", "watcher", "maintenance"} {
				roles[role] = p.StartRole(role, file, servers.Setting())
			}
			o := p.watchInvariants(2)

			p.begin()
			if victim == "bus" {
				servers.Kill(0)
				servers.Start(0)
			} else {
				roles[victim].Kill()
				p.StartRole(victim, file, servers.Setting())
			}
			p.doWork(len(p.old))
			m := p.waitStages(allIn(v1alpha1.Returned, p.old...))
			if got, want := conditionsOf(m)[v1alpha1.Completed], "True Completed: 4 of 4 nodes were given back"; got != want {
				t.Errorf("Completed is %s, want %s", got, want)
			}
			p.waitStates(p.untouched)
			p.WaitReady("api")
			p.CheckEvictedOnce(p.before)
			t.Logf("at most %d nodes at a time", o.mostAtOnce())
		})
	}
}

func TestMaintenanceSurvivesRepeatedKills(t *testing.T) {
	p := newFullNodes(t, noPods)
	dir, file := filetest.ShortDir(t), p.slowPolicy(5)
	rehome := p.StartRun(file, dir)
	p.watchInvariants(2)
	p.apply(p.poolSelector("old"), "atOnce: 2", "stage: Drain", "reason: new kernel")
	kill := func() {
		rehome.Kill()
		rehome = p.StartRun(file, dir)
	}
	kill() // when the first nodes are claimed or cordoned, or before
	for _, moved := range []int{1, 8, 16} {
		p.WaitEvicted(0, moved)
		kill()
	}
	p.doWork(1)
	kill() // when the next node is claimed or cordoned
	p.doWork(len(p.old) - 1)
	p.waitStages(allIn(v1alpha1.Returned, p.old...))
	p.waitStates(p.untouched)
	p.WaitReady("api")
	p.CheckEvictedOnce(p.before)
}

func TestMaintenanceSurvivesAPIServerLoss(t *testing.T) {
	p := newFullNodes(t, noPods)
	rehome := p.StartRun(p.slowPolicy(5), filetest.ShortDir(t))
	rehome.WaitLeads()
	p.begin()
	p.StopAPIServer()
	rehome.WaitNotReady()
	p.StartAPIServer()
	rehome.WaitReady()
	p.doWork(len(p.old))
	p.waitStages(allIn(v1alpha1.Returned, p.old...))
	p.waitStates(p.untouched)
	p.WaitReady("api")
	// An eviction call may be missing from the audit log if the API server died during it.
	list := p.Evictions()
	if pods := scene.UIDs(list); len(pods) != len(list) || !scene.Subset(pods, p.before) {
		t.Errorf("%d evictions of %v, want none twice, and only of %v", len(list), pods, p.before)
	}
	for _, n := range p.old {
		for uid, name := range p.PodsOn(n) {
			if _, was := p.before[uid]; was {
				t.Errorf("pod %s is still on %s", name, n)
			}
		}
	}
}
