package moves

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rehome-dev/rehome/test/cluster"
	"github.com/rehome-dev/rehome/test/kit/filetest"
	"github.com/rehome-dev/rehome/test/kit/scene"
)

// drain has many pods of several Deployments, on nodes that all of them have to leave.
type drain struct {
	*scene.Scene
	workloads []string
	replicas  int
	leave     []string // the nodes
	before    map[types.UID]string
}

// newDrain creates the pods, each Deployment on one of the nodes in turn, and then two more nodes with room for all.
func newDrain(t *testing.T, nodes, workloads, replicas int) *drain {
	t.Helper()
	c := &drain{Scene: scene.New(t, 0), replicas: replicas, before: map[types.UID]string{}}
	for i := range workloads {
		c.workloads = append(c.workloads, fmt.Sprintf("app-%d", i))
	}
	for at := range nodes { // one node at a time, so its pods have no other node
		c.AddNodes(1, scene.WithPodCapacity(max(workloads*replicas, 110)))
		for i := at; i < workloads; i += nodes {
			c.fill(c.workloads[i], c.Nodes[at])
		}
		c.Cordon(c.Nodes[at], true)
	}
	c.leave = slices.Clone(c.Nodes)
	c.AddNodes(2, scene.WithPodCapacity(max(workloads*replicas, 110)))
	for _, n := range c.leave {
		c.Cordon(n, false)
		maps.Copy(c.before, c.PodsOn(n))
	}
	return c
}

// readyAfter is long enough for the limits on moves in flight to be reached on a slow machine.
const readyAfter = 500 * time.Millisecond

// fill creates a Deployment whose pods are all on one node.
func (c *drain) fill(workload, node string) {
	c.T.Helper()
	c.AddDeployment(workload, c.replicas, func(p *corev1.PodTemplateSpec) {
		p.Annotations = map[string]string{cluster.ReadyAfterAnnotation: readyAfter.String()}
	})
	c.WaitPlaced(workload, map[string]int{node: c.replicas})
}

// run taints the nodes, calls middle when a third of the pods is evicted, and waits until each pod was evicted once and its
// replacement runs elsewhere.
func (c *drain) run(middle func()) {
	c.T.Helper()
	for _, n := range c.leave {
		c.Taint(n, "dedicated")
	}
	c.WaitEvicted(0, len(c.before)/3)
	if n := len(c.Evictions()); n >= len(c.before) {
		c.T.Fatalf("all %d pods are evicted: it is not the middle", n)
	}
	middle()
	for _, n := range c.leave {
		c.WaitEmpty(n)
	}
	for _, w := range c.workloads {
		c.WaitReady(w)
	}
	c.CheckEvictedOnce(c.before)
}

// calls returns the possible evictions, by the time of the call: accepted calls, and calls without a response because their
// client was killed or lost its lease, unless a later call evicted the pod.
func (c *drain) calls() []scene.Eviction {
	c.T.Helper()
	list := c.Evictions()
	accepted := scene.UIDs(list)
	for _, e := range c.EvictionsWithCode(http.StatusGatewayTimeout) {
		if _, later := accepted[e.UID]; !later {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b scene.Eviction) int { return a.Received.Compare(b.Received) })
	return list
}

// disturbance starts rehome with a policy, and returns the action in the middle of a drain.
type disturbance func(s *scene.Scene, policy string) (middle func())

func undisturbed(s *scene.Scene, policy string) func() {
	s.StartRun(policy, filetest.ShortDir(s.T)).WaitLeads()
	return func() {}
}

// processKilled kills the process and starts another one. An interrupted eviction can leave the condition DisruptionTarget on a pod,
// which Rehome then leaves alone for 15 seconds.
func processKilled(s *scene.Scene, policy string) func() {
	dir := filetest.ShortDir(s.T)
	p := s.StartRun(policy, dir)
	p.WaitLeads()
	return func() {
		p.Kill()
		s.StartRun(policy, dir)
	}
}

// actuatorReplaced gives the work of the actuator to another process, like an update of its Deployment.
func actuatorReplaced(s *scene.Scene, policy string) func() {
	servers := scene.StartNATS(s.T, 1)
	s.SetUpBus(servers)
	s.StartRole("functions", policy, servers.Setting())
	s.StartRole("watcher", policy, servers.Setting()).WaitLeads()
	leader := s.StartRole("actuator", policy, servers.Setting())
	leader.WaitLog("lease held")
	standby := s.StartRole("actuator", policy, servers.Setting())
	return func() {
		if strings.Contains(standby.Log.String(), "lease held") && !strings.Contains(leader.Log.String(), "lease lost") {
			s.T.Error("two actuators lead at once")
		}
		if code := leader.Stop(); code != 0 {
			s.T.Errorf("exit code %d of the first actuator, want 0", code)
		}
		standby.WaitLog("lease held")
	}
}
