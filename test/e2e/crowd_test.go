package e2e

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
)

// crowd has many pods of several Deployments, on nodes that all of them have to leave.
type crowd struct {
	*scene
	workloads []string
	replicas  int
	leave     []string // the nodes
	before    map[types.UID]string
}

// newCrowd creates the pods, each Deployment on one of the nodes in turn, and then two more nodes with room for all.
func newCrowd(t *testing.T, nodes, workloads, replicas int) *crowd {
	t.Helper()
	c := &crowd{scene: newScene(t, 0), replicas: replicas, before: map[types.UID]string{}}
	for i := range workloads {
		c.workloads = append(c.workloads, fmt.Sprintf("app-%d", i))
	}
	for at := range nodes { // one node at a time, so its pods have no other node
		c.addNodes(1, holding(max(workloads*replicas, 110)))
		for i := at; i < workloads; i += nodes {
			c.fill(c.workloads[i], c.nodes[at])
		}
		c.cordon(c.nodes[at], true)
	}
	c.leave = slices.Clone(c.nodes)
	c.addNodes(2, holding(max(workloads*replicas, 110)))
	for _, n := range c.leave {
		c.cordon(n, false)
		maps.Copy(c.before, c.pods(n))
	}
	return c
}

// readyAfter is long enough for the limits on moves in flight to be reached on a slow machine.
const readyAfter = 500 * time.Millisecond

// fill creates a Deployment whose pods are all on one node.
func (c *crowd) fill(workload, node string) {
	c.t.Helper()
	c.deployment(workload, c.replicas, func(p *corev1.PodTemplateSpec) {
		p.Annotations = map[string]string{cluster.ReadyAfterAnnotation: readyAfter.String()}
	})
	c.placed(workload, map[string]int{node: c.replicas})
}

// drained taints the nodes, calls middle when a third of the pods is evicted, and waits until each pod was evicted once and its
// replacement runs elsewhere.
func (c *crowd) drained(middle func()) {
	c.t.Helper()
	for _, n := range c.leave {
		c.taint(n, "dedicated")
	}
	c.evicted(0, len(c.before)/3)
	if n := len(c.evictions()); n >= len(c.before) {
		c.t.Fatalf("all %d pods are evicted: it is not the middle", n)
	}
	middle()
	for _, n := range c.leave {
		c.emptied(n)
	}
	for _, w := range c.workloads {
		c.ready(w)
	}
	c.evictedOnce(c.before)
}

// asked returns the possible evictions, by the time of the call: accepted calls, and calls without a response because their
// client was killed or lost its lease, unless a later call evicted the pod.
func (c *crowd) asked() []eviction {
	c.t.Helper()
	list := c.evictions()
	accepted := uids(list)
	for _, e := range c.audited(http.StatusGatewayTimeout) {
		if _, later := accepted[e.uid]; !later {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b eviction) int { return a.received.Compare(b.received) })
	return list
}

// hosting starts rehome with a policy, and returns the action in the middle of a drain.
type hosting func(s *scene, policy string) (middle func())

func undisturbed(s *scene, policy string) func() {
	s.rehome(policy, filetest.ShortDir(s.t)).leads()
	return func() {}
}

// killed kills the process and starts another one. An interrupted eviction can leave the condition DisruptionTarget on a pod,
// which Rehome then leaves alone for 15 seconds.
func killed(s *scene, policy string) func() {
	dir := filetest.ShortDir(s.t)
	p := s.rehome(policy, dir)
	p.leads()
	return func() {
		p.Kill()
		s.rehome(policy, dir)
	}
}

// handed gives the work of the actuator to another process, like an update of its Deployment.
func handed(s *scene, policy string) func() {
	servers := natsCluster(s.t, 1)
	s.setUp(servers)
	s.role("functions", policy, servers.variable())
	s.role("watcher", policy, servers.variable()).leads()
	leader := s.role("actuator", policy, servers.variable())
	leader.says("lease held")
	standby := s.role("actuator", policy, servers.variable())
	return func() {
		if strings.Contains(standby.Log.String(), "lease held") && !strings.Contains(leader.Log.String(), "lease lost") {
			s.t.Error("two actuators lead at once")
		}
		if code := leader.stop(); code != 0 {
			s.t.Errorf("exit code %d of the first actuator, want 0", code)
		}
		standby.says("lease held")
	}
}
